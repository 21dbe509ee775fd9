"""Calls a flow's functions with each commit: at least once, in order, and not before it is durable.

The commits that a function has heard of are kept in ZooKeeper, so those of an earlier life, or of Airflow while the job
was dead, are told by the next one. A function that raises undoes nothing: it is called again with the same commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from lowtide.flow.steps.hooks import OF_THE_FLOW, Hooks
from lowtide_snapshots.commits.log import CommitLog, ZooKeeperCommitLog
from lowtide_snapshots.commits.record import Commit
from lowtide_snapshots.errors import Fenced, SnapshotsError
from lowtide_snapshots.job.news import COMMIT, News
from lowtide_snapshots.job.store import JobStore

LOG = logging.getLogger(__name__)
LOOK_S = 10.0
"""The interval of looks without news: a watch reports every commit, but a lost connection may lose a report."""
AGAIN_S = 5.0
"""The time after which a function that has raised is called again."""


class CommitHooks:
    """The functions of one life, called one after the other in a thread of their own.

    Args:
        hooks: The functions.
        store: The job's place; the thread opens and closes it.
        incarnation: The life's number.
    """

    def __init__(self, hooks: Hooks, store: JobStore, incarnation: int) -> None:
        self._hooks = hooks
        self._store = store
        self._incarnation = incarnation
        self._wake = threading.Event()
        self._closing = False
        self._calls = ""
        """The function that is being called; empty for none."""
        self._thread = threading.Thread(target=self._run, name="on_commit", daemon=True)

    def start(self) -> None:
        """Begin, with the commits that the functions have not heard of."""
        self._thread.start()

    def close(self, limit_s: float) -> None:
        """Tell what is still to be told, and end; a function that takes longer than the limit is left alone."""
        self._closing = True
        self._wake.set()
        self._thread.join(limit_s)
        if self._thread.is_alive():
            LOG.warning("%s has not returned within %g s; the next life calls it again", self._calls, limit_s)

    def _run(self) -> None:
        try:
            with self._store:
                log = ZooKeeperCommitLog(self._store)
                log.watch(lambda _: self._wake.set())
                while True:
                    closing = self._closing
                    self._wake.clear()
                    done = self._looked(log)
                    if closing:
                        return
                    self._wake.wait(LOOK_S if done else AGAIN_S)
        except Fenced:
            return  # The life that has begun meanwhile tells them.
        except SnapshotsError as error:
            LOG.warning("on_commit functions hear of no more commits in this life: %s", error)

    def _looked(self, log: CommitLog) -> bool:
        try:
            return tell(self._hooks, log, self._store, self._incarnation, self._calling)
        except Fenced:
            raise
        except SnapshotsError as error:
            LOG.warning("on_commit functions wait: %s", error)
            return False

    def _calling(self, function: str) -> None:
        self._calls = function


def tell(
    hooks: Hooks, log: CommitLog, store: JobStore, incarnation: int, calling: Callable[[str], None] = lambda _: None
) -> bool:
    """Call each function with the commits that it has not heard of, ascending; note each as soon as it has returned.

    Args:
        hooks: The functions.
        log: The job's commits.
        store: The place that keeps who has heard of what.
        incarnation: The life's number.
        calling: Called before each call with the function, in words.

    Returns:
        False if one has raised: it hears of no later commit before this one.

    Raises:
        Fenced: another life has begun.
        SnapshotsError: ZooKeeper does not answer.
    """
    commits = log.commits()
    there = {commit.id for commit in commits}
    told = {name: there & set(store.told().get(name, ())) for name in hooks}
    done = True
    for name, hook in hooks.items():
        what = "on_commit of the flow" if name == OF_THE_FLOW else f'on_commit of sink "{name}"'
        for commit in commits:
            if commit.id in told[name]:
                continue
            calling(what)
            try:
                hook(news_of(commit))
            except (Exception, SystemExit):
                LOG.exception("%s failed at commit %s, which stands; it is called again", what, commit.id)
                done = False
                break
            told[name].add(commit.id)
            store.set_told(incarnation, {each: sorted(ids) for each, ids in told.items()})
    return done


def news_of(commit: Commit) -> News:
    """Return a commit as a subscriber gets it."""
    data = {"incarnation": commit.incarnation, "about": COMMIT, "time_ms": commit.min_time_ms}
    return News(COMMIT, "", {**data, "snapshot": commit.id, "name": commit.name, "taken_by": commit.incarnation})
