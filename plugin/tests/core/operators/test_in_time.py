"""The law of event time: a record at most `wait` behind log time is in time, and one that is more behind is not.

For every step that has event time, at workers and in the interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from programs import Programs, by_lane

import lowtide as lt
from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.local.lateness import lateness_of
from lowtide.local.run import Message, run_log

BEGAN_MS = 1_772_323_200_000
SLACKS = (1, 2, 7, 50)
"""In milliseconds."""
US = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Event:
    key: str
    number: int
    at: datetime


@dataclass(frozen=True)
class Count:
    key: str
    window_end: datetime
    events: int


def either(left: Event, right: Event | None) -> Event:
    return left if right is None else right


@dataclass(frozen=True)
class Open:
    events: int = 0
    until: datetime | None = None


def windows(slack: int) -> dict[str, Any]:
    """Windows of all kinds, none shorter than a tick."""
    unit = max(20, slack)
    return {
        "tumbling": lt.tumbling(lt.millis(2 * unit), offset=lt.millis(4)),
        "sliding": lt.sliding(lt.millis(3 * unit), lt.millis(unit)),
        "calendar": lt.calendar("day", "Africa/Monrovia"),
        "session": lt.session(lt.millis(unit + unit // 2)),
    }


def waits(slack: int) -> list[timedelta]:
    """None, and some of a tick and more."""
    return [timedelta(0), lt.millis(slack), lt.millis(slack) + US, lt.millis(5 * slack), timedelta(microseconds=60_333)]


INSTANTS = ("session", "join", "asof")
"""The steps at which a record is late by its own time."""


def counted(windowed: Any, name: str) -> Any:
    windowed.late.write(f"{name}-late", lt.kafka(f"{name}-late", lt.json(windowed_type(name))))
    return windowed.aggregate(Count, events=lt.agg.count())


def windowed_type(name: str) -> type:
    return Count if name.endswith("again") else Event


def counting(wait: timedelta) -> tuple[Any, Any]:
    """A scan that counts until `wait` after its first record, and what gives the count."""

    def on_event(state: Open, event: Event) -> tuple[Open, list[Count]]:
        return Open(state.events + 1, state.until or event.at + wait), []

    def on_timer(state: Open, moment: datetime) -> tuple[Open, list[Count]]:
        return Open(), [Count("", moment, state.events)]

    return on_event, on_timer


def until(state: Open) -> datetime | None:
    return state.until


def a_flow(wait: timedelta, other: timedelta, slack: int) -> lt.Flow:
    """Every step that has event time; `other` is the right streams' wait, where they have one of their own."""
    flow = lt.Flow("in-time")
    events: Any = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    for name, cut in windows(slack).items():
        counts = counted(events.window(name, cut, time=lt.event_time("at", wait=wait)), name)
        again = counts.key_by("key", name=f"{name}-by").window(
            f"{name}-again",
            lt.session(lt.millis(max(30, slack))),
            time=lt.event_time("window_end", wait=wait + lt.millis(slack)),
        )
        counted(again, f"{name}-again").write(name, lt.kafka(name, lt.json(Count)))
    own, others = (lt.event_time("at", wait=each) for each in (wait, other))
    join = events.join(
        "join", events, either, after=lt.millis(15), before=lt.millis(5), time=(own, others), how="left",
    )  # fmt: skip
    asof = events.join_asof("asof", events, either, time=own, back=lt.millis(30), how="left")
    on_event, on_timer = counting(wait)
    timed = events.flat_scan("timed", on_event, Open(), timer=until, on_timer=on_timer)
    timed.write("timed", lt.kafka("timed", lt.json(Count)))
    for name, joined in (("join", join), ("asof", asof)):
        joined.late.write(f"{name}-late", lt.kafka(f"{name}-late", lt.json(Event)))
        joined.late_other.write(f"{name}-late-other", lt.kafka(f"{name}-late-other", lt.json(Event)))
        joined.write(name, lt.kafka(name, lt.json(Event)))
    return flow


def plan_of(wait: timedelta, other: timedelta, slack: int, parallelism: int = 1) -> Plan:
    return compile_flow(a_flow(wait, other, slack), units=8, lanes=2, parallelism=parallelism, slack_ms=slack)


def message(front: int, offset: int, stamp: int, event: Event) -> Message:
    return Message(Position(front, offset), stamp, None, msgspec.json.encode(event))


def began(label: int, slack: int) -> datetime:
    return EPOCH + timedelta(milliseconds=label * slack)


def given(plan: Plan, log: list[Message], dice: random.Random) -> dict[str, list[Any]]:
    """The values that workers and the interpreter both deliver."""
    written, dead = run_log(plan, {"events": log})
    assert not dead
    programs = Programs(plan, dice.randrange)
    for front in sorted({each.position.front for each in log}):
        programs.feed("events", [each for each in log if each.position.front == front])
    programs.finish()
    assert programs.delivered == by_lane(written)
    return {name: [each.value for each in messages] for name, messages in written.items()}


def late(out: dict[str, list[Any]]) -> dict[str, int]:
    return {name: len(values) for name, values in out.items() if "-late" in name and values}


def seeds(number: int) -> Iterable[random.Random]:
    return (random.Random(seed) for seed in range(number))


@pytest.mark.parametrize("slack", SLACKS)
def test_a_record_at_most_wait_behind_log_time_is_never_late(slack: int) -> None:
    results = 0
    for dice in seeds(8):
        wait = dice.choice(waits(slack))
        log = []
        for front in range(2):
            label, stamp = 0, BEGAN_MS
            for offset in range(dice.randint(1, 25)):
                stamp += dice.choice([0, 1, 2, 3, 40, -20])
                label = max(label, stamp // slack)
                behind = dice.choice([wait, wait, wait * dice.random(), timedelta(0), -lt.millis(30)])
                event = Event(dice.choice("ab"), offset, began(label, slack) - behind)
                log.append(message(front, offset, stamp, event))
        other = wait + dice.choice([timedelta(0), lt.millis(7)])
        out = given(plan_of(wait, other, slack, dice.choice([1, 2])), log, dice)
        assert late(out) == {}
        results += sum(map(len, out.values()))
    assert results > 300


@pytest.mark.parametrize("slack", SLACKS)
def test_a_log_in_perfect_order_has_no_late_record_without_any_wait(slack: int) -> None:
    for dice in seeds(3):
        log = [
            message(front, offset, stamp, Event("a", offset, EPOCH + timedelta(milliseconds=stamp)))
            for front in range(2)
            for offset, stamp in enumerate(sorted(BEGAN_MS + dice.randrange(2_000) for _ in range(60)))
        ]
        assert late(given(plan_of(timedelta(0), timedelta(0), slack), log, dice)) == {}


@pytest.mark.parametrize("slack", SLACKS)
def test_a_timer_of_a_moment_comes_after_all_records_below_it(slack: int) -> None:
    """The law of event time for steps whose functions say themselves how long they wait."""
    for dice in seeds(3):
        wait = dice.choice(waits(slack))
        stamps = sorted(BEGAN_MS + dice.randrange(1_000) for _ in range(80))
        ats = [EPOCH + timedelta(milliseconds=stamp) for stamp in stamps]
        log = [message(0, offset, stamp, Event("a", offset, ats[offset])) for offset, stamp in enumerate(stamps)]
        out, counted = given(plan_of(wait, wait, slack), log, dice)["timed"], 0
        for count in (msgspec.json.decode(value, type=Count) for value in out):
            assert count.window_end == ats[counted] + wait
            counted += count.events
            assert counted >= sum(began(stamp // slack, slack) < count.window_end for stamp in stamps)
        assert counted == len(log)
        assert len(out) > 1


@pytest.mark.parametrize("slack", SLACKS)
def test_a_record_that_is_more_behind_is_late_where_its_own_time_counts(slack: int) -> None:
    label = BEGAN_MS // slack
    for wait in waits(slack):
        behind = [wait, wait + US, wait + lt.millis(1), timedelta(0)]
        log = [
            message(0, offset, BEGAN_MS, Event(str(offset), offset, began(label, slack) - each))
            for offset, each in enumerate(behind)
        ]
        plan = plan_of(wait, wait, slack)
        found = late(given(plan, log, random.Random(0)))
        assert {name: found.get(f"{name}-late") for name in INSTANTS} == dict.fromkeys(INSTANTS, 2)
        said = {each.step: each.late for each in lateness_of(plan, {"events": log})}
        assert {
            name.split("/")[0]: number for name, number in said.items() if name.split("/")[0] in INSTANTS
        } == dict.fromkeys(INSTANTS, 2), "and so says `lowtide doctor --lateness`"


@pytest.mark.parametrize("slack", SLACKS)
def test_a_window_takes_a_record_as_long_as_a_record_of_its_last_moment_would_be_in_time(slack: int) -> None:
    """A span's end is not part of it, so a window closes with the last instant in it, not a tick later."""
    size = windows(slack)["tumbling"].size // lt.millis(1)
    for wait in waits(slack):
        end = EPOCH + timedelta(milliseconds=BEGAN_MS - BEGAN_MS % size + size + 4)
        closes = -(-(end + wait - EPOCH) // lt.millis(slack)) * slack
        for stamp, is_late in ((closes - slack, False), (closes, True)):
            log = [message(0, 0, stamp, Event("a", 0, end - US))]
            found = late(given(plan_of(wait, wait, slack), log, random.Random(0)))
            assert (found.get("tumbling-late", 0) == 1) is is_late
