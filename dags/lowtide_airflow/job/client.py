"""Client of one job: reads ZooKeeper and the store, and calls the job's control API.

Reading, verifying, committing and pruning work with the job dead, and are fenced like everything a life writes. Only
taking a snapshot and stopping need the job itself.
"""

from __future__ import annotations

from typing import Self

from lowtide_airflow.errors import NotRunning, SinkUnknown
from lowtide_airflow.job.control import Control
from lowtide_airflow.job.folders import Folders
from lowtide_airflow.job.services import Services
from lowtide_airflow.job.snapshots import JobSnapshots
from lowtide_airflow.job.status import JobStatus
from lowtide_snapshots.commits.log import Commit, ZooKeeperCommitLog
from lowtide_snapshots.errors import TokenRefused
from lowtide_snapshots.job.control_address import ControlAddress
from lowtide_snapshots.job.life import Life
from lowtide_snapshots.job.registry import jobs
from lowtide_snapshots.zookeeper.connection import Connection


class JobClient:
    """One job, for one thread at a time; a context that is connected to ZooKeeper.

    Every method may raise `ZooKeeperUnavailable` and `ZooKeeperRefused`.
    """

    def __init__(self, services: Services, job: str, connection: Connection | None = None) -> None:
        """Name the job; nothing is connected yet.

        Args:
            services: the services that it uses.
            job: its name.
            connection: an open session that others use too, in the same thread; by default one of its own.
        """
        self.services = services
        self.job = job
        self._store = services.job_store(job, connection)
        self._log = ZooKeeperCommitLog(self._store)

    def open(self) -> Self:
        """Connect to ZooKeeper."""
        self._store.open()
        return self

    def close(self) -> None:
        """Disconnect."""
        self._store.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def status(self) -> JobStatus:
        """Return the job's status."""
        record = self._store.record()
        # The lease is read first: what a life reports before it frees the lease is then seen.
        leader = self._store.leader()
        incarnation, node, tick = self._store.incarnation(), self._store.life(), self._store.published()
        slack_ms = record.slack_ms if record else 0
        return JobStatus(
            job=self.job,
            known=record is not None,
            holder=None if leader is None else leader[0],
            incarnation=incarnation,
            life=Life.of(node) if node else None,
            delivered_ms=None if tick is None else tick * slack_ms,
            slack_ms=slack_ms,
            lanes=record.lanes if record else 0,
            parallelism=0 if leader is None else leader[1].parallelism,
            standbys=tuple(self._store.standbys()),
        )

    def lives(self) -> list[Life]:
        """Return the last reports of the last lives, oldest first."""
        return [Life.of(node) for node in self._store.lives()]

    def submission(self, key: str) -> int | None:
        """Return the life that a submission began; None if it has begun none."""
        return self._store.submission(key)

    def delivered_ms(self) -> int | None:
        """Return the time before which everything is durable in the sinks for good (R18); None before the first.

        It is stored before it is published, so it is the same with the job dead.
        """
        return self.status().delivered_ms

    def folders(self, sink: str) -> Folders:
        """Return the folders of a sink of files (errors: SinkUnknown)."""
        places = self._store.places()
        if sink not in places:
            known = ", ".join(f'"{each}"' for each in sorted(places)) or "none"
            raise SinkUnknown(
                f'job "{self.job}" has no sink "{sink}" that writes files; its sinks of files: {known}',
                where=f"{self.services.zookeeper}, /{self.services.root}",
                way_out="give the sink's name in the flow; or start the job, if it has not run with this sink yet",
            )
        return Folders.of(places[sink])

    def commits(self) -> list[Commit]:
        """Return all commits, ascending."""
        return self._log.commits()

    def last_commit(self) -> Commit | None:
        """Return the commit to recover from; None before the first."""
        return self._log.last()

    def snapshots(self) -> JobSnapshots:
        """Open the job's snapshots; a context that closes the store's connections (errors: `Services.open_files`)."""
        return JobSnapshots(self._log, self.services.open_files())

    def control(self) -> Control:
        """Return the control API of the current life.

        Raises:
            NotRunning: the job does not run, or is still starting.
            TokenRefused: the connection has no token.
        """
        status = self.status()
        life = status.current
        if status.state != "running" or life is None or not life.control:
            raise NotRunning(
                f'job "{self.job}" is not running: it is {_in_words(status)}',
                where=f"{self.services.zookeeper}, /{self.services.root}",
                way_out="start or recover it, then try again",
            )
        if not self.services.token:
            raise TokenRefused(
                f'the control API of job "{self.job}" needs a token, and the Airflow connection has none',
                where=f"its control API at {life.control}",
                way_out="set [control].token_file for the job, and its content as the password of the Airflow "
                "connection",
            )
        at = ControlAddress(self.job, life.incarnation, life.control, life.control_certificate, life.control_proof)
        return Control(at, self.services.token)


def jobs_at(services: Services) -> list[str]:
    """Return the names of all jobs that were ever started there."""
    return jobs(
        services.zookeeper,
        root=services.root,
        limit_s=services.limit_s,
        auth=services.zookeeper_auth,
        tls=services.zookeeper_tls,
    )


def _in_words(status: JobStatus) -> str:
    life = status.current
    if status.state == "failed" and life is not None:
        return f"ended: {life.cause}"
    words = {
        "unknown": "unknown; it was never started",
        "starting": f"starting or ending, by {status.holder}",
        "stopped": "stopped",
        "gone": "gone without reporting an end, so it was probably killed",
    }
    return words.get(status.state, status.state)
