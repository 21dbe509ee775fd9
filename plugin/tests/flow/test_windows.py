"""Windows of time in a flow: which moments lie in which, what is refused and why, and what the plan says of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide as lt
from lowtide.errors import FlowError
from lowtide.flow.plan.check import check_flow
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.plan_pickle import dump_plan, load_plan
from lowtide.flow.steps import windows
from lowtide.flow.steps.windows import longest_us, spans_of
from lowtide.flow.time.moments import micros, micros_of, moment, tick_due
from lowtide.flow.types.findings import FlowRefused
from lowtide.local.run import run_plan


@dataclass(frozen=True)
class Event:
    key: str
    number: int
    at: datetime
    seen: datetime | None = None


@dataclass(frozen=True)
class Count:
    key: str
    window_start: datetime
    count: int


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


durations = st.integers(1, 10**9).map(lambda number: timedelta(microseconds=number))
moments = st.datetimes().map(lambda each: each.replace(tzinfo=UTC))


@given(moments, st.integers(1, 10**6))
def test_moments_come_back_and_are_due_once_all_of_a_tick_is_later(when: datetime, slack_us: int) -> None:
    assert moment(micros_of(when)) == when
    tick = tick_due(micros_of(when), slack_us)
    assert tick * slack_us >= micros_of(when) > (tick - 1) * slack_us


@given(moments, durations, st.integers(1, 50), durations)
def test_a_moment_lies_in_just_those_windows_that_contain_it(
    when: datetime, every: timedelta, times: int, offset: timedelta
) -> None:
    size, us = every * times - every / 3, micros_of(when)
    cut = lt.sliding(max(size, every), every, offset=offset)
    spans = list(spans_of(cut)(us))
    first = micros(offset) + (us - micros(offset)) // micros(every) * micros(every)
    around = [first + place * micros(every) for place in range(-times - 2, 3)]
    assert spans == [(start, start + micros(cut.size)) for start in around if start <= us < start + micros(cut.size)]
    assert all(end - us <= longest_us(cut) for _, end in spans)
    (one,) = spans_of(lt.tumbling(every, offset=offset))(us)
    assert one == (first, first + micros(every))


@pytest.mark.parametrize(
    ("kind", "cut"),
    [
        ("_tumbling", lt.tumbling(lt.millis(40))),
        ("_sliding", lt.sliding(lt.millis(60), lt.millis(20))),
        ("_calendar", lt.calendar("day", "UTC")),
    ],
)
@pytest.mark.parametrize("spans", [((0, 40), (40, 80)), ((40, 80),), ((0, 40),)])
def test_no_moment_gets_a_window_that_it_does_not_lie_in(
    kind: str, cut: Any, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, kind, lambda *_: lambda _at: spans)
    with pytest.raises(AssertionError, match="is not in its windows of"):
        spans_of(cut)(spans[0][1] if spans[0][0] == 0 else 39)


@given(moments, st.sampled_from(["day", "week", "month"]), st.sampled_from(["Europe/Berlin", "America/Havana", "UTC"]))
def test_calendar_windows_begin_at_midnight_and_follow_each_other(when: datetime, unit: Any, zone: str) -> None:
    cut = spans_of(lt.calendar(unit, zone))
    ((start, end),) = cut(micros_of(when))
    assert start <= micros_of(when) < end
    assert end - micros_of(when) <= longest_us(lt.calendar(unit, zone))
    ((following, _),) = cut(end)
    assert following == end
    if start < micros_of(datetime.min.replace(tzinfo=UTC)):
        return  # East of Greenwich the first day begins in a year before the first one, which datetime lacks.
    local = moment(start).astimezone(ZoneInfo(zone))
    assert unit == "day" or (local.weekday() == 0 if unit == "week" else local.day == 1)


def test_a_day_has_23_hours_when_clocks_go_forward() -> None:
    cut = spans_of(lt.calendar("day", "Europe/Berlin"))
    hours = [
        (end - start) // 3_600_000_000 for day in (28, 29) for start, end in cut(micros_of(at(f"2026-03-{day}T12:00")))
    ]
    assert hours == [24, 23]
    ((start, end),) = cut(micros_of(at("2026-10-25T12:00")))
    assert end - start == 25 * 3_600_000_000


Refused = Callable[[], object]

WORDS: dict[str, tuple[Refused, str]] = {
    "a size of zero": (lambda: lt.tumbling(timedelta(0)), "size 0:00:00 is out of range"),
    "a number": (lambda: lt.tumbling(5), "takes a duration as its size, found 5"),  # type: ignore[arg-type]
    "an endless gap": (lambda: lt.session(timedelta(days=10**6)), "gap .* is out of range"),
    "gaps between windows": (lambda: lt.sliding(lt.seconds(1), lt.seconds(2)), "leave gaps between them"),
    "too many windows": (lambda: lt.sliding(lt.hours(1), lt.seconds(1)), "in 3600 windows, the limit is 1000"),
    "an unknown zone": (lambda: lt.calendar("day", "Europe/Nowhere"), "unknown time zone 'Europe/Nowhere'"),
    "an unknown unit": (lambda: lt.calendar("year", "UTC"), "found 'year'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", WORDS)
def test_windows_that_cannot_be_are_refused_where_they_are_written(case: str) -> None:
    make, message = WORDS[case]
    with pytest.raises(FlowError, match=message) as caught:
        make()
    assert __file__ in caught.value.where


def keyed() -> Any:
    return lt.Flow("f").read("in", lt.kafka("in", lt.json(Event))).key_by("key")


FIVE = lt.tumbling(lt.minutes(5))
SINK = lt.kafka("late", lt.json(Event))

SECOND = lt.event_time("at", wait=lt.seconds(1))
WRITTEN = (
    r"unexpected keyword argument 'wait'\n.*\n.*: write window\(.* time=lt\.event_time\(\"at\", wait=lt\.seconds\(1\)\)"
)

CALLS: dict[str, tuple[Callable[[Any], object], str]] = {
    "a column as its time": (
        lambda s: s.window("w", FIVE, time="at"),
        r"found 'at'\n.*\n.*: write time=lt\.event_time\(",
    ),
    "a pair of times": (
        lambda s: s.window("w", FIVE, time=(SECOND, SECOND)),
        r"time= takes an event time, found \(EventTime",
    ),
    "a wait beside the time": (lambda s: s.window("w", FIVE, time="at", wait=lt.seconds(1)), WRITTEN),
    "another late": (lambda s: s.window("w", FIVE, late="keep"), WRITTEN.replace("wait", "late", 1)),
    "no windows at all": (lambda s: s.window("w"), r"window missing a required .*\n.*\n.*: write window\("),
    "no windows": (lambda s: s.window("w", lt.minutes(5)), "expected windows, found"),
    "another emit": (lambda s: s.window("w", FIVE, emit="now"), 'takes "close" or "update"'),
    "updates of sessions": (
        lambda s: s.window("w", lt.session(lt.seconds(1)), emit="update"),
        "sessions have no updates",
    ),
    "no name": (lambda s: s.window(FIVE, FIVE), "takes a name first"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_window_that_means_nothing_is_refused(case: str) -> None:
    call, message = CALLS[case]
    with pytest.raises(FlowError, match=message):
        call(keyed())


def test_windows_need_a_key_and_give_one_result() -> None:
    with pytest.raises(FlowError, match="window works per key"):
        lt.Flow("f").read("in", lt.kafka("in", lt.json(Event))).window("w", FIVE)  # type: ignore[attr-defined]
    windowed = keyed().window("w", FIVE)
    windowed.reduce(max)
    with pytest.raises(FlowError, match="already have a result"):
        windowed.aggregate(Count, count=lt.agg.count())


def larger(one: Event, other: Event) -> Event:
    return one if one.number >= other.number else other


def counted(state: int, event: Event) -> int:
    return state + 1


def shown(window: lt.Window, state: int) -> Count:
    return Count(window.key[0], window.start, state)


def of_text(window: lt.Window, state: str) -> Count:
    return Count(state, window.start, 0)


def listed(window: lt.Window, events: tuple[Event, ...]) -> list[Count]:
    return [Count(event.key, window.start, 1) for event in events]


def of_counts(window: lt.Window, counts: tuple[Count, ...]) -> list[Count]:
    return list(counts)


def unsaid(window, events):  # type: ignore[no-untyped-def]
    return []


Make = Callable[[Any], Any]
SESSIONS = lt.session(lt.seconds(5))


def timed(stream: Any, column: str = "at", late: Any = "drop") -> Any:
    return stream.window("w", FIVE, time=lt.event_time(column, wait=lt.seconds(1), late=late))


def taken_in_log_time(stream: Any) -> Any:
    windowed = stream.window("w", FIVE)
    windowed.late.write("l", SINK)
    return windowed.reduce(larger)


FLOWS: dict[str, tuple[Make, str]] = {
    "nobody takes what is late": (lambda s: timed(s, late=None).reduce(larger), "nothing takes its late records"),
    "dropped and taken": (lambda s: [w := timed(s), w.late.write("l", SINK), w.reduce(larger)][-1], "leave out one"),
    "late in log time": (taken_in_log_time, "for which nothing is late"),
    "no such column": (lambda s: timed(s, "when").reduce(larger), "Event has no column 'when'"),
    "no time": (lambda s: timed(s, "number").reduce(larger), "event time 'number' is int, but must be a datetime"),
    "perhaps no time": (lambda s: timed(s, "seen").reduce(larger), "never None; replace None in a map first"),
    "sessions without merge": (
        lambda s: s.window("w", SESSIONS).fold(counted, 0, shown),
        "counted folds sessions, which can merge",
    ),
    "sessions of an aggregate without merge": (
        lambda s: s.window("w", SESSIONS).aggregate(Count, count=lt.Aggregate(0, counted)),
        "give the aggregate count a merge=",
    ),
    "a result nobody fills": (
        lambda s: timed(s).aggregate(Count, number=lt.agg.count()),
        "Count has no field 'number'",
    ),
    "a state of another type": (lambda s: timed(s).fold(counted, "", shown), "keeps int, but initial is ''"),
    "a finish of another state": (lambda s: timed(s).fold(counted, 0, of_text), "keeps int, but finish= takes str"),
    "a function of other records": (lambda s: timed(s).apply(of_counts), "of_counts takes tuple\\[Count, ...\\]"),
    "an unsaid type": (lambda s: timed(s).apply(unsaid), "unsaid does not say what its windows give"),
    "a reduce of others": (lambda s: timed(s).reduce(counted), "counted must take two Event and return one"),
}


@pytest.mark.parametrize("case", FLOWS)
def test_a_flow_whose_windows_do_not_fit_is_refused(case: str) -> None:
    make, message = FLOWS[case]
    stream = keyed()
    make(stream).write("out", SINK)
    findings = "\n".join(map(str, check_flow(stream._flow)))
    assert re.search(message, findings), findings


def test_a_window_without_a_result_is_refused() -> None:
    stream = keyed()
    stream.window("w", FIVE)
    findings = " ".join(map(str, check_flow(stream._flow)))
    assert "its windows have no result; add .aggregate(...)" in findings


SHORT: dict[str, Any] = {
    "size": lambda s: s.window("w", lt.tumbling(lt.millis(5))),
    "every": lambda s: s.window("w", lt.sliding(lt.seconds(1), lt.millis(5))),
    "gap": lambda s: s.window("w", lt.session(lt.millis(5))),
    "wait": lambda s: s.window("w", FIVE, time=lt.event_time("at", wait=lt.millis(5), late="drop")),
}


@pytest.mark.parametrize("word", SHORT)
def test_windows_and_waits_shorter_than_a_tick_are_refused(word: str) -> None:
    stream = keyed()
    SHORT[word](stream).reduce(larger).write("out", SINK)
    assert compile_flow(stream._flow, parallelism=1, slack_ms=5).levels == 2
    with pytest.raises(FlowRefused, match=f"{word}=5 ms is shorter than a tick, which is 10 ms"):
        compile_flow(stream._flow, parallelism=1, slack_ms=10)


def test_windows_stand_in_no_loop() -> None:
    def body(inside: Any) -> Any:
        return inside.window("w", FIVE).reduce(larger)

    stream = keyed()
    stream.loop("again", body, bool, limit_turns=2).write("out", SINK)
    assert "a window cannot be in the loop 'again'" in " ".join(map(str, check_flow(stream._flow)))


def a_flow() -> Any:
    stream = keyed()
    windowed = stream.window("w", FIVE, time=lt.event_time("at", wait=lt.seconds(90)))
    windowed.late.write("late", SINK)
    windowed.aggregate(Count, count=lt.agg.count()).write("out", lt.kafka("out", lt.json(Count)))
    return stream._flow


def test_a_plan_says_what_waits_and_who_takes_what_is_late() -> None:
    plan = compile_flow(a_flow(), parallelism=1)
    window = next(vertex for vertex in plan.vertices if vertex.name == "w")
    late = plan.late_of(window.id)
    assert late is not None
    assert [child.name for child in plan.children(window.id)] == ["out"]
    assert (late.name, late.takes, late.gives, window.gives) == ("w/late", Event, Event, Count)
    assert window in plan.needs_tracking()
    assert "tumbling(5 min) by at, waits 90 s for it: Event of in/by-key -> Count" in explain(plan)
    assert "what is late: Event of w -> Event" in explain(plan)


def test_a_plan_with_windows_comes_back_from_its_bytes() -> None:
    plan = load_plan(dump_plan(compile_flow(a_flow(), parallelism=1)))
    out = run_plan(plan, {"in": [Event("a", 1, at("2026-03-01T10:01"))]})
    assert out["out"] == [Count("a", at("2026-03-01T10:00"), 1)]
