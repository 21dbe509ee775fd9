"""Carries a staged log into its store: open, then read, take, settle, and report, over and over.

    with Carrying(log, carrier, report) as carrying:
        while not stopped():
            carrying.turn()
        carrying.drain(stopped)

Nothing of it is remembered: what a carrier that was killed leaves behind is read from the store and the log again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from lowtide.sinks.staged.ages import Ages
from lowtide.sinks.staged.contract import Carrier, Follows, FromMarks, InStep, Progress
from lowtide.sinks.staged.log import Backlog, StagedLog

READ_S = 0.1
"""The time that a turn waits for records: a carrier settles as often when none come."""

Report = Callable[[Mapping[int, Progress], Backlog, Mapping[str, int]], None]
"""Takes after each turn how far the lanes are, what is still needed of the log, and what the carrier has counted."""


def ignore(_lanes: Mapping[int, Progress], _backlog: Backlog, _counts: Mapping[str, int]) -> None:
    """Report nothing."""


class Carrying:
    """One carrier at work; belongs to one thread.

    Args:
        log: The staged log, closed at the end.
        carrier: The carrier, closed at the end.
        report: Called after each turn.
        found: Called before the store is opened, which may fail, with what carriers before have left.
        births: By lane the number of the growth that made its partition, where those of later ones wait for older ones
            (`staged/ages.py`); empty where lanes may be read side by side.

    Attributes:
        last: What was reported last.
    """

    def __init__(
        self, log: StagedLog, carrier: Carrier, report: Report, found: Report = ignore, births: Sequence[int] = ()
    ) -> None:
        self._log = log
        self._carrier = carrier
        self._report = report
        self._found = found
        self._births = births
        self._ages = Ages((), {})
        self.last: tuple[dict[int, Progress], Backlog, Mapping[str, int]] = {}, Backlog(), {}
        self._visible: dict[int, int | None] = {}
        """By lane what is visible: at first what carriers before have reported, which it stays."""

    def __enter__(self) -> Self:
        try:
            kept = self._log.kept()
            self._visible = {lane: each.visible_ms for lane, each in kept.items()}
            self._found(kept, self._log.backlog(time.monotonic()), {})
            if isinstance(self._carrier, Follows):
                self._carrier.follow(max((each.visible_ms or 0 for each in kept.values()), default=0))
            self._log.begin(self._carrier.open({lane: each.needed for lane, each in kept.items()}))
            if any(self._births):
                self._ages = Ages(self._births, self._log.ends())
                self._log.hold(self._ages.waiting)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def turn(self) -> None:
        """Take what the log has, and let become visible what can (errors: LowtideError)."""
        for piece in self._log.read(READ_S):
            if piece.rows:
                self._carrier.take(piece.lane, piece.rows)
                self._ages.take(piece.lane, piece.rows)
            if piece.mark_ms is not None:
                self._carrier.mark(piece.lane, piece.mark_ms)
        progress = self._settle(time.monotonic())
        if self._ages.go_on(self._log.has_read, progress):
            self._log.hold(self._ages.waiting)
        if isinstance(self._carrier, InStep):
            self._log.rest(self._carrier.resting())

    def drain(self, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Carry what the log has now, and make visible all of it that can be without records that may follow.

        Args:
            stopped: Returns True once there is no more time for it.

        Returns:
            True if that is done.

        Raises:
            LowtideError: the store, or Kafka, does not take part.
        """
        ends = self._log.ends()
        while not self._log.has_read(ends):
            if stopped():
                return False
            self.turn()
        before = None
        while (progress := self._settle(math.inf)) != before:
            if stopped():
                return False
            before = progress
        return True

    def close(self) -> None:
        """Give back what both have opened."""
        try:
            self._carrier.close()
        finally:
            self._log.close()

    def _settle(self, now_s: float) -> dict[int, Progress]:
        self._carrier.settle(now_s)
        progress = self._carrier.progress()
        if isinstance(self._carrier, FromMarks):
            progress = self._log.beyond_marks(progress)
        progress = self._known(progress)
        self._log.keep(progress, now_s)
        self.last = progress, self._log.backlog(time.monotonic()), self._carrier.counts()
        self._report(*self.last)
        return progress

    def _known(self, progress: Mapping[int, Progress]) -> dict[int, Progress]:
        """Return how far the lanes are: a carrier that begins knows of no mark yet.

        Times of lanes are not mixed with those that carriers before have reported: a folder of files is complete once
        one carrier has seen that all lanes have passed it.
        """
        if all((each.visible_ms or 0) >= (self._visible[lane] or 0) for lane, each in progress.items()):
            self._visible = {lane: each.visible_ms for lane, each in progress.items()}
        return {lane: Progress(each.needed, self._visible[lane]) for lane, each in progress.items()}
