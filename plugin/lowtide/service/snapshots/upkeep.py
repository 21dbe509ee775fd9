"""Deletes what commits make unnecessary: older ones with their parts, floors and answers below them (R17)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lowtide.events import EventLog
from lowtide.service.snapshots.commits import Commits
from lowtide.service.snapshots.participants import Participants
from lowtide.service.snapshots.taking import Taking
from lowtide_snapshots.commits.retention import Rule
from lowtide_snapshots.errors import SnapshotsError

LOG = logging.getLogger(__name__)


class Upkeep:
    """Tidies up after commits; what cannot be done now is done after the next one.

    Args:
        commits: The job's commits.
        rule: The rule for commits to keep.
        participants: Those with floors to forget.
        events: Receives events.
    """

    def __init__(self, commits: Commits, rule: Rule, participants: Participants, events: EventLog) -> None:
        self._commits = commits
        self._rule = rule
        self._participants = participants
        self._events = events
        self._base_held = commits.last is not None

    async def let_base_go(self, incarnation: int) -> None:
        """Let go of the commit that the life began from: else it stays as long as the life, with all answers since.

        Args:
            incarnation: The life, which has made a commit.
        """
        if not self._base_held:
            return
        try:
            await self._commits.let_base_go(incarnation)
        except SnapshotsError as error:
            LOG.warning("could not let go of the commit that the life began from: %s", error)
        else:
            self._base_held = False

    async def prune(self) -> None:
        """Drop the commits that the rule does not keep, with the parts that only they have."""
        try:
            swept = await self._commits.prune(self._rule)
        except SnapshotsError as error:
            LOG.warning("could not drop old commits: %s", error)
            return
        if swept.commits:
            self._events.event("commits_pruned", commits=swept.commits, parts=swept.parts, bytes=swept.bytes)

    def forget_floors(self, under_way: Iterable[Taking]) -> None:
        """Have all forget the floors below the newest commit's start, and that of any snapshot that may come below it.

        All of them are durable: T rests on no others (R15). A life that begins from an older commit still finds them.

        Args:
            under_way: The snapshots that are not sealed and may be committed below the newest commit.
        """
        newest, under_way = self._commits.last, list(under_way)
        if newest is None or not all(taking.heard for taking in under_way):
            return  # Its start is unknown before all have its request: the next commit handles it.
        starts = {front.number: front.offset for front in newest.fronts}
        for taking in under_way:
            starts = {front: min(offset, taking.starts.get(front, offset)) for front, offset in starts.items()}
        self._participants.forget(list(starts.items()))

    async def cut_answers(self, under_way: Iterable[Taking]) -> None:
        """Have the answers of calls cut below the oldest commit, and below any snapshot that may come below that.

        Args:
            under_way: The snapshots that may be committed below a commit.
        """
        # They are read first: one of them may be among the commits a moment later.
        ticks = [taking.tick for taking in under_way if taking.tick is not None]
        try:
            oldest = await self._commits.oldest()
        except SnapshotsError as error:
            LOG.warning("could not see which answers of calls commits need: %s", error)
            return
        if oldest is not None:
            self._participants.cut_answers(min([oldest, *ticks]))
