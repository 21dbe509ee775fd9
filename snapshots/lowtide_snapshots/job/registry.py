"""Lists the jobs that were ever started under a root."""

from __future__ import annotations

from lowtide_snapshots.job.paths import jobs_path, name_of
from lowtide_snapshots.zookeeper.connection import Connection
from lowtide_snapshots.zookeeper.tls import ZooKeeperTls

SESSION_TIMEOUT_S = 6.0


def jobs(
    hosts: str,
    *,
    root: str = "lowtide",
    limit_s: float = 10.0,
    auth: str | None = None,
    tls: ZooKeeperTls | None = None,
) -> list[str]:
    """The names of all jobs that were ever started.

    Args:
        hosts: ZooKeeper's "host:port", with commas between several.
        root: the parent node of all jobs.
        limit_s: how long a call waits for ZooKeeper.
        auth: "user:password", if the nodes are closed to others.
        tls: the files for TLS; None for a connection in the clear.

    Raises:
        ZooKeeperUnavailable: ZooKeeper did not answer within the limit.
    """
    zk = Connection(hosts, session_timeout_s=SESSION_TIMEOUT_S, limit_s=limit_s, auth=auth, tls=tls)
    zk.open()
    try:
        return sorted(name_of(name) for name in zk.children(jobs_path(root)) or [])
    finally:
        zk.close()
