"""Access to ZooKeeper: the `[zookeeper]` table, with its secret, which is read at the moment of use."""

from __future__ import annotations

from typing import Self

import msgspec

from lowtide.conf.secret import read_secret
from lowtide.conf.tables import ZooKeeperConf
from lowtide.errors import ConfError
from lowtide_snapshots.job.store import JobStore


class ZooKeeperAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The way into ZooKeeper; it holds the secret itself, so it goes to the service only."""

    hosts: str
    root: str
    session_timeout_s: float
    reach_limit_s: float
    auth: str | None = None

    @classmethod
    def of(cls, zookeeper: ZooKeeperConf) -> Self:
        """Read the secret that the conf names, if it names one.

        Raises:
            ConfError: the variable or the file does not exist, both are named, or it is not `user:password`.
        """
        auth = read_secret("zookeeper", "auth", zookeeper.auth_env, zookeeper.auth_file)
        if auth is not None and ":" not in auth:
            raise ConfError(
                "the secret is not of the form user:password", where="[zookeeper] of the conf", way_out="write it so"
            )
        return cls(
            hosts=zookeeper.hosts,
            root=zookeeper.root,
            session_timeout_s=zookeeper.session_timeout_s,
            reach_limit_s=zookeeper.reach_limit_s,
            auth=auth,
        )

    def store(self, job: str) -> JobStore:
        """Return a job's place in ZooKeeper, not connected yet."""
        return JobStore(
            self.hosts,
            job,
            root=self.root,
            session_timeout_s=self.session_timeout_s,
            limit_s=self.reach_limit_s,
            auth=self.auth,
        )
