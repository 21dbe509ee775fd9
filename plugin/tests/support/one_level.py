"""Level 1 of a plan alone, in one worker: fed by tick, saved by way of parts, and compared from a tick on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from programs import Programs, source_rows

from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.program import Program
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.flow.plan.plan import Plan
from lowtide.local.run import Message
from lowtide_snapshots.format.parts import PartHead, decode_part, encode_part


class Level:
    """Records that go in by tick, and those that have come out, by order key."""

    def __init__(self, plan: Plan, limits: Limits | None = None) -> None:
        self.plan = plan
        self.program = Program(plan, 1, limits=limits)
        self.min_time = 0
        self.out: list[tuple[Any, ...]] = []

    def feed(self, parcels: Iterable[tuple[int, Any]], min_time: int) -> None:
        """All records from the min time so far to the new one, then the clock."""
        for vertex, batch in parcels:
            part = batch.where([self.min_time <= tick < min_time for tick in map(_tick, batch.ats)])
            if part.ats:
                self.note(self.program.feed(vertex, part))
        self.note(self.program.advance(min_time))
        due = self.program.first_due
        assert due is None or due >= min_time
        self.min_time = min_time

    def note(self, feed: Any) -> None:
        """Note what came of something."""
        given = [*feed.delivers, *((parcel.vertex, parcel.batch) for parcel in feed.parcels)]
        self.out += [(at, unit, name, row) for name, batch in given for at, unit, row in _rows(batch)]
        faults = [each for batch in feed.faults for each in _rows(batch)]
        self.out += [(at, unit, fault.vertex.name, fault.failure.error) for at, unit, fault in faults]

    def from_tick(self, tick: int) -> list[str]:
        """The records that have come out from a tick on."""
        return sorted(map(repr, (each for each in self.out if _tick(each[0]) >= tick)))


def _tick(at: bytes) -> int:
    return OrderKey.of(at).tick


def _rows(batch: Any) -> Iterable[tuple[bytes, int, Any]]:
    return zip(batch.ats, batch.units, batch.rows, strict=True)


def parcels_of(plan: Plan, log: Mapping[str, Sequence[Message]]) -> list[tuple[int, Any]]:
    """The records that a plan's sources send for their messages, front by front."""
    programs = Programs(plan)
    found = []
    for source in plan.sources():
        messages = log.get(source.name, ())
        for front in sorted({each.position.front for each in messages}):
            rows = source_rows([each for each in messages if each.position.front == front])
            feed = programs.sources.feed_source(source.id, programs.labelled(rows))
            found += [(parcel.vertex, parcel.batch) for parcel in feed.parcels]
    return found


def saved_and_read(plan: Plan, captured: Mapping[str, Any]) -> dict[str, Any]:
    """The captured state, by way of parts as they are written and read."""
    steps = saved_steps(plan, 1)
    found: dict[str, Any] = {}
    for name, units in captured.items():
        for unit, entries in units.items():
            head = PartHead(plan.name, name, steps[name].kind, unit, 1, plan.slack_ms, "000003-0007")
            _, read = decode_part(encode_part(head, steps[name].table(entries)), head.name)
            if entries:
                found.setdefault(name, {})[unit] = sorted(steps[name].entries(read), key=repr)
    return found
