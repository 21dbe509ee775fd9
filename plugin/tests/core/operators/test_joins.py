"""Joins of two streams at workers: in any order of arrival as the interpreter has it, and the same out of parts."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import msgspec
import pytest
from one_level import Level, parcels_of, saved_and_read
from programs import Programs, by_lane

import lowtide as lt
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.joins.join_asof import AsofNode
from lowtide.core.operators.order.order import Position
from lowtide.core.operators.program import Program
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.errors import StateTooLarge
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.steps import Join
from lowtide.local.run import Message, run_log
from lowtide_snapshots.format.fingerprint import compare

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
SLACK_MS = 2
SOURCES = {"lefts": 0, "rights": 1}
"""Each source with its front."""


@dataclass(frozen=True)
class Left:
    key: str | None
    number: int
    at: datetime


@dataclass(frozen=True)
class Right:
    name: str | None
    number: int
    when: datetime


@dataclass(frozen=True)
class Pair:
    left: int | None
    right: int | None
    at: datetime


def paired(left: Left | None, right: Right | None) -> Pair:
    if ((left.number if left else 3) + (right.number if right else 5)) % 17 == 8:
        raise ValueError("not these two")
    when = left.at if left is not None else right.when if right is not None else BEGAN
    return Pair(None if left is None else left.number, None if right is None else right.number, when)


@dataclass(frozen=True)
class Count:
    window_start: datetime
    pairs: int


def out(stream: Any, name: str, record: type) -> None:
    stream.write(name, lt.kafka(name, lt.json(record)))


def a_flow(dice: random.Random) -> lt.Flow:
    """Joins of every kind, one of them of what windows and another join gave."""
    flow = lt.Flow("joins", dead_letters=lt.kafka("dead", lt.raw()))
    lefts: Any = flow.read("lefts", lt.kafka("lefts", lt.json(Left))).key_by("key")
    rights = flow.read("rights", lt.kafka("rights", lt.json(Right))).key_by("name")
    joined: Any = None
    for number in range(2):
        rest: dict[str, Any] = {word: lt.seconds(dice.choice([0, 1, 2.001])) for word in ("before", "after")}
        in_log_time = dice.random() < 0.3
        if in_log_time:
            rest["after"] += lt.millis(1)
        else:
            waits = lt.seconds(dice.choice([0, 1])), lt.seconds(dice.choice([0, 3]))
            ahead = lt.seconds(dice.choice([2, 90]))
            columns = zip(("at", "when"), waits, strict=True)
            rest["time"] = tuple(lt.event_time(column, wait=wait, ahead=ahead) for column, wait in columns)
        how = dice.choice(["inner", "left", "right", "outer", "outer"])
        joined = lefts.join(f"join{number}", rights, paired, how=how, **rest)
        out(joined, f"pairs{number}", Pair)
        if not in_log_time:
            out(joined.late, f"late{number}", Left)
            out(joined.late_other, f"late-other{number}", Right)
    wait, back, ahead = (lt.seconds(dice.choice(each)) for each in ([0, 1, 2.001], [0, 1, 3], [2, 90]))
    at, when = (lt.event_time(column, wait=wait, ahead=ahead) for column in ("at", "when"))
    asof = lefts.join_asof(
        "join2",
        rights,
        paired,
        time=(at, when),
        back=back,
        how=dice.choice(["left", "inner"]),
    )
    out(asof, "pairs2", Pair)
    out(asof.late, "late2", Left)
    out(asof.late_other, "late-other2", Right)
    again = joined.key_by("left", name="again").join(
        "self", joined.key_by("left", name="and-again"), twice, after=lt.seconds(1), how="left"
    )
    out(again, "twice", Pair)
    counts = joined.key_by("left", name="counted").window(
        "counts",
        lt.tumbling(lt.seconds(2)),
        time=lt.event_time("at", wait=lt.seconds(dice.choice([0, 4])), late="drop"),
    )
    out(counts.aggregate(Count, pairs=lt.agg.count()), "counts", Count)
    return flow


def twice(one: Pair, other: Pair | None) -> Pair:
    return Pair(one.left, None if other is None else other.right, one.at)


def a_log(dice: random.Random) -> dict[str, list[Message]]:
    """Messages of a front for each source, some out of order or long under way; labels and times meet at the tick."""
    found: dict[str, list[Message]] = {}
    for name, front in SOURCES.items():
        for offset in range(dice.randint(5, 25)):
            at = offset / 2 + dice.choice([0, 0, 0.5, 1, 3, 0.001])
            event = (Left if name == "lefts" else Right)(
                dice.choice(["a", "b", "c", None]), dice.randrange(60), BEGAN + timedelta(seconds=at)
            )
            stamp = BEGAN + timedelta(seconds=at + dice.choice([0, 0, 1, 2, 5, -3]))
            found.setdefault(name, []).append(
                Message(Position(front, offset), int(stamp.timestamp() * 1000), None, msgspec.json.encode(event))
            )
    return found


@pytest.mark.parametrize("batch", range(4))
def test_workers_give_what_the_interpreter_gives(batch: int) -> None:
    delivered = dead_letters = late = 0
    for seed in range(batch, 160, 4):
        dice = random.Random(seed)
        lanes = dice.choice([1, 2, 4])
        plan = compile_flow(a_flow(dice), units=8, lanes=lanes, parallelism=dice.randint(1, lanes), slack_ms=SLACK_MS)
        log = a_log(dice)
        written, dead = run_log(plan, log)
        programs = Programs(plan, dice.randrange)
        left = {name: list(messages) for name, messages in log.items()}
        while any(left.values()):
            name = dice.choice([name for name, messages in left.items() if messages])
            number = dice.randint(1, len(left[name]))
            programs.feed(name, left[name][:number])
            left[name] = left[name][number:]
            for _ in range(dice.randrange(3)):
                programs.step()
        programs.finish()
        assert programs.delivered == by_lane(written), f"seed {seed}"
        assert Counter(programs.dead) == Counter(dead), f"seed {seed}"
        assert lates_of(programs) == {
            f"join{number}/{side}": len(written[f"late{other}{number}"])
            for number in range(3)
            for side, other in (("left", ""), ("right", "-other"))
            if f"late{other}{number}" in written
        }, f"seed {seed}"
        late += sum(lates_of(programs).values())
        delivered += sum(map(len, written.values()))
        dead_letters += len(dead)
    assert late > 100
    assert delivered > 800
    assert dead_letters > 5


def lates_of(programs: Programs) -> dict[str, int]:
    """By side of a join that goes by event time how many late records the workers have counted."""
    found: dict[str, int] = {}
    for program in chain.from_iterable(programs.levels):
        for name, seen in program.late.items():
            join = program.plan.vertices[[each.name for each in program.plan.vertices].index(name.partition("/")[0])]
            if isinstance(join.step, Join) and join.step.time is not None:
                assert seen.closed + seen.ahead <= seen.records
                found[name] = found.get(name, 0) + seen.closed + seen.ahead
    return found


def scene(seed: int) -> tuple[random.Random, Plan, list[tuple[int, Any]], int]:
    dice = random.Random(seed)
    plan = compile_flow(a_flow(dice), units=8, lanes=1, parallelism=1, slack_ms=SLACK_MS)
    return dice, plan, parcels_of(plan, a_log(dice)), int(BEGAN.timestamp() * 1000) // SLACK_MS


@pytest.mark.parametrize("batch", range(4))
def test_from_a_snapshot_on_all_is_as_it_would_have_been(batch: int) -> None:
    """Taken after min time has passed T: what was paired, came out or ended since is as it was below T."""
    compared = rows = 0
    for seed in range(batch, 120, 4):
        dice, plan, parcels, first_tick = scene(seed)
        ticks = sorted(first_tick + dice.randrange(0, 16_000 // SLACK_MS) for _ in range(3))
        level = Level(plan)
        level.feed(parcels, ticks[0])
        level.program.prune(ticks[0])
        level.feed(parcels, ticks[1])
        early = level.program.capture(ticks[1])
        level.feed(parcels, ticks[2])
        late = level.program.capture(ticks[1])
        assert saved_and_read(plan, late) == saved_and_read(plan, early), f"seed {seed}"
        level.feed(parcels, 1 << 62)
        again = Level(plan)
        captured = saved_and_read(plan, level.program.capture(ticks[1]))
        again.program.restore(captured, ticks[1])
        restored = {name: kept for name, kept in again.program.kept.items() if kept.what != "rows"}
        again.min_time = ticks[1]
        again.feed(parcels, 1 << 62)
        assert again.from_tick(ticks[1]) == level.from_tick(ticks[1]), f"seed {seed}"
        entries = {name: [*chain.from_iterable(each.values())] for name, each in captured.items()}
        saved = {name: sum(len(rows) for _, rows in each) for name, each in entries.items()}
        waiting = {name: kept.number for name, kept in restored.items() if kept.number}
        assert waiting == {name: count for name, count in saved.items() if name in restored}, f"seed {seed}"
        compared += len(again.out)
        rows += sum(len(entries) for units in captured.values() for entries in units.values())
    assert compared > 300
    assert rows > 15


def test_what_has_changed_since_a_snapshot_holds_every_record_that_differs() -> None:
    """A snapshot on top of another takes the other's parts for units that have not changed."""
    differing = 0
    for seed in range(60):
        dice, plan, parcels, first_tick = scene(seed)
        one, two = sorted(first_tick + dice.randrange(0, 16_000 // SLACK_MS) for _ in range(2))
        level = Level(plan)
        level.feed(parcels, one)
        base = level.program.capture(one)
        level.feed(parcels, two)
        whole, changed = level.program.capture(two), level.program.capture(two, since=one)
        merged = {name: {**units, **changed[name]} for name, units in base.items()}
        assert saved_and_read(plan, merged) == saved_and_read(plan, whole), f"seed {seed}"
        differing += saved_and_read(plan, base) != saved_and_read(plan, whole)
    assert differing > 20


def test_what_has_ended_takes_no_memory() -> None:
    _, plan, parcels, _ = scene(3)
    level = Level(plan)
    level.feed(parcels, 1 << 40)
    assert any(side._kept for node in joins_of(level.program) for side in node.sides)
    assert any(kept.number and kept.bytes for kept in level.program.kept.values())
    level.program.prune(1 << 40)
    assert not any(kept.number or kept.bytes for kept in level.program.kept.values())
    assert not any(side._kept or side._ended for node in joins_of(level.program) for side in node.sides)


def test_a_join_says_so_before_it_outgrows_its_limit() -> None:
    """With figures of both sides; a life with more room goes on from the snapshot before."""
    flow = lt.Flow("joins")
    lefts: Any = flow.read("lefts", lt.kafka("lefts", lt.json(Left))).key_by("key")
    rights = flow.read("rights", lt.kafka("rights", lt.json(Right))).key_by("name")
    at, when = (lt.event_time(column, wait=lt.seconds(9), late="drop") for column in ("at", "when"))
    pairs = lefts.join("near", rights, both_numbers, time=(at, when))
    out(pairs, "pairs", Pair)
    plan = compile_flow(flow, units=8, lanes=1, parallelism=1, slack_ms=SLACK_MS)
    first = round(BEGAN.timestamp() * 1000)
    made = {
        name: [
            Message(
                Position(front, offset),
                first + offset,
                None,
                msgspec.json.encode(record("abc"[offset % 3], offset, BEGAN + lt.millis(offset))),
            )
            for offset in range(2_000)
        ]
        for name, front, record in (("lefts", 0, Left), ("rights", 1, Right))
    }
    parcels = parcels_of(plan, made)
    roomy = Level(plan, Limits(1 << 18, 1 << 22, 8192))
    roomy.feed(parcels, first // SLACK_MS + 2_000)
    kept = roomy.program.kept
    assert {name: each.number for name, each in kept.items()} == {"near/left": 2_000, "near/right": 2_000}
    size = sum(each.bytes for each in kept.values())
    assert 2_000 * 2 * 400 < size < 2_000 * 2 * 2_000
    with pytest.raises(
        StateTooLarge, match=r'join "near" keeps about .* may keep 1,048,576: .* left .* right'
    ) as caught:
        Level(plan, Limits(1 << 18, 1 << 22, 8192, max_join_bytes=1 << 20)).feed(parcels, first // SLACK_MS + 2_000)
    assert caught.value.kind == "flow"
    assert "raise worker.max_join_bytes" in caught.value.way_out
    assert "test_joins.py" in caught.value.where


def both_numbers(left: Left, right: Right) -> Pair:
    return Pair(left.number, right.number, left.at)


def joins_of(program: Program) -> list[Any]:
    return [node for node in program._nodes.values() if hasattr(node, "sides")]


def test_a_join_with_other_bounds_is_another_join() -> None:
    def shapes(**rest: Any) -> list[Any]:
        flow = lt.Flow("joins")
        lefts: Any = flow.read("lefts", lt.kafka("lefts", lt.json(Left))).key_by("key")
        rights = flow.read("rights", lt.kafka("rights", lt.json(Right))).key_by("name")
        out(lefts.join("join", rights, paired, **rest), "pairs", Pair)
        return [step.shape for step in saved_steps(compile_flow(flow, parallelism=1)).values()]

    frozen, now = shapes(after=lt.hours(1)), shapes(after=lt.hours(2))
    assert compare(frozen, frozen, {}) == []
    was, is_now = (f"from 0 s before to {number} h after in log time" for number in (1, 2))
    assert [(each.vertex, each.what) for each in compare(frozen, now, {})] == [
        (side, f'step "{side}" is {is_now}, but was {was}: give it another name')
        for side in ("join/left", "join/right")
    ]


def test_partners_that_have_ended_are_looked_for_no_more() -> None:
    kept = 0
    for seed in range(20):
        _, plan, parcels, first_tick = scene(seed)
        level = Level(plan)
        (node,) = (node for node in joins_of(level.program) if isinstance(node, AsofNode))
        for tick in (*(first_tick + ms // SLACK_MS for ms in (1_500, 3_000, 5_000, 8_000)), 1 << 40):
            level.feed(parcels, tick)
            level.program.prune(tick)
            records = node.sides[1]._kept
            node._partners.check(records)
            kept += sum(map(len, records.values()))
        assert not records
    assert kept > 10
