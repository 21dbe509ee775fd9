"""The page's answer about a running job, of what its life knows and what ZooKeeper has of lives and commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from lowtide.status.history import HistoryView
from lowtide.status.job_view import JobView, SnapshotView
from lowtide_snapshots.commits.record import Commit
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.page.answers import LIVE, JobAnswer, JobLine, JobsAnswer, LifeLine, SnapshotLine
from lowtide_snapshots.page.lives import since_1970

State = Literal["starting", "running", "stopping", "failed"]
STATES: Mapping[str, State] = {"starting": "starting", "stopping": "stopping", "ended": "failed"}
ONLY_JOB_KEPT_MS = 3_600_000
"""The page shows the state of the one job by the job's own answers."""
NEXT_LIFE = "Its program begins the next life in a moment, unless too many have ended: see `lowtide status`."
IN_VAIN = "Then start it again: `lowtide recover flow.py`. Its program does not, because the next life would end too."


def jobs_answer(view: JobView, now_ms: int) -> JobsAnswer:
    """Return the one job that a control API knows."""
    line = JobLine(view.job, connection="", state=_state(view), listed=False)
    return JobsAnswer(now_ms, "job", ONLY_JOB_KEPT_MS, [line], troubles=[])


def job_answer(
    view: JobView,
    history: HistoryView | None,
    snapshots: Sequence[SnapshotLine],
    lives: Sequence[LifeLine],
    *,
    now_ms: int,
) -> JobAnswer:
    """Return what the page shows.

    Args:
        view: the job's.
        history: what has come since the page asked last.
        snapshots: the job's, ascending.
        lives: the job's, ascending.
        now_ms: this machine's time.
    """
    cause = view.cause
    to_do: list[str] = []
    if cause is not None:
        to_do = [_sentence(cause.way_out)] if cause.way_out else []
        to_do.append(IN_VAIN if cause.kind == "flow" else NEXT_LIFE)
    return JobAnswer(
        job=view.job,
        connection="",
        asked_ms=now_ms,
        state=_state(view),
        incarnation=view.incarnation,
        delivered_ms=view.delivered_time_ms,
        why="" if cause is None else cause.story,
        to_do=to_do,
        live={name: getattr(view, name) for name in LIVE},
        history=history,
        snapshots=list(snapshots),
        lives=list(lives),
    )


def snapshot_lines(
    commits: Iterable[Commit], manifest_at: Callable[[int], Manifest | None], views: Iterable[SnapshotView]
) -> list[SnapshotLine]:
    """Return a job's commits, then those of the present life's snapshots that are not committed.

    Args:
        commits: all, ascending.
        manifest_at: the manifest of a commit's tick, as far as the life knows it; parts and sizes come from there.
        views: the snapshots of the present life.
    """
    known = list(commits)
    lines = [_committed(commit, _manifest_of(commit, manifest_at), last=commit is known[-1]) for commit in known]
    ids = {commit.id for commit in known}
    return [*lines, *(_uncommitted(view) for view in views if view.phase != "committed" and view.id not in ids)]


def _manifest_of(commit: Commit, manifest_at: Callable[[int], Manifest | None]) -> Manifest | None:
    """A commit's manifest, if it is known; two commits may have one T."""
    found = manifest_at(commit.tick)
    return found if found is not None and found.id == commit.id else None


def _committed(commit: Commit, manifest: Manifest | None, *, last: bool) -> SnapshotLine:
    return SnapshotLine(
        id=commit.id,
        name=commit.name,
        phase="committed",
        min_time_ms=commit.min_time_ms,
        at_ms=since_1970(commit.at),
        parts=None if manifest is None else len(manifest.parts),
        rows=None if manifest is None else manifest.rows,
        bytes=None if manifest is None else manifest.bytes,
        incarnation=commit.incarnation,
        last=last,
        why="",
    )


def _uncommitted(view: SnapshotView) -> SnapshotLine:
    over = view.phase != "taking"
    began_ms = since_1970(view.began) or 0
    return SnapshotLine(
        id=view.id,
        name=view.name,
        phase=view.phase,
        min_time_ms=view.min_time_ms,
        at_ms=began_ms + round(view.took_s * 1000) if over else None,
        parts=view.parts,
        rows=view.rows if over else None,
        bytes=view.bytes if over else None,
        incarnation=int(view.id.partition("-")[0]),
        last=False,
        why="" if view.why is None else str(view.why),
    )


def _state(view: JobView) -> State:
    return STATES.get(view.phase, "running")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
