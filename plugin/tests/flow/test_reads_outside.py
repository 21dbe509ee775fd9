"""Functions that read a clock, random numbers or the environment are named by `lowtide check`, with the way out."""

from __future__ import annotations

import functools
import os
import random
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from random import choice as chosen
from typing import Any

import pytest

import lowtide as lt
from lowtide.flow.plan.check import advice
from lowtide.flow.plan.compiler import compile_flow


@dataclass(frozen=True)
class Event:
    key: str
    number: int
    at: datetime


def stamped(event: Event) -> Event:
    return replace(event, at=datetime.now(UTC))


def timed(event: Event) -> Event:
    return replace(event, number=int(time.time()))


def dated(event: Event) -> Event:
    return replace(event, key=str(date.today()))


def diced(event: Event) -> Event:
    return replace(event, number=random.randrange(6))


def drawn(event: Event) -> Event:
    return replace(event, key=chosen("ab"))


def secret(event: Event) -> Event:
    return replace(event, key=secrets.token_hex())


def named(event: Event) -> Event:
    return replace(event, key=str(uuid.uuid4()))


def placed(event: Event) -> Event:
    return replace(event, key=os.environ.get("PLACE", "") + str(os.getenv("TOWN")))


def deeply(event: Event) -> Event:
    return stamped(event)


def kept(event: Event) -> Event:
    """Its own names, a seed of its own and the parts of a time that it has are no reads."""
    time = event.at
    dice = random.Random(event.number)
    return replace(event, number=dice.randrange(time.day), key=str(uuid.uuid5(uuid.NAMESPACE_DNS, event.key)))


def with_rest(rest: int, event: Event) -> Event:
    return replace(event, number=time.monotonic_ns() + rest)


def advised(function: Callable[..., Any]) -> str:
    flow = lt.Flow("reads")
    events = flow.read("events", lt.kafka("events", lt.json(Event)))
    events.map(function, name="step").write("out", lt.kafka("out", lt.json(Event)))
    return "\n".join(finding.message for finding in advice(compile_flow(flow, parallelism=1)))


@pytest.mark.parametrize(
    ("function", "reads", "way_out"),
    [
        (stamped, "stamped reads datetime.now", "lt.Timestamp(), or give flat_scan a timer="),
        (timed, "timed reads time.time", "lt.Timestamp()"),
        (dated, "dated reads date.today", "lt.Timestamp()"),
        (diced, "diced reads random.randrange", "random.Random(seed)"),
        (drawn, "drawn reads chosen", "random.Random(seed)"),
        (secret, "secret reads secrets.token_hex", "random.Random(seed)"),
        (named, "named reads uuid.uuid4", "random.Random(seed)"),
        (placed, "placed reads os.environ", "where the flow is defined"),
        (placed, "placed reads os.getenv", "where the flow is defined"),
        (deeply, "deeply reads datetime.now", "lt.Timestamp()"),
        (functools.partial(with_rest, 3), "reads time.monotonic_ns", "lt.Timestamp()"),
    ],
)
def test_what_a_function_reads_beside_its_record_is_named(
    function: Callable[..., Any], reads: str, way_out: str
) -> None:
    said = advised(function)
    assert reads in said
    assert way_out in said


def test_what_repeats_is_not_named() -> None:
    assert advised(kept) == ""


def test_functions_of_timers_and_windows_are_looked_at() -> None:
    flow = lt.Flow("reads")
    keyed = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")

    def finish(window: lt.Window, count: int) -> Event:
        return Event("", count, datetime.now(UTC))

    def asks(count: int) -> datetime | None:
        return datetime.now(UTC)

    def counted(count: int, event: Event) -> int:
        return count + 1

    def on_event(count: int, event: Event) -> tuple[int, list[Event]]:
        return count + 1, []

    def on_timer(count: int, now: datetime) -> tuple[int, list[Event]]:
        return 0, []

    folded = keyed.window("w", lt.tumbling(lt.minutes(1))).fold(counted, 0, finish)
    called = keyed.flat_scan("t", on_event, 0, timer=asks, on_timer=on_timer)
    folded.merge(called, name="all").write("out", lt.kafka("out", lt.json(Event)))
    found = [(finding.step, finding.message.partition(",")[0]) for finding in advice(compile_flow(flow, parallelism=1))]
    assert [(step, text.rpartition(".")[0].rpartition(">.")[2]) for step, text in found] == [
        ("w", "finish reads datetime"),
        ("t", "asks reads datetime"),
    ]
