"""Windows of time at workers: in any order of arrival they give what the interpreter gives, and survive in parts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from one_level import Level, parcels_of, saved_and_read
from programs import Programs, by_lane

import lowtide as lt
from lowtide.core.operators.order.order import Position
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.local.run import Message, run_log

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
SLACK_MS = 2


@dataclass(frozen=True)
class Event:
    key: str
    number: int
    at: datetime


@dataclass(frozen=True)
class Seen:
    key: str
    window_start: datetime
    window_end: datetime
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Sum:
    window_start: datetime
    total: int | None


def mixed(one: Event, other: Event) -> Event:
    if (one.number + other.number) % 23 == 11:
        raise ValueError("eleven")
    return Event(one.key, (one.number * 31 + other.number) % 1_000_003, max(one.at, other.at))


def added(state: int, event: Event) -> int:
    return (state * 31 + event.number) % 1_000_003


def finished(window: lt.Window, state: int) -> Seen:
    if state % 19 == 7:
        raise ValueError("seven")
    return Seen(window.key[0], window.start, window.end, (state,))


def joined(one: int, other: int) -> int:
    return (one * 7 + other) % 1_000_003


def listed(window: lt.Window, events: tuple[Event, ...]) -> list[Seen]:
    if len(events) == 5:
        raise ValueError("five")
    seen = Seen(window.key[0], window.start, window.end, tuple(event.number for event in events))
    return [seen] * (len(events) % 3)


Result = Callable[[Any, Any, str], None]


def out(stream: Any, name: str, record: type) -> None:
    stream.write(name, lt.kafka(name, lt.json(record)))


def aggregated(windowed: Any, dice: Any, name: str) -> None:
    out(windowed.aggregate(Seen, numbers=lt.agg.collect("number")), name, Seen)


def reduced(windowed: Any, dice: Any, name: str) -> None:
    out(windowed.reduce(mixed), name, Event)


def folded(windowed: Any, dice: Any, name: str) -> None:
    out(windowed.fold(added, 0, finished, merge=joined), name, Seen)


def applied(windowed: Any, dice: Any, name: str) -> None:
    out(windowed.apply(listed), name, Seen)


def cascaded(windowed: Any, dice: Any, name: str) -> None:
    """Windows of windows, of which some close at the same tick."""
    totals = windowed.aggregate(Sum, total=lt.agg.sum("number"))
    out(totals, f"{name}-first", Sum)
    keyed = totals.key_by("window_start", name=f"{name}-start")
    wait = timedelta(seconds=dice.choice([0, 3, 7]))
    again = keyed.window(f"{name}-again", lt.tumbling(lt.seconds(4)), time=lt.event_time("window_start", wait=wait))
    out(again.late, f"{name}-again-late", Sum)
    out(again.aggregate(Sum, total=lt.agg.sum("total")), name, Sum)


RESULTS: list[Result] = [aggregated, reduced, folded, applied, cascaded]


def a_flow(dice: random.Random, merges: bool = True) -> lt.Flow:
    """A flow of windows of every kind."""
    flow = lt.Flow("windows", dead_letters=lt.kafka("dead", lt.raw()))
    events = flow.read("events", lt.kafka("events", lt.json(Event)))
    for number in range(3):
        size, name = lt.seconds(dice.choice([2, 3.5, 5])), f"windows{number}"
        windows: list[Any] = [
            lt.tumbling(size, offset=lt.seconds(dice.choice([0, 1.5]))),
            lt.sliding(size, lt.seconds(dice.choice([1, 1.5, 2]))),
            lt.session(size),
            lt.calendar(dice.choice(["day", "week", "month"]), "Europe/Berlin"),
        ]
        cut, rest = dice.choice(windows), dict[str, Any]()
        if dice.random() < 0.75:
            wait, ahead = lt.seconds(dice.choice([0, 1, 2.001, 4])), lt.seconds(dice.choice([2, 90]))
            rest["time"] = lt.event_time("at", wait=wait, ahead=ahead)
        if cut is not windows[2] and dice.random() < 0.3:
            rest["emit"] = "update"
        windowed = events.key_by("key", name=f"by{number}").window(name, cut, **rest)
        if "time" in rest:
            out(windowed.late, f"{name}-late", Event)
        dice.choice(RESULTS)(windowed, dice, f"{name}-out")
    return flow


def a_log(dice: random.Random) -> list[Message]:
    """Messages of two fronts, some out of order, some long under way; labels and times meet at the very tick."""
    found = []
    for front in range(2):
        for offset in range(dice.randint(0, 25)):
            at = dice.randint(0, 40) + dice.choice([0, 0, 0.5, 0.001])
            event = Event(dice.choice("abc"), dice.randrange(60), BEGAN + timedelta(seconds=at))
            stamp = BEGAN + timedelta(seconds=at + dice.choice([0, 0, 1, 2, 5, -3]))
            found.append(
                Message(Position(front, offset), int(stamp.timestamp() * 1000), None, msgspec.json.encode(event))
            )
    return found


def plan_of(flow: lt.Flow, dice: random.Random) -> Plan:
    lanes = dice.choice([1, 2, 4])
    return compile_flow(flow, units=8, lanes=lanes, parallelism=dice.randint(1, lanes), slack_ms=SLACK_MS)


def fed(programs: Programs, dice: random.Random, log: Iterable[Message]) -> None:
    """Let messages in, front by front in order, and steps run between them."""
    left = {front: [each for each in log if each.position.front == front] for front in (0, 1)}
    while any(left.values()):
        front = dice.choice([front for front, messages in left.items() if messages])
        number = dice.randint(1, len(left[front]))
        programs.feed("events", left[front][:number])
        left[front] = left[front][number:]
        for _ in range(dice.randrange(3)):
            programs.step()


@pytest.mark.parametrize("batch", range(4))
def test_workers_give_what_the_interpreter_gives(batch: int) -> None:
    delivered = dead_letters = 0
    for seed in range(batch, 160, 4):
        dice = random.Random(seed)
        plan, log = plan_of(a_flow(dice), dice), a_log(dice)
        written, dead = run_log(plan, {"events": log})
        programs = Programs(plan, dice.randrange)
        fed(programs, dice, log)
        programs.finish()
        assert programs.delivered == by_lane(written), f"seed {seed}"
        assert Counter(programs.dead) == Counter(dead), f"seed {seed}"
        kept = [each for level in programs.levels for program in level for each in program.kept.values()]
        assert not any(each.number for each in kept), f"seed {seed}: all windows have closed"
        delivered += sum(map(len, written.values()))
        dead_letters += len(dead)
    assert delivered > 1_000
    assert dead_letters > 20


END = 1 << 62


@pytest.mark.parametrize("batch", range(4))
def test_from_a_snapshot_on_all_is_as_it_would_have_been(batch: int) -> None:
    """Taken after min time has passed T: windows that have grown, joined or closed since are as they were below T."""
    compared = rows = 0
    for seed in range(batch, 120, 4):
        dice = random.Random(seed)
        plan = compile_flow(a_flow(dice), units=8, lanes=1, parallelism=1, slack_ms=SLACK_MS)
        parcels = parcels_of(plan, {"events": a_log(dice)})
        first_tick = int(BEGAN.timestamp() * 1000) // SLACK_MS
        ticks = sorted(first_tick + dice.randrange(0, 60_000 // SLACK_MS) for _ in range(3))
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
        again.min_time = ticks[1]
        again.feed(parcels, 1 << 62)
        assert again.from_tick(ticks[1]) == level.from_tick(ticks[1]), f"seed {seed}"
        compared += len(again.out)
        rows += sum(len(entries) for units in captured.values() for entries in units.values())
    assert compared > 300
    assert rows > 30


@pytest.mark.parametrize("batch", range(2))
def test_portions_give_what_one_call_gives_and_snapshots_between_them_are_the_same(batch: int) -> None:
    """Windows of one tick close one after the other, and up to the tick that was reached the state is exact (R14)."""
    stops = 0
    for seed in range(batch, 60, 2):
        dice = random.Random(seed)
        plan = compile_flow(a_flow(dice), units=8, lanes=1, parallelism=1, slack_ms=SLACK_MS)
        whole, parted = Level(plan), Level(plan)
        for vertex, batch_ in parcels_of(plan, {"events": a_log(dice)}):
            for level in (whole, parted):
                level.note(level.program.feed(vertex, batch_))
        reached = -1
        while reached < END:
            feed, came = parted.program.go_on(END, parted.program.holding, Portion(dice.randint(1, 4)))
            parted.note(feed)
            assert came >= reached, f"seed {seed}: it goes back"
            reached = came
            assert reached == END or parted.program.first_due is None or parted.program.first_due >= reached
            if reached < END and dice.random() < 0.2:
                whole.note(whole.program.advance(reached))
                captured = [saved_and_read(plan, level.program.capture(reached)) for level in (parted, whole)]
                assert captured[0] == captured[1], f"seed {seed}"
                stops += 1
        whole.note(whole.program.advance(END))
        assert parted.from_tick(0) == whole.from_tick(0), f"seed {seed}"
    assert stops > 50


def test_what_has_changed_since_a_snapshot_holds_every_window_that_differs() -> None:
    """A snapshot on top of another takes the other's parts for units that have not changed."""
    differing = 0
    for seed in range(60):
        dice = random.Random(seed)
        plan = compile_flow(a_flow(dice), units=8, lanes=1, parallelism=1, slack_ms=SLACK_MS)
        parcels = parcels_of(plan, {"events": a_log(dice)})
        first_tick = int(BEGAN.timestamp() * 1000) // SLACK_MS
        one, two = sorted(first_tick + dice.randrange(0, 60_000 // SLACK_MS) for _ in range(2))
        level = Level(plan)
        level.feed(parcels, one)
        base = level.program.capture(one)
        level.feed(parcels, two)
        whole, changed = level.program.capture(two), level.program.capture(two, since=one)
        merged = {name: {**units, **changed[name]} for name, units in base.items()}
        assert saved_and_read(plan, merged) == saved_and_read(plan, whole), f"seed {seed}"
        differing += saved_and_read(plan, base) != saved_and_read(plan, whole)
    assert differing > 30


def test_windows_that_are_cut_otherwise_have_another_shape() -> None:
    def shape(*cut: Any, **rest: Any) -> Any:
        flow = lt.Flow("shape")
        keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
        out(keyed.window("w", *cut, **rest).reduce(mixed), "out", Event)
        return saved_steps(compile_flow(flow, parallelism=1))["w"].shape

    def clock(**rest: Any) -> Any:
        return lt.event_time("at", **{"wait": lt.seconds(1), "late": "drop", **rest})

    one = shape(lt.tumbling(lt.minutes(5)), time=clock())
    assert one == shape(lt.tumbling(lt.minutes(5)), time=clock(ahead=lt.days(3)))
    others = [
        shape(lt.tumbling(lt.minutes(6)), time=clock()),
        shape(lt.tumbling(lt.minutes(5)), time=clock(wait=lt.seconds(2))),
        shape(lt.tumbling(lt.minutes(5), offset=lt.minutes(1)), time=clock()),
        shape(lt.session(lt.minutes(5)), time=clock()),
        shape(lt.tumbling(lt.minutes(5))),
    ]
    assert len({one, *others}) == 6
