"""Age of a job's last commit, over all of its lives. No I/O, no clock.

A life begins with what is stored: the commit's own time, by the clock of the machine that made it. From then on it
counts by this machine's monotonic clock, which no step of a wall clock moves.
"""

from __future__ import annotations

from datetime import datetime


class CommitAge:
    """The age of the last commit.

    Args:
        since: The time at which the job began to run, ISO: the age counts from there until a commit. None if unknown.
        wall: The time now, by this machine's wall clock.
        now_s: The same moment by a monotonic clock.
    """

    def __init__(self, since: str | None, wall: datetime, now_s: float) -> None:
        self._made_s = now_s
        if since is not None:
            self.committed(since, wall, now_s)

    def committed(self, at: str, wall: datetime, now_s: float) -> None:
        """Note that the last commit was made at this time, ISO; a time in the future counts as now."""
        self._made_s = now_s - max(0.0, (wall - datetime.fromisoformat(at)).total_seconds())

    def seconds(self, now_s: float) -> float:
        """Return the age in seconds."""
        return now_s - self._made_s
