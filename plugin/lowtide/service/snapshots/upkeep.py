"""Deletes what a commit makes superfluous: older commits with their parts, and floors below its start (R17)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lowtide.events import EventLog
from lowtide.service.snapshots.commits import Commits
from lowtide.service.snapshots.participants import Participants
from lowtide.service.snapshots.taking import Taking
from lowtide_snapshots.commits.retention import Rule
from lowtide_snapshots.errors import SnapshotsError

__all__ = ["Upkeep"]

LOG = logging.getLogger(__name__)


class Upkeep:
    """Tidies up after commits; what cannot be done now is done after the next one.

    Args:
        commits: The job's.
        rule: Which commits are kept.
        participants: They have floors to forget.
        events: Told what happens.
    """

    def __init__(self, commits: Commits, rule: Rule, participants: Participants, events: EventLog) -> None:
        self._commits = commits
        self._rule = rule
        self._participants = participants
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

    def forget_floors(self, under_way: Iterable[Taking]) -> None:
        """Let all forget the floors below where the newest commit begins, and any snapshot that may come below it.

        All of them are durable: T rests on no others (R15). A life that begins from an older commit finds them there.

        Args:
            under_way: The snapshots that are not sealed and may be committed though the newest commit is above them.
        """
        newest, under_way = self._commits.last, list(under_way)
        if newest is None or not all(taking.heard for taking in under_way):
            return  # Where one begins is not known before all have heard of it: the next commit sees to it.
        starts = {front.number: front.offset for front in newest.fronts}
        for taking in under_way:
            starts = {front: min(offset, taking.starts.get(front, offset)) for front, offset in starts.items()}
        self._participants.forget(list(starts.items()))
