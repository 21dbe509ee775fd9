"""Detects from a job's status that it has died; values in, a value out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from lowtide_airflow.job.status import JobStatus
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.life import Life

MAX_DEATHS = 5
"""Limit on lives that end by themselves before a person is asked."""
WITHIN_S = 1800.0
"""The time in which they are counted."""

GONE_S = 3.0
"""Time for the lease to be free if the life reported no end: one that was cut off from ZooKeeper takes the lease
again within a third of its session timeout."""
FAILED_S = 30.0
"""Time for it to be free if the life reported its end, but not whether its program restarts it: that pauses for at
most 15 s."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a life that was not requested, and after which its program has not restarted it.

    Attributes:
        job: the job's name.
        incarnation: the life.
        cause: why it ended, for people, as far as that is known.
        delivered_at_death_ms: the largest delivered time published until then; None if there was none.
    """

    job: str
    incarnation: int
    cause: str
    delivered_at_death_ms: int | None

    def as_object(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


class Deaths:
    """Reports each death of a job once.

    A life reported dead that holds the lease again was only cut off: its real death is reported later. If the count of
    lives starts over, because the job's nodes in ZooKeeper were lost or are other ones, earlier reports are forgotten.

    Args:
        reported: the last life whose death was reported; lives up to it are not reported again. The attribute goes
            down when a report is taken back.
        gone_s: how long the lease must be free if the life reported no end.
        failed_s: how long it must be free if the life reported its end.
    """

    def __init__(self, reported: int = 0, *, gone_s: float = GONE_S, failed_s: float = FAILED_S) -> None:
        self.reported = reported
        self._gone_s = gone_s
        self._failed_s = failed_s
        self._free: tuple[int, str] | None = None
        self._since_s = 0.0

    def observe(self, status: JobStatus, now_s: float) -> Death | None:
        """Take in a status of the job; returns the death to report, if there is one.

        Args:
            status: the job's.
            now_s: a monotonic clock's time.
        """
        state = status.state
        held_again = status.alive and status.incarnation <= self.reported
        if state != "unknown" and (held_again or status.incarnation < self.reported):
            self.reported = max(status.incarnation - 1, 0)
        if state not in ("failed", "gone") or status.incarnation <= self.reported:
            self._free = None
            return None
        if self._free != (status.incarnation, state):
            self._free, self._since_s = (status.incarnation, state), now_s
        life = status.current
        for_good = state == "gone" or (life is not None and life.again is False)
        if now_s - self._since_s < (self._gone_s if for_good else self._failed_s):
            return None
        self.reported = status.incarnation
        return Death(status.job, status.incarnation, _cause(status), status.delivered_ms)


def _cause(status: JobStatus) -> str:
    """Return why a life that is dead has ended, as far as that is known."""
    life = status.current
    if life is not None and life.phase == "failed":
        return str(life.cause or "")
    if life is not None and life.goes_on:
        return "it was handed over, but no standby has continued it"
    return "it was killed, or its machine went down"


def why_not_restart(
    cause: Cause | None,
    lives: Sequence[Life],
    now: datetime,
    *,
    max_deaths: int = MAX_DEATHS,
    within_s: float = WITHIN_S,
) -> tuple[str, str] | None:
    """Return why a restart needs a person's decision, as a word and a sentence; None if it does not.

    Args:
        cause: of the death; None if it is not known.
        lives: the job's last lives, oldest first.
        now: the time, with a time zone.
        max_deaths: how many lives may end by themselves.
        within_s: the time in which they are counted.
    """
    if cause is not None and cause.kind == "flow":
        return "in_vain", f"a function or a record of the flow ended it and would end the next life too: {cause}"
    ended = [
        life
        for life in lives
        if life.phase != "stopped" and life.at and (now - datetime.fromisoformat(life.at)).total_seconds() <= within_s
    ]
    if len(ended) > max_deaths:
        return (
            "too_often",
            f"{len(ended)} lives ended within {within_s:g} s, the last one with: {cause or 'no report'}",
        )
    return None
