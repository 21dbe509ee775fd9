"""Snapshots of a simulated job: those under way, and what recovery starts from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lives import Deltas, Parts, merged, parts_of, with_deltas

from lowtide.core.effects import Snapshot
from lowtide.core.fronts.floors import NO_TICK
from lowtide.flow.plan.plan import Plan
from lowtide_tracker import Floor


@dataclass(frozen=True, slots=True)
class Commit:
    """What recovery starts from.

    Attributes:
        tick: T.
        parts: Of all workers.
        starts: By front: the offset to read from and the label before it.
        floors: Those that T rests on.
    """

    tick: int
    parts: Parts
    starts: Mapping[int, tuple[int, int]]
    floors: tuple[Floor, ...]

    @property
    def known(self) -> list[Floor]:
        """All that it says of labels: a later life may begin with the label before where a front is read again."""
        starts = [Floor(front, *start) for front, start in self.starts.items()]
        return [*self.floors, *(floor for floor in starts if floor.tick > NO_TICK)]


@dataclass(slots=True)
class Taking:
    """A snapshot under way: what has been captured so far, by worker."""

    number: int
    tick: int
    handed_on: tuple[Floor, ...]
    """The floors of the manifests that there were when it was asked for."""
    workers: int
    """How many there were: a front that opens later is read from its opening on."""
    captured: dict[int, Snapshot] = field(default_factory=dict)
    deltas: list[Deltas] = field(default_factory=list)
    """What workers have captured by keys, each since the commit that it went by."""
    base: Commit | None = None
    """The newest commit that a worker has left something to, as not changed since."""

    def capture(self, worker: int, snapshot: Snapshot, base: Commit | None) -> None:
        """A worker has captured what has changed since a commit."""
        self.captured[worker] = snapshot
        if base is not None and (self.base is None or base.tick > self.base.tick):
            self.base = base

    @property
    def heard(self) -> bool:
        """True once all have the request and have captured their share."""
        return len(self.captured) == self.workers

    def starts(self, fronts: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """By front where it is read again, of those whose worker has captured its share."""
        snapshots = {front: self.captured[worker] for front, worker in fronts.items() if worker in self.captured}
        return {front: each.start for front, each in snapshots.items() if each.start is not None}

    def commit(self, plan: Plan, fronts: Mapping[int, int], floors: Iterable[Floor]) -> Commit:
        """All captured shares in one; units that nobody captured are those of the base (W9).

        Args:
            fronts: Which worker each front has.
            floors: Those that the tracker knows.
        """
        changed = parts_of(plan, [snapshot.state for snapshot in self.captured.values()])
        parts = merged(self.base.parts if self.base else {}, changed)
        for deltas in self.deltas:
            parts = with_deltas(plan, parts, deltas)
        return Commit(self.tick, parts, self.starts(fronts), (*self.handed_on, *floors))
