"""The services that jobs share: ZooKeeper, the store of their snapshots, and the token of their control APIs."""

from __future__ import annotations

from dataclasses import dataclass, field

from lowtide_airflow.errors import ConnectionInvalid
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import Store, StoreSetting, open_store
from lowtide_snapshots.zookeeper.connection import Connection
from lowtide_snapshots.zookeeper.tls import ZooKeeperTls

SESSION_TIMEOUT_S = 10.0
"""Of a ZooKeeper session that holds no lease, so nothing depends on it."""


@dataclass(frozen=True, slots=True)
class Services:
    """One ZooKeeper root with the store and the token that its jobs share.

    Attributes:
        zookeeper: "host:port", with commas between several.
        root: the node that holds all jobs.
        snapshots_url: `/path`, `file:path`, `s3://bucket/prefix` or `az://container/prefix`; empty where no
            snapshots are read.
        s3_endpoint: the URL of an S3 server other than Amazon's.
        s3_region: S3's region.
        azure_endpoint: the URL of a storage account that is not in Azure's public cloud.
        azure_account: Azure's storage account.
        zookeeper_auth: "user:password" for the jobs' nodes.
        zookeeper_tls: the files for TLS to ZooKeeper; None for a connection in the clear.
        token: for the control API, the content of [control].token_file.
        limit_s: how long ZooKeeper may take to answer.
        store_limit_s: how long one request to the store may take, retries and pauses included.
    """

    zookeeper: str
    root: str = "lowtide"
    snapshots_url: str = ""
    s3_endpoint: str | None = None
    s3_region: str | None = None
    azure_endpoint: str | None = None
    azure_account: str | None = None
    zookeeper_auth: str | None = field(default=None, repr=False)
    zookeeper_tls: ZooKeeperTls | None = None
    token: str | None = field(default=None, repr=False)
    limit_s: float = 10.0
    store_limit_s: float = 30.0

    def connection(self) -> Connection:
        """Return a session with ZooKeeper; not opened yet."""
        return Connection(
            self.zookeeper,
            session_timeout_s=SESSION_TIMEOUT_S,
            limit_s=self.limit_s,
            auth=self.zookeeper_auth,
            tls=self.zookeeper_tls,
        )

    def job_store(self, job: str, connection: Connection | None = None) -> JobStore:
        """Return a job's nodes in ZooKeeper, over an open session or one of its own, which is not connected yet."""
        return JobStore(
            self.zookeeper,
            job,
            root=self.root,
            session_timeout_s=SESSION_TIMEOUT_S,
            limit_s=self.limit_s,
            auth=self.zookeeper_auth,
            connection=connection,
            tls=self.zookeeper_tls,
        )

    def open_files(self) -> Store:
        """Open the store of the snapshots; this sends no request yet.

        Raises:
            ConnectionInvalid: no URL is given.
            StoreRefused: the URL is not that of a store.
        """
        if not self.snapshots_url:
            raise ConnectionInvalid(
                "the location of the snapshots is missing",
                where="the Airflow connection, field snapshots_url",
                way_out="give the job's [snapshots].url: a folder that this machine sees, s3://bucket/prefix or "
                "az://container/prefix",
            )
        in_azure = self.snapshots_url.startswith("az:")
        return open_store(
            StoreSetting(
                self.snapshots_url,
                endpoint=self.azure_endpoint if in_azure else self.s3_endpoint,
                region=self.s3_region,
                account=self.azure_account,
                limit_s=self.store_limit_s,
            )
        )
