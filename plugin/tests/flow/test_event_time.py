"""Event time as a value: what it refuses, and the steps that windows and joins make of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

import lowtide as lt
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.steps.steps import Join, JoinAsof, WindowBy

WAIT = lt.seconds(1)
FIVE = lt.tumbling(lt.minutes(5))


@dataclass(frozen=True)
class Event:
    key: str
    user: str
    at: datetime
    seen: datetime


def pair(one: Event, other: Event) -> Event:
    return one


def maybe(one: Event, other: Event | None) -> Event:
    return one


CENTURY = timedelta(days=36_525)

REFUSED: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "no column": (lambda make: make(5, wait=WAIT), "takes the name of a column, found 5", "write lt.event_time("),
    "no wait": (lambda make: make("at"), "event_time missing a required", "write lt.event_time("),
    "no duration": (
        lambda make: make("at", wait=5),
        "event_time 'at': wait= takes a duration of 0 to 100 years, found 5",
        "write wait=lt.minutes(1)",
    ),
    "a negative wait": (lambda make: make("at", wait=-WAIT), "wait= takes a duration of 0 to 100 years", "write wait="),
    "an endless wait": (lambda make: make("at", wait=CENTURY + WAIT), "wait= takes a duration", "write wait="),
    "a negative look ahead": (lambda make: make("at", wait=WAIT, ahead=-WAIT), "ahead= takes", "write ahead="),
    "an endless look ahead": (lambda make: make("at", wait=WAIT, ahead=CENTURY + WAIT), "ahead= takes", "write ahead="),
    "another late": (
        lambda make: make("at", wait=WAIT, late="keep"),
        "event_time 'at': late= takes \"drop\" or nothing, found 'keep'",
        "take the late records by .late instead",
    ),
    "an argument of another name": (
        lambda make: make("at", wait=WAIT, delay=WAIT),
        "argument 'delay'",
        "write lt.event_time(",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_event_time_that_means_nothing_is_refused_where_it_is_made(case: str) -> None:
    call, what, way_out = REFUSED[case]
    with pytest.raises(FlowError, match=re.escape(what)) as caught:
        call(lt.event_time)
    assert __file__ in caught.value.where
    assert caught.value.way_out.startswith(way_out)


def test_an_event_time_is_a_value() -> None:
    clock = lt.event_time("at", wait=WAIT)
    assert clock == lt.event_time("at", wait=WAIT, ahead=lt.days(1))
    assert len({clock, lt.event_time("at", wait=WAIT), replace(clock, late="drop")}) == 2
    assert lt.event_time("at", wait=timedelta(0), ahead=CENTURY).ahead == CENTURY
    with pytest.raises(FrozenInstanceError):
        clock.wait = lt.seconds(2)  # type: ignore[misc]


def test_windows_and_joins_make_of_it_what_their_steps_hold() -> None:
    flow = lt.Flow("f")
    one, other = (flow.read(name, lt.kafka(name, lt.json(Event))).key_by("key") for name in ("one", "other"))
    clock = lt.event_time("at", wait=WAIT, ahead=lt.hours(2), late="drop")
    seen = replace(clock, column="seen", wait=lt.seconds(3))
    made = {
        "w": one.window("w", FIVE, time=clock, emit="update").reduce(pair),
        "log": one.window("log", FIVE).reduce(pair),
        "join": one.join("join", other, pair, before=lt.hours(1), time=clock),
        "pair": one.join("pair", other, pair, after=lt.hours(1), time=(clock, seen)),
        "near": one.join("near", other, maybe, after=lt.hours(1), how="left"),
        "asof": one.join_asof("asof", other, maybe, time=(clock, replace(clock, column="seen")), back=lt.hours(1)),
    }
    for name, stream in made.items():
        stream.write(f"{name}-out", lt.kafka(name, lt.json(Event)))
    steps: dict[str, Any] = {each.name: each.step for each in compile_flow(flow, parallelism=1).vertices}
    zero, hour, two_hours, day = timedelta(0), lt.hours(1), lt.hours(2), lt.days(1)
    assert replace(steps["w"], result=None) == WindowBy(FIVE, "at", WAIT, two_hours, "drop", "update")
    assert replace(steps["log"], result=None) == WindowBy(FIVE, None, zero, day, None, "close")
    assert [steps[name] for name in ("join", "pair", "near", "asof")] == [
        Join(pair, "inner", hour, zero, ("at", "at"), (WAIT, WAIT), two_hours, "drop"),
        Join(pair, "inner", zero, hour, ("at", "seen"), (WAIT, lt.seconds(3)), two_hours, "drop"),
        Join(maybe, "left", zero, hour, None, (zero, zero), day),
        JoinAsof(maybe, "left", hour, zero, ("at", "seen"), (WAIT, WAIT), two_hours, "drop"),
    ]
