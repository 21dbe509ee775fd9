"""A job's commit log and store, read directly, whether the job runs or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches

from lowtide.cli.refusals import fence_fails_snapshot
from lowtide.conf.conf import Conf
from lowtide.conf.store_access import store_setting
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.errors import NotRunning
from lowtide_snapshots.commits.known import KnownSnapshots
from lowtide_snapshots.commits.log import ZooKeeperCommitLog
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import open_store

MOST_SHOWN = 20


@contextmanager
def opened(conf: Conf, job: str) -> Iterator[tuple[KnownSnapshots, JobStore]]:
    """Give a job's snapshots and its place in ZooKeeper until the block ends.

    Raises:
        ConfError: the block asks for a snapshot that does not exist; the text names those that do.
        NotRunning: there never was such a job.
        ServiceUnavailable: ZooKeeper or the store does not answer, or refuses us.
        SnapshotDamaged, SnapshotFailed: by what the block does.
    """
    with fence_fails_snapshot(), ZooKeeperAccess.of(conf.zookeeper).store(job) as store:
        if store.record() is None:
            raise no_job(conf, job)
        files = open_store(store_setting(conf.snapshots))
        try:
            take = f"take one: lowtide snapshot {job}"
            yield KnownSnapshots(ZooKeeperCommitLog(store), files, take=take), store
        finally:
            files.close()


def no_job(conf: Conf, job: str) -> NotRunning:
    """Return the error for a job that ZooKeeper does not know, with those that it does."""
    known: list[str] = []
    with suppress(SnapshotsError):
        known = ZooKeeperAccess.of(conf.zookeeper).jobs()
    near = get_close_matches(job, known, MOST_SHOWN, cutoff=0.0)
    return NotRunning(
        f'there never was a job "{job}"',
        where=f"ZooKeeper at {conf.zookeeper.hosts}, /{conf.zookeeper.root}",
        way_out=f"there are: {', '.join(near)}" if near else "start it: lowtide run flow.py --detach",
    )
