"""Deletes what a commit makes superfluous: older commits with their parts, and floors below its start (R17)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from lowtide.events import EventLog
from lowtide.service.snapshots.commits import Commits
from lowtide_snapshots.commits.retention import Rule
from lowtide_snapshots.errors import SnapshotsError

__all__ = ["Upkeep"]

LOG = logging.getLogger(__name__)


class Upkeep:
    """Tidies up after commits; what cannot be done now is done after the next one.

    Args:
        commits: The job's.
        rule: Which commits are kept.
        tell: Sends a message to all workers.
        forget: Lets the tracker forget a front's floors below an offset.
        tidy: Told from which offsets the newest commit reads the fronts.
        events: Told what happens.
    """

    def __init__(
        self,
        commits: Commits,
        rule: Rule,
        *,
        tell: Callable[[dict[str, Any]], None],
        forget: Callable[[int, int], None],
        tidy: Callable[[list[tuple[int, int]]], None],
        events: EventLog,
    ) -> None:
        self._commits = commits
        self._rule = rule
        self._tell = tell
        self._forget = forget
        self._tidy = tidy
        self._events = events

    async def prune(self) -> None:
        """Drop the commits that the rule does not keep, with what only they have."""
        try:
            swept = await self._commits.prune(self._rule)
        except SnapshotsError as error:
            LOG.warning("old commits are not dropped now: %s", error)
            return
        if swept.commits:
            self._events.event("commits_pruned", commits=swept.commits, parts=swept.parts, bytes=swept.bytes)

    def forget_floors(self) -> None:
        """Let all forget the floors below where the newest commit begins.

        All of them are durable: T rests on no others (R15). A life that begins from an older commit finds them there.
        """
        newest = self._commits.last
        if newest is None:
            return
        starts = [(front.number, front.offset) for front in newest.fronts]
        for start in starts:
            self._forget(*start)
        self._tell({"forget": starts})
        self._tidy(starts)
