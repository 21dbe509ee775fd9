"""What a commit makes superfluous goes: older commits with their parts, and floors that nobody begins below (R17)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from lowtide.events import EventLog
from lowtide.service.commits import Commits
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.retention import Rule

__all__ = ["Upkeep"]

LOG = logging.getLogger(__name__)


class Upkeep:
    """Tidies up after commits; what cannot be done now is done after the next one.

    Args:
        commits: The job's.
        rule: Which commits are kept.
        tell: Sends a message to all workers.
        forget: Lets the tracker forget a front's floors below an offset.
        events: Told what happens.
    """

    def __init__(
        self,
        commits: Commits,
        rule: Rule,
        *,
        tell: Callable[[dict[str, Any]], None],
        forget: Callable[[int, int], None],
        events: EventLog,
    ) -> None:
        self._commits = commits
        self._rule = rule
        self._tell = tell
        self._forget = forget
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
            await self.forget_floors()

    async def forget_floors(self) -> None:
        """Let all forget the floors that no commit needs any more: below where the oldest one is read again."""
        try:
            starts = await self._commits.oldest_starts()
        except SnapshotsError as error:
            LOG.warning("floors are not forgotten now: %s", error)
            return
        for start in starts:
            self._forget(*start)
        self._tell({"forget": starts})
