"""Follows a job's commits in a thread of the driver: whatever has to be done for each, once it is durable."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from lowtide_snapshots.commits.log import CommitLog, ZooKeeperCommitLog
from lowtide_snapshots.errors import Fenced, SnapshotsError
from lowtide_snapshots.job.store import JobStore

LOG = logging.getLogger(__name__)
LOOK_S = 10.0
"""The interval of looks without news: a watch reports every commit, but a lost connection may lose a report."""
AGAIN_S = 5.0
"""The time after which a follower that has failed is called again."""

Follower = Callable[[CommitLog], bool]
"""Does what is to be done for the commits that are there; False if it has to be called again soon."""


class CommitFollowers:
    """The followers of one life, called one after the other at each news of a commit.

    Args:
        store: The job's place; the thread opens and closes it.
        followers: The followers, by what they are called in the log.
    """

    def __init__(self, store: JobStore, followers: Mapping[str, Follower]) -> None:
        self._store = store
        self._followers = followers
        self._wake = threading.Event()
        self._closing = False
        self._calls = ""
        """The follower that is being called."""
        self._thread = threading.Thread(target=self._run, name="commit followers", daemon=True)

    def start(self) -> None:
        """Begin, with the commits that are there."""
        self._thread.start()

    def close(self, limit_s: float) -> None:
        """Look once more, and end; a follower that takes longer than the limit is left alone."""
        self._closing = True
        self._wake.set()
        self._thread.join(limit_s)
        if self._thread.is_alive():
            LOG.warning("%s has not come to its end within %g s; the next life goes on with it", self._calls, limit_s)

    def _run(self) -> None:
        try:
            with self._store:
                log = ZooKeeperCommitLog(self._store)
                log.watch(lambda _: self._wake.set())
                while True:
                    closing = self._closing
                    self._wake.clear()
                    done = [self._called(name, follower, log) for name, follower in self._followers.items()]
                    if closing:
                        return
                    self._wake.wait(LOOK_S if all(done) else AGAIN_S)
        except Fenced:
            return  # The life that has begun meanwhile follows them.
        except SnapshotsError as error:
            LOG.warning("%s: commits are not followed any more in this life: %s", ", ".join(self._followers), error)

    def _called(self, name: str, follower: Follower, log: CommitLog) -> bool:
        self._calls = name
        try:
            return follower(log)
        except Fenced:
            raise
        except SnapshotsError as error:
            LOG.warning("%s waits: %s", name, error)
            return False
