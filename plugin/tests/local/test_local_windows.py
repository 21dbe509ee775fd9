"""Windows here and now: the delicate moments, sessions against connected components, and the law of all timed steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide as lt
from lowtide.core.operators.faults.failure import UserError
from lowtide.core.operators.order.order import Position
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.time.moments import micros_of
from lowtide.local.interpreter import Run
from lowtide.local.items import Item, Message, Order
from lowtide.local.lateness import Dating, datings_of, lateness_of
from lowtide.local.run import _labelled

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Event:
    key: str
    number: int
    at: datetime
    came: datetime


@dataclass(frozen=True)
class Seen:
    key: str
    window_start: datetime
    window_end: datetime
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Total:
    window_start: datetime
    total: int | None


def moment(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def event(number: int, at: float, came: float | None = None, key: str = "a") -> Event:
    return Event(key, number, moment(at), moment(at if came is None else came))


def sink(stream: Any, name: str, record: type) -> None:
    stream.write(name, lt.kafka(name, lt.json(record)))


def flow_of(*windows: Any, **rest: Any) -> lt.Flow:
    """The records of each window, and late ones."""
    flow = lt.Flow("windows")
    events = flow.read("events", lt.kafka("events", lt.json(Event)))
    windowed = events.key_by("key").window("windows", *windows, **rest)
    if "time" in rest:
        sink(windowed.late, "late", Event)
    sink(windowed.aggregate(Seen, numbers=lt.agg.collect("number")), "seen", Seen)
    return flow


def run(flow: lt.Flow, *events: Event, until: datetime | None = None) -> tuple[list[tuple[int, ...]], list[int]]:
    """The numbers in each window, and the late ones."""
    out = flow.run_locally(events=lt.stamped(events, by="came"), until=until)
    return [seen.numbers for seen in out["seen"]], [event.number for event in out.get("late", [])]


TEN = lt.tumbling(lt.seconds(10))


def test_a_record_at_the_close_is_late_and_a_tick_before_is_not() -> None:
    flow = flow_of(TEN, time=lt.event_time("at", wait=lt.seconds(5)))
    assert run(flow, event(1, 3), event(2, 9, 14.998), event(3, 9, 15)) == ([(1, 2)], [3])


def test_a_record_too_far_ahead_is_late_too_and_holds_no_window_open() -> None:
    flow = flow_of(TEN, time=lt.event_time("at", wait=lt.seconds(5)))
    assert run(flow, event(1, 3), event(9, 10**8, 4)) == ([(1,)], [9])


def test_a_record_may_be_late_for_one_window_and_in_time_for_another() -> None:
    flow = flow_of(lt.sliding(lt.seconds(20), lt.seconds(10)), time=lt.event_time("at", wait=lt.seconds(0)))
    assert run(flow, event(1, 5), event(2, 8, 12)) == ([(1,), (1, 2)], [2])


def test_a_record_that_is_late_by_itself_belongs_to_a_session_that_is_open() -> None:
    flow = flow_of(lt.session(lt.seconds(10)), time=lt.event_time("at", wait=lt.seconds(1)))
    log = event(1, 0), event(2, 9), event(3, 18), event(4, 5, 19), event(5, 5, 40)
    assert run(flow, *log) == ([(1, 2, 3, 4)], [5])


def test_a_record_between_two_sessions_makes_one_of_them() -> None:
    flow = flow_of(lt.session(lt.seconds(10)), time=lt.event_time("at", wait=lt.seconds(1)))
    assert run(flow, event(1, 0), event(2, 10.5), event(3, 5, 10.6)) == ([(1, 2, 3)], [])


def test_in_log_time_nothing_is_late_and_sessions_end_by_themselves() -> None:
    flow = flow_of(lt.session(lt.seconds(10)))
    assert run(flow, event(1, 0), event(2, 9.999), event(3, 19.999), event(4, 29)) == ([(1, 2), (3, 4)], [])


def test_a_window_is_open_until_time_has_come() -> None:
    flow = flow_of(TEN, time=lt.event_time("at", wait=lt.seconds(5)))
    assert run(flow, event(1, 0), until=moment(14.998)) == ([], [])
    assert run(flow, event(1, 0), until=moment(15)) == ([(1,)], [])


def test_updates_come_with_each_record_and_nothing_at_the_close() -> None:
    flow = flow_of(
        lt.sliding(lt.seconds(20), lt.seconds(10)), time=lt.event_time("at", wait=lt.seconds(0)), emit="update"
    )
    assert run(flow, event(1, 5), event(2, 8, 12)) == ([(1,), (1,), (1, 2)], [2])


def test_records_without_stamps_are_in_time_and_every_window_closes() -> None:
    flow = flow_of(TEN, time=lt.event_time("at", wait=lt.seconds(5)))
    out = flow.run_locally(events=[event(1, 30), event(2, 3)])
    assert ([seen.numbers for seen in out["seen"]], out["late"]) == ([(2,), (1,)], [])


def test_a_result_is_in_time_for_a_window_that_closes_with_it() -> None:
    flow = lt.Flow("cascade")
    events = flow.read("events", lt.kafka("events", lt.json(Event)))
    first = events.key_by("key").window("first", TEN, time=lt.event_time("at", wait=lt.seconds(5), late="drop"))
    totals = first.aggregate(Total, total=lt.agg.count())
    second = totals.key_by("window_start").window("second", TEN, time=lt.event_time("window_start", wait=lt.seconds(5)))
    sink(second.late, "late", Total)
    sink(second.aggregate(Total, total=lt.agg.sum("total")), "out", Total)
    log = event(1, 3), event(2, 4, key="b"), event(3, 5, key="c"), event(4, 13)
    out = flow.run_locally(events=lt.stamped(log, by="came"))
    assert ([each.total for each in out["out"]], out["late"]) == ([3, 1], [])


def test_a_day_of_23_hours_is_one_window() -> None:
    flow = flow_of(lt.calendar("day", "Europe/Berlin"), time=lt.event_time("at", wait=lt.seconds(0)))
    out = flow.run_locally(events=[event(hour, 86_400 * 27.5 + 3_600 * hour) for hour in range(40)])
    assert [(each.window_end - each.window_start) / lt.hours(1) for each in out["seen"]] == [24, 23, 24]


def worse(one: Event, other: Event) -> Event:
    raise ValueError("two")


def half(window: lt.Window, events: tuple[Event, ...]) -> list[Seen]:
    if len(events) == 1:
        raise ValueError("alone")
    return [Seen(window.key[0], window.start, window.end, (len(events),))]


def test_what_fails_with_a_record_is_the_records_and_what_fails_at_the_close_the_clocks() -> None:
    flow = lt.Flow("failing", dead_letters=lt.kafka("dead", lt.raw()))
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    sink(keyed.window("reduced", TEN).reduce(worse), "reduced-out", Event)
    sink(keyed.window("applied", TEN).apply(half), "applied-out", Seen)
    log = event(1, 0), event(2, 1), event(3, 2, key="b")
    out = flow.run_locally(events=lt.stamped(log, by="came"))
    assert sorted(each.number for each in out["reduced-out"]) == [1, 3]
    assert [each.numbers for each in out["applied-out"]] == [(2,)]
    failed, clock = out["dead-letters"]
    assert (failed.vertex, failed.position.front, failed.error) == ("reduced", 0, "raised ValueError: two")
    assert (clock.vertex, clock.position.front, clock.error) == ("applied", -1, "raised ValueError: alone")
    assert b'"key":"b"' in clock.value
    assert b'"window_start":"2026-03-01T00:00:00Z"' in clock.value


def test_without_dead_letters_a_window_that_fails_says_which() -> None:
    flow = lt.Flow("failing")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    sink(keyed.window("applied", TEN).apply(half), "out", Seen)
    with pytest.raises(UserError, match='step "applied": raised ValueError: alone') as caught:
        flow.run_locally(events=[event(1, 0)])
    assert 'record at the clock of step "applied"' in caught.value.where


def test_a_stamp_that_is_no_time_is_refused() -> None:
    with pytest.raises(FlowError, match="expected a datetime with a time zone"):
        lt.stamped([event(1, 0)], by="number")


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Events of two keys in the order in which they came."""
    drawn = st.tuples(st.integers(0, 60), st.integers(0, 8), st.sampled_from("ab"))
    found = [
        event(number, at, at + way, key) for number, (at, way, key) in enumerate(draw(st.lists(drawn, max_size=25)))
    ]
    return sorted(found, key=lambda each: each.came)


@settings(deadline=None, max_examples=200)
@given(logs(), st.sampled_from([0, 2, 5]))
def test_sessions_are_what_is_connected_and_never_within_the_gap(log: list[Event], wait: int) -> None:
    gap = lt.seconds(6)
    flow = flow_of(lt.session(gap), time=lt.event_time("at", wait=lt.seconds(wait)))
    out = flow.run_locally(events=lt.stamped(log, by="came"))
    late = {each.number for each in out["late"]}
    connected: list[tuple[str, datetime, list[int]]] = []
    for key in "ab":
        mine = sorted((each for each in log if each.key == key and each.number not in late), key=lambda each: each.at)
        for before, each in zip([None, *mine], mine, strict=False):
            if before is None or each.at - before.at >= gap:
                connected.append((key, each.at, []))
            connected[-1][2].append(each.number)
    found = sorted((each.key, each.window_start, sorted(each.numbers)) for each in out["seen"])
    assert found == sorted((key, start, sorted(numbers)) for key, start, numbers in connected)
    for key in "ab":
        spans = sorted((each.window_start, each.window_end) for each in out["seen"] if each.key == key)
        assert all(one[1] <= other[0] for one, other in pairwise(spans))


def test_the_lateness_of_records_is_log_time_less_their_own() -> None:
    flow = flow_of(TEN, time=lt.event_time("at", wait=lt.seconds(5)))
    plan = compile_flow(flow, parallelism=1)
    log = [event(number, 100 - behind, 100) for number, behind in enumerate([0, 1, 2, 9])]
    messages = [
        Message(Position(0, offset), round(each.came.timestamp() * 1000), None, msgspec.json.encode(each))
        for offset, each in enumerate([*log, log[0]])
    ]
    messages.append(Message(Position(0, 9), messages[-1].timestamp, None, b"oops"))
    (found,) = lateness_of(plan, {"events": messages})
    assert (found.step, found.time, found.wait_ms, found.records, found.late) == ("windows", "at", 5_000, 5, 1)
    assert found.behind_ms == (1_000, 9_000, 9_000, 9_000)


def test_producers_whose_clocks_differ_make_timestamps_go_back_by_the_difference() -> None:
    """Two write partition 0 in turns, one of them 300 ms behind; one alone writes partition 1, ahead of our clock."""
    both = [Message(Position(0, at), at * 10 - 300 * (at % 2), None, b"", topic="in") for at in range(100, 200)]
    alone = [Message(Position(1, at), at * 10, None, b"", topic="in", partition=1) for at in range(100, 200)]
    log = [*both, *alone]
    assert datings_of({"one": log, "again": log}, {"in": "producer"}, 1_900) == [
        Dating("in-0", "producer", 100, 50, (290, 290, 290, 290), 80),
        Dating("in-1", "producer", 100, 0, (0, 0, 0, 0), 90),
    ]
    assert datings_of({"one": []}, {"in": "broker"}, 0) == []


# -- the law -----------------------------------------------------------------------------------------------------------


def sliding_then_tumbling(keyed: Any) -> None:
    windowed = keyed.window("w", lt.sliding(lt.seconds(6), lt.seconds(2)), time=lt.event_time("at", wait=lt.seconds(2)))
    sink(windowed.late, "late", Event)
    totals = windowed.aggregate(Total, total=lt.agg.count())
    sink(totals, "totals", Total)
    again = totals.key_by("window_start").window(
        "a", lt.tumbling(lt.seconds(4)), time=lt.event_time("window_start", wait=lt.seconds(7))
    )
    sink(again.late, "again-late", Total)
    sink(again.aggregate(Total, total=lt.agg.sum("total")), "again", Total)


def sessions(keyed: Any) -> None:
    windowed = keyed.window("w", lt.session(lt.seconds(3)), time=lt.event_time("at", wait=lt.seconds(2)))
    sink(windowed.late, "late", Event)
    sink(windowed.aggregate(Seen, numbers=lt.agg.collect("number")), "seen", Seen)


def log_time(keyed: Any) -> None:
    sink(keyed.window("w", lt.tumbling(lt.seconds(5))).aggregate(Seen, numbers=lt.agg.collect("number")), "seen", Seen)
    updated = keyed.window("u", lt.tumbling(lt.seconds(5)), emit="update")
    sink(updated.aggregate(Seen, numbers=lt.agg.collect("number")), "updated", Seen)


def asked(state: tuple[int, ...], each: Event) -> tuple[tuple[int, ...], list[Event]]:
    if each.number % 4 == 3:
        return (), [each]
    return (micros_of(each.at) + each.number % 7 * 1_000_000, each.number), []


def asks(state: tuple[int, ...]) -> datetime | None:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=state[0])


def called(state: tuple[int, ...], now: datetime) -> tuple[tuple[int, ...], list[Event]]:
    at, number = state
    again = () if number > 20 else (at + 700_000, number + 5)
    return again, [Event(str(number), number, now, now)]


def timers(keyed: Any) -> None:
    sink(
        keyed.flat_scan("t", asked, (), timer=asks, on_timer=called, ttl=lt.seconds(9), returns=Event), "called", Event
    )


LAW: list[Callable[[Any], None]] = [sliding_then_tumbling, sessions, log_time, timers]


@pytest.mark.parametrize("steps", LAW)
def test_what_stands_below_x_is_a_function_of_what_came_below_x(steps: Callable[[Any], None]) -> None:
    flow = lt.Flow("law")
    left, right = (flow.read(name, lt.kafka(name, lt.json(Event))) for name in ("left", "right"))
    steps(left.merge(right, name="both").key_by("key"))
    plan = compile_flow(flow, parallelism=1)
    sources = list(plan.sources())
    compared = 0
    for seed in range(100):
        dice = random.Random(seed)
        came: list[tuple[Order, Any, Any]] = []
        for front, source in enumerate(sources):
            log = [
                event(n, dice.randint(0, 40) + dice.choice([0, 0.5]), key=dice.choice("abc"))
                for n in range(dice.randint(0, 20))
            ]
            stamped = [lt.Stamped(each, each.at + timedelta(seconds=dice.choice([0, 0, 1, 2, 5]))) for each in log]
            came += [(order, source, record) for order, record in _labelled(front, stamped, plan.slack_ms)]
        came.sort(key=lambda each: each[0])
        x = micros_of(moment(dice.randint(0, 50))) // (plan.slack_ms * 1_000)
        whole, cut = (_written(plan, came, None), _written(plan, [each for each in came if each[0].tick < x], x - 1))
        below = {name: [each for each in items if each[0].tick < x] for name, items in whole.items()}
        assert below == cut, f"seed {seed}"
        compared += sum(map(len, below.values()))
    assert compared > 500


def _written(plan: Any, came: Any, until: int | None) -> dict[str, list[tuple[Order, Any]]]:
    run = Run(plan, until=until)
    for order, source, record in came:
        run.take(source, Item(record, order, Message(Position(order.front, order.sequence), 0, None, b"")))
    run.finish()
    return {vertex.name: [(each.order, each.record) for each in run.written[vertex.id]] for vertex in plan.sinks()}
