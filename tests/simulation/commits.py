"""Snapshots of a simulated job: one under way, and what recovery starts from."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from lowtide.core.effects import Snapshot
from lowtide.core.operators.program import Captured
from lowtide.flow.plan import Plan
from lowtide.flow.steps import Broadcast
from lowtide_tracker import Floor


@dataclass(frozen=True, slots=True)
class Commit:
    """What recovery starts from.

    Attributes:
        tick: T.
        state: Of all workers, by vertex and hash unit.
        starts: By front: the offset to read from and the label before it.
        floors: Those that T rests on.
    """

    tick: int
    state: Captured
    starts: Mapping[int, tuple[int, int]]
    floors: tuple[Floor, ...]


@dataclass(slots=True)
class Taking:
    """A snapshot under way: what has been captured so far, by worker."""

    number: int
    tick: int
    floors: tuple[Floor, ...]
    workers: int
    """How many there were: a front that opens later is read from its opening on."""
    captured: dict[int, Snapshot] = field(default_factory=dict)

    def commit(self, fronts: Mapping[int, int]) -> Commit:
        """What all have captured, in one; ``fronts`` says which worker each front has."""
        state: Captured = {}
        for snapshot in self.captured.values():
            for vertex, units in snapshot.state.items():
                state.setdefault(vertex, {}).update(units)
        snapshots = {front: self.captured[worker] for front, worker in fronts.items() if worker in self.captured}
        starts = {front: each.start for front, each in snapshots.items() if each.start is not None}
        return Commit(self.tick, state, starts, self.floors)


def share(state: Captured, plan: Plan, place: int) -> Captured:
    """The state of one worker, as if it were read from parts: nothing is shared with the commit."""
    workers = plan.worker_of_unit().tolist()
    shared = {vertex.name for vertex in plan.vertices if isinstance(vertex.step, Broadcast)}
    mine = {
        name: {unit: keys for unit, keys in units.items() if name in shared or workers[unit] == place}
        for name, units in state.items()
    }
    return deepcopy(mine)
