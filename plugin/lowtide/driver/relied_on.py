"""The progress of a job: everything below it keeps its labels for good, in whatever life it is read again."""

from __future__ import annotations

from lowtide.sinks.kafka.lasts import Durable
from lowtide_snapshots.commits.log import ZooKeeperCommitLog
from lowtide_snapshots.job.store import JobStore


def relied_on(store: JobStore, durable: Durable, published: int | None) -> int:
    """The largest tick that anything relies on: a delivery, a published time, a commit, or the job it began after.

    All commits count, not only the one that a life begins from: the life after that may begin from another.

    Args:
        store: The job's place, connected.
        durable: What its sinks have.
        published: The largest published delivered time.

    Raises:
        ServiceUnavailable: ZooKeeper does not answer.
    """
    ticks = [key.tick + 1 for key in durable.last.values()]
    if published is not None:
        ticks.append(published)
    if (commit := ZooKeeperCommitLog(store).last()) is not None:
        ticks.append(commit.tick)
    if (borrowed := store.borrowed()) is not None:
        ticks.append(borrowed.tick)
    return max(ticks, default=0)
