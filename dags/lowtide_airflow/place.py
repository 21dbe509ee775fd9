"""Where jobs are found from outside: ZooKeeper, the store of their snapshots, and what the control API asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from lowtide_airflow.errors import PlaceRefused
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import Store, StoreSetting, open_store

__all__ = ["Place"]

SESSION_TIMEOUT_S = 10.0
"""Whoever only looks holds no lease: nothing hangs on this session."""


@dataclass(frozen=True, slots=True)
class Place:
    """One ZooKeeper root with the store and the token that its jobs share.

    Attributes:
        zookeeper: "host:port", with commas between several.
        root: the node under which all jobs lie.
        snapshots_url: `/path`, `file:path` or `s3://bucket/prefix`; empty where no snapshots are looked at.
        s3_endpoint: the URL of an S3 server that is not Amazon's.
        s3_region: S3's region.
        zookeeper_auth: "user:password" of the jobs' nodes.
        token: of the control API, the content of [control].token_file.
        limit_s: how long ZooKeeper may take to answer.
        store_limit_s: how long one request to the store may take, tries and pauses together.
    """

    zookeeper: str
    root: str = "lowtide"
    snapshots_url: str = ""
    s3_endpoint: str | None = None
    s3_region: str | None = None
    zookeeper_auth: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    limit_s: float = 10.0
    store_limit_s: float = 30.0

    def job_store(self, job: str) -> JobStore:
        """A job's place in ZooKeeper; not connected yet."""
        return JobStore(
            self.zookeeper,
            job,
            root=self.root,
            session_timeout_s=SESSION_TIMEOUT_S,
            limit_s=self.limit_s,
            auth=self.zookeeper_auth,
        )

    def open_files(self) -> Store:
        """The store of the snapshots; nothing is asked of it yet.

        Raises:
            PlaceRefused: no URL is given.
            StoreRefused: it names no store.
        """
        if not self.snapshots_url:
            raise PlaceRefused(
                "it is not said where the snapshots lie",
                where="the Airflow connection, field snapshots_url",
                way_out="give the [snapshots].url that the job has: a folder that this machine sees, or s3://bucket/prefix",
            )
        return open_store(
            StoreSetting(
                self.snapshots_url, endpoint=self.s3_endpoint, region=self.s3_region, limit_s=self.store_limit_s
            )
        )
