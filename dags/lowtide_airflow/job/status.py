"""A job's status as ZooKeeper has it, whether the job runs or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lowtide_snapshots.job.life import Life
from lowtide_snapshots.job.standbys import Standby

State = Literal["unknown", "starting", "running", "stopped", "failed", "gone"]


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's status at one moment.

    Attributes:
        job: its name.
        known: whether the job was ever started.
        holder: the process that holds the lease; None while no driver runs the job.
        incarnation: the number of the current or last life; 0 before the first.
        life: the last report of the current or last life; None before the first.
        delivered_ms: the largest delivered time that was published (R18), ms since 1970; None before the first.
        slack_ms: the length of a tick; 0 for an unknown job.
        lanes: the most workers a level can have; 0 for an unknown job.
        parallelism: the workers of each later level, by the present leader; 0 while nobody leads.
        standbys: the programs that wait to take the job over, the longest first.
    """

    job: str
    known: bool
    holder: str | None
    incarnation: int
    life: Life | None
    delivered_ms: int | None
    slack_ms: int
    lanes: int
    parallelism: int = 0
    standbys: tuple[Standby, ...] = ()

    @property
    def alive(self) -> bool:
        """True while a process holds the lease."""
        return self.holder is not None

    @property
    def current(self) -> Life | None:
        """The report of the current life; None before it has reported anything."""
        return self.life if self.life is not None and self.life.incarnation == self.incarnation else None

    @property
    def finished(self) -> bool:
        """True once all sources of the job have ended and everything is delivered: nothing is left to run."""
        return self.state == "stopped" and self.current is not None and self.current.finished

    @property
    def state(self) -> State:
        """The state in one word.

        "unknown": never started. "starting": a process holds the lease, and runs nothing yet or nothing any more.
        "gone": the lease is free and the life has reported no end: it was killed, or cut off from ZooKeeper, which may
        be over in a moment. So it is after a hand-over, until a standby has taken the lease.
        """
        life = self.current
        if not self.known or not (self.incarnation or self.alive):
            return "unknown"
        if self.alive:
            return "running" if life is not None and life.phase == "running" else "starting"
        if life is None or life.phase not in ("stopped", "failed") or life.goes_on:
            return "gone"
        return "stopped" if life.phase == "stopped" else "failed"
