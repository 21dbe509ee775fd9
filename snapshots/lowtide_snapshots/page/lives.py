"""The lives of a job, as the page draws them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lowtide_snapshots.job.life import AIRFLOW, Life
from lowtide_snapshots.page.answers import LifeLine, LifePhase


def life_lines(lives: Sequence[Life], *, running: int | None, delivered_ms: int | None) -> list[LifeLine]:
    """Return the lives, oldest first; one without a reported end was over when the next one began.

    Args:
        lives: their last reports, oldest first.
        running: the number of the one that runs; None if none does.
        delivered_ms: the delivered time, a sign of the last one.
    """
    lines = []
    for before, life, after in zip([None, *lives], lives, [*lives[1:], None], strict=False):
        phase: LifePhase = "stopped" if life.phase == "stopped" else "failed" if life.phase == "failed" else "gone"
        ended_ms, about = since_1970(life.at), False
        if phase == "gone" and after is not None:
            ended_ms, about = since_1970(after.since), True
        elif phase == "gone" and life.incarnation == running:
            phase, ended_ms = "running", None
        elif phase == "gone":
            signs = (since_1970(life.at), delivered_ms)
            ended_ms, about = max((ms for ms in signs if ms is not None), default=None), True
        cause = life.cause
        lines.append(
            LifeLine(
                incarnation=life.incarnation,
                phase=phase,
                began_ms=since_1970(life.since),
                ended_ms=ended_ms,
                about=about,
                cause="" if cause is None else cause.story,
                way_out="" if cause is None else cause.way_out,
                commit=life.commit,
                begun_by=_begun_by(life, before),
            )
        )
    return lines


def since_1970(at: str | None) -> int | None:
    """Return an ISO time in ms since 1970; None for none."""
    return round(datetime.fromisoformat(at).timestamp() * 1000) if at else None


def _begun_by(life: Life, before: Life | None) -> str:
    key = life.submission or ""
    if key.startswith(AIRFLOW):
        return f"DAG {key.removeprefix(AIRFLOW).partition('/')[0]}"
    if key:
        return f"submission {key}"
    if before is not None and life.driver and life.driver == before.driver:
        return "its program, after the previous life"
    return "a start by hand"
