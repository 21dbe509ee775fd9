"""Simulated sinks: a lane takes a bundle, its `last` and its floors in one atomic step, and tells them on request."""

from __future__ import annotations

from dataclasses import dataclass, field

from lowtide.core.fronts.floors import Floors
from lowtide.core.operators.faults.failure import Dead
from lowtide.core.operators.order.bundle import NO_KEY, Bundle
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.flow.plan.plan import Plan
from lowtide_tracker import Floor

from .verdict import Violation

Sent = tuple[bytes | None, bytes | None, int]
"""Key, value, timestamp."""


@dataclass(slots=True)
class Lane:
    """What one lane holds, durable."""

    messages: list[Sent] = field(default_factory=list)
    letters: list[Dead] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)
    last: bytes = NO_KEY


class Sinks:
    """All sinks of a job, over all its lives.

    Attributes:
        lanes: By sink (its vertex) and lane.
        kept: The floors that are durable, each once, whichever lanes have written it.
    """

    def __init__(self, plan: Plan) -> None:
        self.lanes: dict[tuple[int, int], Lane] = {}
        self.kept: set[Floor] = set()
        self._encoders = {vertex.id: SinkEncoder(vertex, plan.slack_ms) for vertex in plan.sinks()}

    def store(self, sink: int, bundle: Bundle) -> None:
        """Take a bundle whole."""
        lane = self.lanes.setdefault((sink, bundle.lane), Lane())
        if not (lane.last < bundle.last or (len(bundle) == 0 and lane.last == bundle.last)):
            raise Violation("output", f"lane {bundle.lane} is given {bundle.last.hex()} after {lane.last.hex()}")
        if sink < 0:
            lane.letters += bundle.rows
        elif len(bundle):
            messages = self._encoders[sink].encode(bundle.lane, bundle.pieces)
            lane.messages += [(key, value, timestamp) for _, _, key, value, timestamp, _ in messages]
        lane.ticks += [piece.tick for piece in bundle.pieces for _ in piece.ats]
        lane.last = bundle.last
        self.kept |= set(bundle.floors)
        self.kept -= set(bundle.covered)

    def last(self) -> dict[tuple[int, int], OrderKey]:
        """What recovery asks for: per sink and lane."""
        return {key: OrderKey.of(lane.last) for key, lane in self.lanes.items() if lane.ticks}

    def letters(self) -> list[Dead]:
        """All dead letters."""
        return [letter for lane in self.lanes.values() for letter in lane.letters]

    def floors(self) -> Floors:
        """What recovery asks for besides."""
        return Floors(self.kept)

    def cut(self, front: int, offset: int) -> Floors:
        """Drop the floors that say nothing about a front's offsets from here on; return all that there were."""
        before, kept = self.floors(), self.floors()
        kept.cut(front, offset)
        self.kept = set(kept)
        return before
