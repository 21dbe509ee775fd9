"""The barriers of one worker: one for each sink of its level, and one for the level's dead letters."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from lowtide.core.effects import LastKeys, letters_of
from lowtide.core.operators.barrier import Barrier
from lowtide.flow.formats.endpoints import is_staged, mark_ticks
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.steps import Answers


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes that a worker owns (R12).

    Attributes:
        own: Their numbers.
        of_unit: By hash unit its lane.
    """

    own: list[int]
    of_unit: list[int]

    @classmethod
    def of_front(cls, number: int) -> Lanes:
        """A front's only lane has its number."""
        return cls([number], [number])

    @classmethod
    def of_worker(cls, plan: Plan, place: int) -> Lanes:
        """Those of the worker at this place of its level."""
        of_unit: list[int] = plan.lane_of_unit().tolist()
        owners = plan.worker_of_unit().tolist()
        return cls(sorted({lane for lane, owner in zip(of_unit, owners, strict=True) if owner == place}), of_unit)


def strands_of(plan: Plan) -> frozenset[int]:
    """Return the sinks that take a worker's lanes as one strand: all, and dead letters but those of fronts."""
    letters = [letters_of(level) for level in range(1, plan.levels)]
    return frozenset([*letters, *(vertex.id for vertex in plan.sinks())])


def barriers_of(
    plan: Plan,
    level: int,
    lanes: Lanes,
    last: LastKeys,
    max_bundle_records: int,
    start: int,
    strands: Container[int] = (),
) -> dict[int, Barrier]:
    """Make a worker's barriers, by sink; the dead letters' is that of `letters_of(level)`.

    Args:
        plan: The plan.
        level: The worker's.
        lanes: The worker's.
        last: What was durable when the life began, by sink and lane (R13).
        max_bundle_records: Limit of one bundle.
        start: The min time at which the life begins.
        strands: The sinks at which the worker's lanes are one strand.
    """
    letters = letters_of(level)
    lagging = {letters, *(each.id for each in plan.those(Answers))}
    outlets = [(vertex.id, vertex.name) for vertex in plan.delivering() if vertex.level == level]
    barriers = {
        sink: Barrier(
            name,
            lanes=lanes.own,
            lane_of_unit=lanes.of_unit,
            last={lane: key for (other, lane), key in last.items() if other == sink},
            max_bundle_records=max_bundle_records,
            keeps_floors=sink not in lagging,
            strand=sink in strands,
        )
        for sink, name in [*outlets, (letters, f"dead letters of level {level}")]
    }
    for vertex in plan.sinks():
        if vertex.level == level and is_staged(vertex.step.sink):
            every = mark_ticks(vertex.step.sink, plan.slack_ms)
            barriers[vertex.id].mark_lanes(every, start, again=plan.grown != ())
    return barriers
