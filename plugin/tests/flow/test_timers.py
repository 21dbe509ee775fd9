"""Timers in a flow: what is refused and why, what the plan says of them, and the delicate moments of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lowtide as lt
from lowtide.core.operators.faults.failure import UserError
from lowtide.errors import FlowError
from lowtide.flow.plan.check import check_flow
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.plan_pickle import dump_plan, load_plan
from lowtide.local import timers
from lowtide.local.run import run_plan


@dataclass(frozen=True)
class Event:
    key: str
    number: int
    at: datetime
    wants: datetime | None = None


@dataclass(frozen=True)
class Asked:
    number: int = 0
    until: datetime | None = None


@dataclass(frozen=True)
class Said:
    number: int
    at: datetime


BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def event(number: int, at: float, wants: float | None, key: str = "a") -> Event:
    return Event(key, number, moment(at), None if wants is None else moment(wants))


def on_event(asked: Asked, event: Event) -> tuple[Asked, list[Said]]:
    if event.number < 0:
        raise ValueError("below zero")
    return Asked(event.number, event.wants), [Said(-event.number, event.at)]


def asks(asked: Asked) -> datetime | None:
    return asked.until


def on_timer(asked: Asked, now: datetime) -> tuple[Asked, list[Said]]:
    return Asked(), [Said(asked.number, now)]


def stands(asked: Asked, now: datetime) -> tuple[Asked, list[Said]]:
    return asked, []


def goes_on(asked: Asked, now: datetime) -> tuple[Asked, list[Said]]:
    return replace(asked, until=now + lt.seconds(1)), [Said(asked.number, now)]


def a_flow(
    function: Callable[..., Any] = on_timer,
    timer: Callable[..., Any] = asks,
    letters: bool = False,
    scan: Callable[..., Any] = on_event,
    **rest: Any,
) -> lt.Flow:
    flow = lt.Flow("timers", dead_letters=lt.kafka("letters", lt.raw()) if letters else None)
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    said = keyed.flat_scan("asked", scan, Asked(), timer=timer, on_timer=function, **rest)
    said.write("said", lt.kafka("said", lt.json(Said)))
    return flow


def run(flow: lt.Flow, *events: Event, **rest: Any) -> list[tuple[int, float]]:
    """What is said, with its moment in seconds since the beginning."""
    out = flow.run_locally(events=lt.stamped(events, by="at"), **rest)
    return [(said.number, (said.at - BEGAN) / lt.seconds(1)) for said in out["said"]]


# -- what happens when -------------------------------------------------------------------------------------------------


def test_a_timer_fires_before_the_records_of_its_tick() -> None:
    assert run(a_flow(), event(1, 0, 5), event(2, 5, None)) == [(-1, 0), (1, 5), (-2, 5)]
    assert run(a_flow(), event(1, 0, 5.001), event(2, 5.001, None)) == [(-1, 0), (-2, 5.001)]  # Its tick began at 5 s.


def test_a_timer_in_the_past_fires_one_tick_on() -> None:
    assert run(a_flow(), event(1, 9, 5), event(2, 9.001, 20), event(3, 9.002, None)) == [
        (-1, 9),
        (-2, 9.001),
        (-3, 9.002),
    ]
    assert run(a_flow(), event(1, 9, 5), event(3, 9.002, None)) == [(-1, 9), (1, 5), (-3, 9.002)]


def test_what_is_asked_for_takes_the_place_of_what_was_asked_for_before() -> None:
    assert run(a_flow(), event(1, 0, 5), event(2, 1, 7)) == [(-1, 0), (-2, 1), (2, 7)]
    assert run(a_flow(), event(1, 0, 5), event(2, 1, None)) == [(-1, 0), (-2, 1)]


def test_keys_of_one_tick_are_called_in_the_order_of_their_moments() -> None:
    plan = compile_flow(a_flow(), units=1, parallelism=1)
    events = [event(1 + place, 0, 5.0009 - place / 10_000, key=key) for place, key in enumerate("cadbegfh")]
    said: list[Any] = run_plan(plan, {"events": lt.stamped(events, by="at")})["said"]
    assert [each.number for each in said[len(events) :]] == [8, 7, 6, 5, 4, 3, 2, 1]


def test_what_is_forgotten_is_not_called() -> None:
    assert run(a_flow(ttl=lt.seconds(5)), event(1, 0, 5)) == [(-1, 0)]
    assert run(a_flow(ttl=lt.seconds(5)), event(1, 0, 4.998)) == [(-1, 0), (1, 4.998)]


def test_a_call_of_time_keeps_a_key_as_a_record_does() -> None:
    flow = a_flow(goes_on, ttl=lt.seconds(2))
    assert run(flow, event(1, 0, 1), until=moment(4)) == [(-1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]


def test_a_record_that_fails_leaves_the_timer_as_it_was() -> None:
    assert run(a_flow(letters=True), event(1, 0, 5), event(-1, 2, 3)) == [(-1, 0), (1, 5)]
    # The state has been forgotten when the record comes, and so has its timer.
    forgetting = a_flow(letters=True, ttl=lt.seconds(2))
    assert run(forgetting, event(1, 0, 5), event(-1, 4, 3)) == [(-1, 0)]


def test_the_initial_state_has_no_timer_whatever_the_function_says() -> None:
    flow = a_flow(timer=lambda asked: moment(100 + asked.number))
    assert run(flow, event(0, 0, None)) == [(0, 0)]
    assert run(flow, event(1, 0, None)) == [(-1, 0), (1, 101)]


def test_time_stands_still_without_stamps_and_then_goes_to_its_end() -> None:
    out = a_flow().run_locally(events=[event(1, 0, 5), event(2, 0, 9)])
    assert out["said"] == [Said(-1, BEGAN), Said(-2, BEGAN), Said(2, moment(9))]


def test_until_leaves_open_what_is_due_later() -> None:
    assert run(a_flow(), event(1, 0, 5), until=moment(4.9)) == [(-1, 0)]


def left(asked: Asked) -> list[Said]:
    return [Said(asked.number, BEGAN)]


def leaving(scan: Callable[..., Any] = on_event, on_forgotten: Callable[..., Any] = left, **rest: Any) -> lt.Flow:
    flow = lt.Flow("leaving", dead_letters=lt.kafka("letters", lt.raw()))
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    said = keyed.flat_scan("asked", scan, Asked(), on_forgotten=on_forgotten, **{"ttl": lt.seconds(5), **rest})
    said.write("said", lt.kafka("said", lt.json(Said)))
    return flow


def test_the_end_of_a_key_s_life_is_announced_before_the_records_of_its_tick() -> None:
    assert run(leaving(), event(1, 0, None), event(2, 5, None, "b"), event(3, 5, None)) == [
        (-1, 0), (1, 0), (-2, 5), (-3, 5), (3, 0), (2, 0),
    ] or run(leaving(), event(1, 0, None), event(2, 5, None, "b"), event(3, 5, None)) == [
        (-1, 0), (1, 0), (-2, 5), (-3, 5), (2, 0), (3, 0),
    ]  # fmt: skip
    assert run(leaving(), event(1, 0, None), event(2, 4.998, None), until=moment(9)) == [(-1, 0), (-2, 4.998)]


def test_a_record_that_fails_keeps_a_key_alive() -> None:
    assert run(leaving(), event(1, 0, None), event(-1, 3, None), until=moment(7.9)) == [(-1, 0)]
    assert run(leaving(), event(1, 0, None), event(-1, 3, None), until=moment(8.1)) == [(-1, 0), (1, 0)]


def test_a_key_with_the_initial_state_leaves_in_silence() -> None:
    assert run(leaving(), event(0, 0, None)) == [(0, 0)]


def test_a_state_to_begin_with_counts_from_the_key_s_next_record() -> None:
    begin = {"asked": {"a": Asked(7)}}
    assert run(leaving(), states=begin) == []
    assert run(leaving(), event(1, 0, None, "b"), event(2, 9, None), states=begin)[-1] == (2, 0)


def test_what_fails_at_the_end_of_a_key_s_life_names_its_function() -> None:
    out = leaving(on_forgotten=lambda asked: [1]).run_locally(events=lt.stamped([event(1, 0, None)], by="at"))
    (letter,) = out["dead-letters"]
    assert "on_forgotten= gave int, expected Said" in letter.error
    assert letter.timestamp == moment(5).timestamp() * 1000


@pytest.mark.parametrize(
    ("rest", "said"), [({"ttl": None}, "without ttl="), ({"timer": asks, "on_timer": on_timer}, "beside a timer")]
)
def test_only_a_key_that_is_forgotten_by_time_is_announced(rest: Any, said: str) -> None:
    with pytest.raises(FlowError, match=f"flat_scan has on_forgotten= {said}"):
        leaving(**rest)


# -- what fails --------------------------------------------------------------------------------------------------------


def test_a_timer_that_does_not_move_fails_and_names_its_key() -> None:
    with pytest.raises(UserError, match="the timer of key 'a' fired for 2026-03-01 00:00:05") as error:
        run(a_flow(stands), event(1, 0, 5))
    assert 'the clock of step "asked"' in error.value.where
    out = a_flow(stands, letters=True).run_locally(events=lt.stamped([event(1, 0, 5), event(2, 8, 9)], by="at"))
    first, second = out["dead-letters"]
    assert (first.vertex, first.position.front, first.timestamp) == ("asked", -1, moment(5).timestamp() * 1000)
    assert first.value == (
        b'{"key":"a","time":"2026-03-01T00:00:05Z","state":{"number":1,"until":"2026-03-01T00:00:05Z"}}'
    )
    assert b'"number":2' in second.value


def test_a_state_is_dropped_when_time_calls_in_vain() -> None:
    def fails(asked: Asked, now: datetime) -> tuple[Asked, list[Said]]:
        raise LookupError(now)

    seen = []

    def sees(asked: Asked, event: Event) -> tuple[Asked, list[Said]]:
        seen.append(asked)
        return on_event(asked, event)

    run(a_flow(fails, letters=True, scan=sees), event(1, 0, 5), event(2, 6, None))
    assert seen == [Asked(), Asked()]


@pytest.mark.parametrize(
    ("timer", "said"),
    [
        (lambda asked: asked.number, "timer= gave int, expected datetime or None"),
        (lambda asked: datetime(2026, 3, 1), "which has no time zone"),
        (lambda asked: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_a_record_whose_timer_is_none_fails(timer: Any, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        run(a_flow(timer=timer), event(1, 0, 5))
    assert run(a_flow(timer=timer, letters=True), event(1, 0, 5)) == []


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda asked, now: (Asked(), [1]), "on_timer= gave int, expected Said"),
        (lambda asked, now: (None, []), "returned the state None"),
        (lambda asked, now: Asked(), "cannot unpack"),
    ],
)
def test_a_call_of_time_gives_a_state_and_outputs(function: Any, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        run(a_flow(function), event(1, 0, 5))


def test_a_timer_that_never_ends_needs_an_until(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "LIMIT", 10)
    with pytest.raises(FlowError, match='step "asked": timers have called its keys 10 times since the last record'):
        run(a_flow(goes_on), event(1, 0, 1))
    # Between records it goes on as far as they do.
    assert len(run(a_flow(goes_on), event(1, 0, 1), event(2, 30, None))) == 32


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "other"), [("timer", "on_timer"), ("on_timer", "timer")])
def test_half_a_timer_is_refused(word: str, other: str) -> None:
    keyed: Any = lt.Flow("f").read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    with pytest.raises(FlowError, match=f"flat_scan has {word}= without {other}="):
        keyed.flat_scan("asked", on_event, Asked(), **{word: asks})


def to_int(asked: Asked) -> int:
    return asked.number


def of_said(said: Said) -> datetime | None:
    return said.at


def a_pair_too_many(asked: Asked, now: datetime) -> tuple[Asked, list[Said], int]:
    return asked, [], 0


def events_of(asked: Asked, now: datetime) -> tuple[Asked, list[Event]]:
    return asked, []


def other_state(asked: Asked, now: datetime) -> tuple[Said, list[Said]]:
    return Said(0, now), []


def takes_one(asked: Asked) -> tuple[Asked, list[Said]]:
    return asked, []


def events_left(asked: Asked) -> list[Event]:
    return []


def at_an_int(asked: Asked, now: int) -> tuple[Asked, list[Said]]:
    return asked, []


REFUSED: list[tuple[lt.Flow, str]] = [
    (a_flow(timer=to_int), "timer= to_int must return datetime | None, its annotation says int"),
    (a_flow(timer=of_said), "timer= of_said takes Said, but the state is Asked"),
    (a_flow(a_pair_too_many), "on_timer= a_pair_too_many must return tuple[State, list[Output]]"),
    (a_flow(events_of), "on_timer= events_of gives Event, but the step's function gives Said"),
    (a_flow(other_state), "on_timer= other_state returns the state Said, but the step keeps Asked"),
    (a_flow(takes_one), "on_timer= takes_one must take two arguments, state and moment"),
    (a_flow(at_an_int), "on_timer= at_an_int takes int, but datetime arrives"),
    (leaving(on_forgotten=of_said), "on_forgotten= of_said takes Said, but the state is Asked"),
    (leaving(on_forgotten=to_int), "on_forgotten= to_int must return an iterable such as list[Record]"),
    (leaving(on_forgotten=events_left), "on_forgotten= events_left gives Event, but the step's function gives Said"),
    (a_flow(ttl=timedelta(microseconds=1)), "ttl=1 us is shorter than a tick"),
]


@pytest.mark.parametrize(("flow", "said"), REFUSED)
def test_check_says_what_does_not_fit(flow: lt.Flow, said: str) -> None:
    (finding,) = check_flow(flow)
    assert said in finding.message


def test_a_timer_cannot_stand_in_a_loop() -> None:
    def body(events: Any) -> Any:
        said = events.flat_scan("asked", on_event, Asked(), timer=asks, on_timer=on_timer)
        return said.map(lambda said: event(said.number, 0, None), name="back", returns=Event)

    flow = lt.Flow("loop")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    keyed.loop("turns", body, lambda event: False, limit_turns=2).write("out", lt.kafka("out", lt.json(Event)))
    assert any(
        "a timer cannot be in the loop 'turns': it is due later than one turn" in finding.message
        for finding in check_flow(flow)
    )


def test_functions_of_timers_that_cannot_be_sent_to_workers_are_named() -> None:
    lock = __import__("threading").Lock()

    def locked(asked: Asked) -> datetime | None:
        return asked.until if lock else None

    (finding,) = check_flow(a_flow(timer=locked))
    assert "locked > captured 'lock'" in finding.message


def test_the_plan_says_that_a_step_has_a_timer_and_travels() -> None:
    plan = compile_flow(a_flow(), parallelism=2)
    assert "with the state Asked, with a timer" in explain(plan)
    assert "with outputs for a key that is, forgotten after" in explain(compile_flow(leaving(), parallelism=2))
    assert plan.clocked == {vertex.id for vertex in plan.vertices if vertex.name == "asked"}
    again = load_plan(dump_plan(plan))
    out = run_plan(again, {"events": lt.stamped([event(1, 0, 5)], by="at")})
    assert [repr(each) for each in out["said"]] == [repr(Said(-1, moment(0))), repr(Said(1, moment(5)))]
