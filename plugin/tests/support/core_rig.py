"""Workers' cores without I/O, for tests: a flow of two levels of groupings, one worker each, and what they are fed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from programs import source_rows

from lowtide import Flow, json, kafka, raw
from lowtide.core.effects import Effects, LastKeys
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.order.order import Position
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.local.run import Message
from lowtide_tracker import Floor, LocalTracker, Notice


@dataclass(frozen=True)
class Event:
    key: str
    number: int


def total(state: int, event: Event) -> tuple[int, Event]:
    if event.number < 0:
        raise ValueError("negative")
    return state + event.number, Event(event.key, state + event.number)


def plan() -> Plan:
    """Two levels of groupings, one worker each."""
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    events = flow.read("events", kafka("events", json(Event)))
    first = events.key_by("key", name="first").scan("one", total, 0)
    first.key_by("number").scan("two", total, 0).write("out", kafka("out", json(Event)))
    return compile_flow(flow, parallelism=1, units=8, lanes=1, slack_ms=1)


def reader(max_lead: int = 1000, last: LastKeys | None = None) -> WorkerCore:
    front = Front(0, FrontLimits(1, Window(max_lead, 10**6), 10**6), KnownFloors(0))
    return WorkerCore(plan(), 0, 0, tracker=LocalTracker(0, 1, start=0), front=front, last=last)


def worker(level: int, grouping: str = "ordered", last: LastKeys | None = None) -> WorkerCore:
    return WorkerCore(plan(), level, 0, tracker=LocalTracker(level, 1, start=0), grouping=grouping, last=last)


def read(core: WorkerCore, events: Sequence[tuple[int, int]], offset: int = 0) -> Effects:
    """Messages by (tick, number), all of one key."""
    messages = [
        Message(Position(0, offset + place), tick, None, msgspec.json.encode(Event("a", number)))
        for place, (tick, number) in enumerate(events)
    ]
    return core.rows(source_rows(messages), 0)


def notice(number: int, *min_times: int, floors: tuple[Floor, ...] = ()) -> Notice:
    """The min times of segments 1 and 2; the outlet after them has that of the last."""
    return Notice(1, number, number - 1, dict(enumerate((*min_times, min_times[-1]), 1)), min(min_times), floors)
