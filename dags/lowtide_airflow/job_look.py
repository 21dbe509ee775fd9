"""How it stands with a job, as ZooKeeper knows it whether the job lives or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

__all__ = ["AIRFLOW", "JobLook", "Life", "State"]

AIRFLOW = "airflow:"
"""With what the key of a submission by a task of Airflow begins; its DAG's id follows."""

State = Literal["unknown", "starting", "running", "stopped", "failed", "gone"]


@dataclass(frozen=True, slots=True)
class Life:
    """What a life said of itself last.

    Attributes:
        incarnation: its number.
        phase: "running", "stopped" or "failed"; one that was killed has said nothing of its end and is still "running",
            unless it was being stopped on purpose.
        cause: why it ended; empty while it goes on.
        control: where its control API listens, `host:port`.
        driver: the process that ran it, for people.
        at: when it said so, ISO, UTC.
        since: when it began to, ISO, UTC; None where that is not known.
        submission: the key of the submission that it is; None for one without.
        commit: the snapshot that it began from; None for none.
        delivery: "exactly_once" or "at_least_once"; empty where it does not say so.
        control_certificate: what its control API shows; empty likewise.
        control_proof: of address and certificate, as `ControlAddress` has it; empty likewise.
        ran: of one that has ended, whether it had come to run; None where it does not say so.
        again: of one that has ended, whether its program begins another by itself; None where it does not say so.
    """

    incarnation: int
    phase: str
    cause: str
    control: str
    driver: str
    at: str
    since: str | None = None
    submission: str | None = None
    commit: str | None = None
    delivery: str = ""
    control_certificate: str = ""
    control_proof: str = ""
    ran: bool | None = None
    again: bool | None = None

    @property
    def is_a_tasks_failure(self) -> bool:
        """Whether it is a start by a task of Airflow that failed, so that the task knows and sees to it."""
        return self.ran is False and self.phase == "failed" and (self.submission or "").startswith(AIRFLOW)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """A life out of what its node holds; what an older version did not say is empty."""

        def text(name: str) -> str:
            return str(said.get(name) or "")

        return cls(
            incarnation=int(said.get("incarnation") or 0),
            phase="stopped" if text("phase") == "stopping" else text("phase"),
            cause=text("cause"),
            control=text("control"),
            driver=text("driver"),
            at=text("at"),
            since=text("since") or None,
            submission=text("submission") or None,
            commit=text("commit") or None,
            delivery=text("delivery"),
            control_certificate=text("control_certificate"),
            control_proof=text("control_proof"),
            ran=said.get("ran"),
            again=said.get("again"),
        )


@dataclass(frozen=True, slots=True)
class JobLook:
    """One look at a job's place.

    Attributes:
        job: its name.
        known: whether there ever was such a job.
        holder: who holds the lease; None if nobody does, which is so while no driver runs it.
        incarnation: the number of its current or last life; 0 if it has had none.
        life: what the current or last life said of itself last; None if none has said anything.
        told_ms: the largest delivered time that was told outside (R18), ms since 1970; None if none was.
        slack_ms: the length of a tick; 0 for a job that is not known.
        lanes: the most workers of a level; 0 likewise.
    """

    job: str
    known: bool
    holder: str | None
    incarnation: int
    life: Life | None
    told_ms: int | None
    slack_ms: int
    lanes: int

    @property
    def alive(self) -> bool:
        """Whether somebody holds the lease."""
        return self.holder is not None

    @property
    def said(self) -> Life | None:
        """What the current life has said of itself; None if it has said nothing yet."""
        return self.life if self.life is not None and self.life.incarnation == self.incarnation else None

    @property
    def state(self) -> State:
        """In one word.

        "unknown": never started. "starting": somebody holds the lease, and runs nothing yet, or nothing any more.
        "gone": nobody holds the lease, and the life has said nothing of its end: it was killed, or cut off from
        ZooKeeper, which may be over in a moment.
        """
        life = self.said
        if not self.known or not (self.incarnation or self.alive):
            return "unknown"
        if self.alive:
            return "running" if life is not None and life.phase == "running" else "starting"
        if life is None or life.phase not in ("stopped", "failed"):
            return "gone"
        return "stopped" if life.phase == "stopped" else "failed"

    def as_object(self) -> dict[str, Any]:
        """As plain values, with `state`."""
        return {**asdict(self), "alive": self.alive, "state": self.state}
