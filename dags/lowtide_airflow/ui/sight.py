"""Looks at one job for the page: at its place and store always, and at its control API while it lives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lowtide_airflow.client import JobClient
from lowtide_airflow.control import Control
from lowtide_airflow.errors import ControlRefused
from lowtide_airflow.job_look import AIRFLOW, JobLook, Life
from lowtide_airflow.jobs_file import JobEntry
from lowtide_airflow.known_snapshot import KnownSnapshot
from lowtide_airflow.ui.advice import advice, parted
from lowtide_airflow.ui.answers import JobAnswer, LifeLine, LifePhase, SnapshotLine, Trouble
from lowtide_snapshots.errors import SnapshotsError

__all__ = ["LIVE", "Sight", "life_lines"]

LIVE = (
    "phase",
    "started_ms",
    "seen_ms",
    "min_time_ms",
    "lag_ms",
    "holder",
    "held_s",
    "delivered_time_ms",
    "rates",
    "totals",
    "latency_ms",
    "troubles",
    "snapshots",
)
"""What of a job's status the page is told."""
STORE_EVERY_MS = 30_000
"""How often the store is looked through for snapshots that nobody committed."""
MOST_SNAPSHOTS = 200


class Sight:
    """One job as the page sees it; to be used by one thread at a time.

    Args:
        connection: the id of the Airflow connection to its place, for the answer.
        job: its name.
    """

    def __init__(self, connection: str, job: str) -> None:
        self._connection = connection
        self._job = job
        self._snapshots: list[SnapshotLine] = []
        self._commits: list[str] = []
        self._looked_ms = 0
        self._store_trouble: Trouble | None = None

    def look(self, client: JobClient, entry: JobEntry | None, now_ms: int) -> JobAnswer:
        """Look at all of it.

        Args:
            client: opened.
            entry: of the jobs file; None if it is not there.
            now_ms: this machine's time.

        Raises:
            SnapshotsError: its place in ZooKeeper does not answer.
        """
        look = client.look()
        said = client.lives()
        lives = life_lines(said, look)
        snapshots = self._known(client, now_ms)
        troubles = [] if self._store_trouble is None else [self._store_trouble]
        live, history = None, None
        if look.state == "running":
            try:
                live, history = _asked(client.control())
            except SnapshotsError as error:
                troubles.append(Trouble.of(error))
        ended_ms = lives[-1].ended_ms if lives else None
        why, to_do = advice(look, said, ended_ms or now_ms, snapshots, entry)
        return JobAnswer(
            job=self._job,
            connection=self._connection,
            asked_ms=now_ms,
            state=look.state,
            holder=look.holder or "",
            incarnation=look.incarnation,
            told_ms=look.told_ms,
            why=why,
            to_do=to_do,
            live=live,
            history=history,
            snapshots=snapshots,
            lives=lives,
            troubles=troubles,
        )

    def _known(self, client: JobClient, now_ms: int) -> list[SnapshotLine]:
        """The snapshots; the store is only looked through if the commits are others, or after a while."""
        commits = [commit.id for commit in client.commits()]
        if commits == self._commits and now_ms - self._looked_ms < STORE_EVERY_MS:
            return self._snapshots
        last = commits[-1] if commits else None
        try:
            with client.snapshots() as found:
                self._snapshots = [_line(known, last) for known in found.all()[-MOST_SNAPSHOTS:]]
            self._store_trouble = None
        except SnapshotsError as error:
            self._store_trouble = Trouble.of(error)
            self._snapshots = [_bare(commit, last) for commit in client.commits()[-MOST_SNAPSHOTS:]]
        self._commits, self._looked_ms = commits, now_ms
        return self._snapshots


def _asked(control: Control) -> tuple[dict[str, Any], dict[str, Any] | None]:
    status = control.status()
    try:
        history = control.history()
    except ControlRefused:
        history = None  # An older job tells none.
    return {name: status.get(name) for name in LIVE}, history


def life_lines(lives: Sequence[Life], look: JobLook) -> list[LifeLine]:
    """The lives as the page draws them: one that ended without a word was over when the next one began."""
    lines = []
    for before, life, after in zip([None, *lives], lives, [*lives[1:], None], strict=False):
        cause, way_out = parted(life.cause)
        phase: LifePhase = "stopped" if life.phase == "stopped" else "failed" if life.phase == "failed" else "gone"
        ended_ms, about = _ms(life.at), False
        if phase == "gone" and after is not None:
            ended_ms, about = _ms(after.since), True
        elif phase == "gone" and look.alive and life.incarnation == look.incarnation:
            phase, ended_ms = "running", None
        elif phase == "gone":
            ended_ms, about = max((ms for ms in (_ms(life.at), look.told_ms) if ms is not None), default=None), True
        lines.append(
            LifeLine(
                incarnation=life.incarnation,
                phase=phase,
                began_ms=_ms(life.since),
                ended_ms=ended_ms,
                about=about,
                cause=cause,
                way_out=way_out,
                commit=life.commit,
                begun_by=_begun_by(life, before),
            )
        )
    return lines


def _begun_by(life: Life, before: Life | None) -> str:
    key = life.submission or ""
    if key.startswith(AIRFLOW):
        return f"DAG {key.removeprefix(AIRFLOW).partition('/')[0]}"
    if key:
        return f"submission {key}"
    if before is not None and life.driver and life.driver == before.driver:
        return "its program, after the life before"
    return "a start by hand"


def _line(known: KnownSnapshot, last: str | None) -> SnapshotLine:
    manifest, commit = known.manifest, known.commit
    at = commit.at if commit is not None else manifest.created if manifest is not None else None
    return SnapshotLine(
        id=known.id,
        name=known.name,
        phase=known.phase,
        min_time_ms=known.min_time_ms,
        at_ms=_ms(at),
        parts=None if manifest is None else len(manifest.parts),
        rows=None if manifest is None else manifest.rows,
        bytes=None if manifest is None else manifest.bytes,
        incarnation=known.incarnation,
        last=known.id == last and commit is not None,
        why=known.why,
    )


def _bare(commit: Any, last: str | None) -> SnapshotLine:
    """A commit as ZooKeeper alone knows it."""
    return SnapshotLine(
        id=commit.id,
        name=commit.name,
        phase="committed",
        min_time_ms=commit.min_time_ms,
        at_ms=_ms(commit.at),
        parts=None,
        rows=None,
        bytes=None,
        incarnation=commit.incarnation,
        last=commit.id == last,
        why="",
    )


def _ms(at: str | None) -> int | None:
    return round(datetime.fromisoformat(at).timestamp() * 1000) if at else None
