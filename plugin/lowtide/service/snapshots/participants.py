"""Participants of a life's snapshots: its workers, its fronts and its tracker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from lowtide.assignment.messages import Forget, WorkerOrder
from lowtide.service.fronts.source_fronts import SourceFronts
from lowtide.service.snapshots.answers_cutter import AnswersCutter
from lowtide.service.snapshots.floor_tidier import FloorTidier
from lowtide.service.tracker.sharded import LifeTracker
from lowtide.service.workers.crew import Crew
from lowtide_snapshots.format.manifest import FrontAt
from lowtide_tracker import Floor

HEARD_LIMIT_S = 5.0
"""The time that a notice may take from the tracker to the service."""


class Participants(Protocol):
    """The participants of snapshots, as the coordinator uses them."""

    expected: int
    """The number of workers that the levels after the first must have."""

    def workers(self) -> list[str]:
        """Return the workers of those levels that are up."""

    def send(self, order: WorkerOrder) -> None:
        """Send an order to all workers."""

    async def request(self, number: int) -> int:
        """Ask all workers for a snapshot by way of the tracker; return T, once `floors` has all that it rests on.

        Raises:
            LowtideError: it cannot be requested now.
        """

    def fronts(self) -> Iterable[tuple[FrontAt, str | None]]:
        """Return all registered fronts as they stand, with the worker that has each; None for none."""

    def floors(self, starts: Mapping[int, int]) -> Iterable[Floor]:
        """Return the floors that matter from these offsets on, by front."""

    def skipped(self, front: int, offset: int) -> int:
        """Return from where a front may be read again instead of from an offset: after what holds no record."""

    def forget(self, starts: list[tuple[int, int]]) -> None:
        """Have all forget the floors below where the newest commit reads the fronts, as `(front, offset)`."""

    def cut_answers(self, below: int) -> None:
        """Cut the answers of calls below a tick, soon."""


class LifeParticipants:
    """The participants of a running life.

    Args:
        crew: The workers.
        fronts: The fronts.
        tracker: The tracker.
        tidier: Removes floors from the lasts topic; None if there is none.
        cutter: Cuts the answers of calls.
    """

    def __init__(
        self,
        crew: Crew,
        fronts: SourceFronts,
        tracker: LifeTracker,
        tidier: FloorTidier | None,
        cutter: AnswersCutter,
    ) -> None:
        self.expected = crew.expected
        self.workers = crew.later
        self.send = crew.send_all
        self.fronts = fronts.standing
        self.floors = fronts.floors_from
        self.skipped = fronts.skipped
        self.cut_answers = cutter.cut
        self._fronts = fronts
        self._tracker = tracker
        self._tidier = tidier

    async def request(self, number: int) -> int:
        """Request a snapshot; when it returns T, all floors that T rests on have come here."""
        tick = await self._tracker.request(number)
        await self._fronts.heard(number, HEARD_LIMIT_S)
        return tick

    def forget(self, starts: list[tuple[int, int]]) -> None:
        """Have fronts, tracker, workers and topic forget."""
        for front, offset in starts:
            self._fronts.forget_floors(front, offset)
            self._tracker.forget_floors(front, offset)
        self.send(Forget(starts))
        if self._tidier is not None:
            self._tidier.committed(starts)
