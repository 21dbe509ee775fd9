"""Lists the jobs that were ever started under a root."""

from __future__ import annotations

from lowtide_snapshots.job.paths import jobs_path, name_of
from lowtide_snapshots.zookeeper.connection import Connection

SESSION_TIMEOUT_S = 6.0


def jobs(hosts: str, *, root: str = "lowtide", limit_s: float = 10.0, auth: str | None = None) -> list[str]:
    """The names of all jobs that were ever started.

    Args:
        hosts: ZooKeeper's "host:port", with commas between several.
        root: the parent node of all jobs.
        limit_s: how long a call waits for ZooKeeper.
        auth: "user:password", if the nodes are closed to others.

    Raises:
        ZooKeeperUnavailable: ZooKeeper did not answer within the limit.
    """
    zk = Connection(hosts, session_timeout_s=SESSION_TIMEOUT_S, limit_s=limit_s, auth=auth)
    zk.open()
    try:
        return sorted(name_of(name) for name in zk.children(jobs_path(root)) or [])
    finally:
        zk.close()
