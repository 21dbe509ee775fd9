"""A job from outside, without Airflow: what ZooKeeper, the store and the job's control API know, and what they do.

    with JobClient(Place("127.0.0.1:2181", snapshots_url="/var/lib/lowtide/snapshots", token=token), "orders") as job:
        print(job.look().state, job.delivered_ms())

What it reads and commits it does in ZooKeeper and the store, so that it works with the job dead; what it writes is
fenced as everything that a life writes. Only taking a snapshot and stopping need the job itself.
"""

from __future__ import annotations

from typing import Any, Self

from lowtide_airflow.control import Control
from lowtide_airflow.errors import NotRunning, TokenRefused
from lowtide_airflow.job_look import JobLook, Life
from lowtide_airflow.job_snapshots import JobSnapshots
from lowtide_airflow.place import Place
from lowtide_snapshots.commits.log import Commit, ZooKeeperCommitLog
from lowtide_snapshots.job.control_address import ControlAddress
from lowtide_snapshots.job.registry import jobs

__all__ = ["JobClient", "jobs_at"]


class JobClient:
    """One job, to be used by one thread at a time; a context.

    Every method may raise `ZooKeeperUnavailable` and `ZooKeeperRefused`; those that ask the job itself `NotRunning`,
    `ControlUnreachable`, `TokenRefused` and `ControlRefused`.
    """

    def __init__(self, place: Place, job: str) -> None:
        """Say where the job is; nothing is connected yet."""
        self.place = place
        self.job = job
        self._store = place.job_store(job)
        self._log = ZooKeeperCommitLog(self._store)

    def open(self) -> Self:
        """Connect to ZooKeeper."""
        self._store.open()
        return self

    def close(self) -> None:
        """End the connection."""
        self._store.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_raised: object) -> None:
        self.close()

    # -- what is known of it, dead or alive ------------------------------------------------------------------------

    def look(self) -> JobLook:
        """How it stands with the job."""
        record = self._store.record()
        # The lease is read first: what a life says before it lets go of it is then seen.
        holder = self._store.holder()
        incarnation, said, told = self._store.incarnation(), self._store.life(), self._store.told()
        slack_ms = record.slack_ms if record else 0
        return JobLook(
            job=self.job,
            known=record is not None,
            holder=holder,
            incarnation=incarnation,
            life=Life.of(said) if said else None,
            told_ms=None if told is None else told * slack_ms,
            slack_ms=slack_ms,
            lanes=record.lanes if record else 0,
        )

    def lives(self) -> list[Life]:
        """What each of the last lives has said of itself last, oldest first."""
        return [Life.of(said) for said in self._store.lives()]

    def submission(self, key: str) -> int | None:
        """The life that a submission began; None if it has begun none."""
        return self._store.submission(key)

    def delivered_ms(self) -> int | None:
        """Everything before it is durable in the sinks, and stays so (R18); None if nothing was told yet.

        It is read where it is stored before anybody is told, so it is the same with the job dead.
        """
        return self.look().told_ms

    def commits(self) -> list[Commit]:
        """All commits, ascending."""
        return self._log.commits()

    def last_commit(self) -> Commit | None:
        """The one to recover from; None before the first."""
        return self._log.last()

    def snapshots(self) -> JobSnapshots:
        """Its snapshots in the store; a context, which ends the store's connections (errors: `Place.open_files`)."""
        return JobSnapshots(self._log, self.place.open_files())

    # -- what only a running job does ------------------------------------------------------------------------------

    def control(self) -> Control:
        """The control API of the present life.

        Raises:
            NotRunning: nobody runs the job, or it has only begun to start.
            TokenRefused: no token is known.
        """
        look = self.look()
        life = look.said
        if look.state != "running" or life is None or not life.control:
            raise NotRunning(
                f'job "{self.job}" does not run: it is {_in_words(look)}',
                where=f"{self.place.zookeeper}, /{self.place.root}",
                way_out="start or recover it, then ask again",
            )
        if not self.place.token:
            raise TokenRefused(
                f'the control API of job "{self.job}" asks for a token, and none is known',
                where=f"its control API at {life.control}",
                way_out="give the job a [control].token_file, and the Airflow connection its content as password",
            )
        at = ControlAddress(self.job, life.incarnation, life.control, life.control_certificate, life.control_proof)
        return Control(at, self.place.token)

    def status(self) -> dict[str, Any]:
        """Everything that is known of the running job, as its control API tells it."""
        return self.control().status()


def jobs_at(place: Place) -> list[str]:
    """The names of all jobs that were ever started there."""
    return jobs(place.zookeeper, root=place.root, limit_s=place.limit_s, auth=place.zookeeper_auth)


def _in_words(look: JobLook) -> str:
    life = look.said
    if look.state == "failed" and life is not None:
        return f"ended: {life.cause}"
    words = {
        "unknown": "not known, it was never started",
        "starting": f"starting or ending, by {look.holder}",
        "stopped": "stopped",
        "gone": "gone without a word, so it was killed",
    }
    return words.get(look.state, look.state)
