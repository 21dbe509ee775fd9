"""Answer about one job: from ZooKeeper and the store always, from its control API while the job runs."""

from __future__ import annotations

from typing import Any

from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.control import Control
from lowtide_airflow.job.snapshots import plain
from lowtide_airflow.jobs_file import JobEntry
from lowtide_airflow.ui.advice import advice
from lowtide_snapshots.commits.known import KnownSnapshot
from lowtide_snapshots.commits.log import Commit
from lowtide_snapshots.errors import ControlRefused, LowtideError
from lowtide_snapshots.page.answers import LIVE, JobAnswer, SnapshotLine, Trouble
from lowtide_snapshots.page.lives import life_lines, since_1970

STORE_EVERY_MS = 30_000
"""Interval of the searches for snapshots without a commit."""
MOST_SNAPSHOTS = 200


class JobPage:
    """One job's answers; for one thread at a time.

    Args:
        connection: the id of its Airflow connection.
        job: its name.
    """

    def __init__(self, connection: str, job: str) -> None:
        self._connection = connection
        self._job = job
        self._snapshots: list[SnapshotLine] = []
        self._commits: list[str] = []
        self._searched_ms = 0
        self._store_trouble: Trouble | None = None

    def answer(self, client: JobClient, entry: JobEntry | None, now_ms: int) -> JobAnswer:
        """Read everything about the job.

        Args:
            client: connected.
            entry: the job's in the jobs file; None if it has none.
            now_ms: this machine's time.

        Raises:
            LowtideError: ZooKeeper does not answer.
        """
        status = client.status()
        reports = client.lives()
        running = status.incarnation if status.alive else None
        lives = life_lines(reports, running=running, delivered_ms=status.delivered_ms)
        snapshots = self._read_snapshots(client, now_ms)
        troubles = [] if self._store_trouble is None else [self._store_trouble]
        live, history = None, None
        if status.state == "running":
            try:
                live, history = _read_control(client.control())
            except LowtideError as error:
                troubles.append(Trouble.of(error))
        ended_ms = lives[-1].ended_ms if lives else None
        why, to_do = advice(status, reports, ended_ms or now_ms, snapshots, entry)
        return JobAnswer(
            job=self._job,
            connection=self._connection,
            asked_ms=now_ms,
            state=status.state,
            holder=status.holder or "",
            incarnation=status.incarnation,
            delivered_ms=status.delivered_ms,
            why=why,
            to_do=to_do,
            live=live,
            history=history,
            snapshots=snapshots,
            lives=lives,
            troubles=troubles,
        )

    def _read_snapshots(self, client: JobClient, now_ms: int) -> list[SnapshotLine]:
        """The snapshots; the store is searched only if the commits have changed, or after a while."""
        commits = client.commits()
        ids = [commit.id for commit in commits]
        if ids == self._commits and now_ms - self._searched_ms < STORE_EVERY_MS:
            return self._snapshots
        last = ids[-1] if ids else None
        try:
            with client.snapshots() as found:
                self._snapshots = [_line(known, last) for known in found.all()[-MOST_SNAPSHOTS:]]
            self._store_trouble = None
        except LowtideError as error:
            self._store_trouble = Trouble.of(error)
            self._snapshots = [_line(_without_manifest(commit), last) for commit in commits[-MOST_SNAPSHOTS:]]
        self._commits, self._searched_ms = ids, now_ms
        return self._snapshots


def _read_control(control: Control) -> tuple[dict[str, Any], dict[str, Any] | None]:
    status = control.status()
    try:
        history = control.history()
    except ControlRefused:
        history = None  # An older job has none.
    return {name: status.get(name) for name in LIVE}, history


def _line(known: KnownSnapshot, last: str | None) -> SnapshotLine:
    values = plain(known)
    shown = ("id", "name", "phase", "min_time_ms", "parts", "rows", "bytes", "incarnation", "why")
    return SnapshotLine(
        **{name: values[name] for name in shown},
        at_ms=since_1970(values["committed"] or values["created"]),
        last=known.id == last and known.commit is not None,
    )


def _without_manifest(commit: Commit) -> KnownSnapshot:
    """A commit as ZooKeeper alone knows it."""
    time_ms, life = commit.min_time_ms, commit.incarnation
    return KnownSnapshot(commit.id, commit.name, "committed", time_ms, commit.manifest, life, commit, None, "")
