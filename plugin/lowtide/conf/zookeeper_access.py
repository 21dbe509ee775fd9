"""Access to ZooKeeper: the `[zookeeper]` table, with its secret, which is read at the moment of use."""

from __future__ import annotations

import os
from typing import Self

import msgspec

from lowtide.conf.secret import read_secret
from lowtide.conf.tables import ZooKeeperConf
from lowtide.errors import ConfError
from lowtide_snapshots.job.registry import jobs
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.zookeeper.tls import ZooKeeperTls


class ZooKeeperAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The way into ZooKeeper; it holds the secret itself, so it goes to the service only."""

    hosts: str
    root: str
    session_timeout_s: float
    reach_limit_s: float
    auth: str | None = None
    tls: ZooKeeperTls | None = None

    @classmethod
    def of(cls, zookeeper: ZooKeeperConf) -> Self:
        """Read the secret that the conf names, if it names one.

        Raises:
            ConfError: the variable or the file does not exist, both are named, or it is not `user:password`; or the
                files for TLS cannot be used.
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
            tls=_tls_of(zookeeper),
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
            tls=self.tls,
        )

    def jobs(self) -> list[str]:
        """Return the names of all jobs that were ever started (errors: ZooKeeperUnavailable)."""
        return jobs(self.hosts, root=self.root, limit_s=self.reach_limit_s, auth=self.auth, tls=self.tls)


def _tls_of(zookeeper: ZooKeeperConf) -> ZooKeeperTls | None:
    authority, certificate, key = zookeeper.ssl_ca_file, zookeeper.ssl_certificate_file, zookeeper.ssl_key_file
    if authority is None and certificate is None and key is None:
        return None
    if authority is None or (certificate is None) != (key is None):
        missing = "ssl_ca_file" if authority is None else "ssl_key_file" if key is None else "ssl_certificate_file"
        raise ConfError(
            f"{missing} is not set, but others of ssl_ca_file, ssl_certificate_file and ssl_key_file are",
            where="[zookeeper] of the conf",
            way_out="set ssl_ca_file for TLS; and both of the others if the servers ask for a certificate",
        )
    tls = ZooKeeperTls(
        os.path.abspath(authority),
        None if certificate is None else os.path.abspath(certificate),
        None if key is None else os.path.abspath(key),
    )
    try:
        tls.context()
    except OSError as error:
        files = ", ".join(each for each in (authority, certificate, key) if each is not None)
        raise ConfError(
            f"ZooKeeper's files for TLS cannot be used: {error}",
            where=f"{files} ([zookeeper] of the conf)",
            way_out="give PEM files that the job's user can read; the key fits the certificate and has no password",
        ) from error
    return tls
