"""A job's status as ZooKeeper has it, whether the job runs or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

from lowtide_snapshots.cause import Cause

__all__ = ["AIRFLOW", "JobStatus", "Life", "State"]

AIRFLOW = "airflow:"
"""Prefix of the submission keys of Airflow's tasks; the DAG's id follows."""

State = Literal["unknown", "starting", "running", "stopped", "failed", "gone"]


@dataclass(frozen=True, slots=True)
class Life:
    """The last report of one life.

    Attributes:
        incarnation: its number.
        phase: "running", "stopped" or "failed"; still "running" if it was killed, unless it was being stopped.
        cause: why it ended; None until it does.
        control: the address of its control API, `host:port`.
        driver: the process that ran it, for people to read.
        at: when it reported, ISO, UTC.
        since: when it began to run, ISO, UTC; None if unknown.
        submission: the key of the submission that began it; None for one without.
        commit: the snapshot that it began from; None for none.
        delivery: "exactly_once" or "at_least_once"; empty if unknown.
        control_certificate: the fingerprint of its control API's certificate; empty if unknown.
        control_proof: the proof of address and certificate, see `ControlAddress`; empty if unknown.
        ran: whether it had come to run before it ended; None if unknown.
        again: whether its program restarts it after this end; None if unknown.
    """

    incarnation: int = 0
    phase: str = ""
    cause: Cause | None = None
    control: str = ""
    driver: str = ""
    at: str = ""
    since: str | None = None
    submission: str | None = None
    commit: str | None = None
    delivery: str = ""
    control_certificate: str = ""
    control_proof: str = ""
    ran: bool | None = None
    again: bool | None = None

    @property
    def is_failed_task_start(self) -> bool:
        """Whether it is a start by an Airflow task that failed: that task handles it."""
        return self.ran is False and self.phase == "failed" and (self.submission or "").startswith(AIRFLOW)

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Self:
        """Read a life from its node; what an older version did not write is empty."""
        known = {each.name: node[each.name] for each in fields(cls) if node.get(each.name) is not None}
        life = cls(**known | {"cause": Cause.of(known.get("cause"))})
        return replace(life, phase="stopped") if life.phase == "stopping" else life


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
    """

    job: str
    known: bool
    holder: str | None
    incarnation: int
    life: Life | None
    delivered_ms: int | None
    slack_ms: int
    lanes: int

    @property
    def alive(self) -> bool:
        """Whether a process holds the lease."""
        return self.holder is not None

    @property
    def current(self) -> Life | None:
        """The report of the current life; None before it has reported anything."""
        return self.life if self.life is not None and self.life.incarnation == self.incarnation else None

    @property
    def state(self) -> State:
        """The state in one word.

        "unknown": never started. "starting": a process holds the lease, and runs nothing yet or nothing any more.
        "gone": the lease is free and the life has reported no end: it was killed, or cut off from ZooKeeper, which may
        be over in a moment.
        """
        life = self.current
        if not self.known or not (self.incarnation or self.alive):
            return "unknown"
        if self.alive:
            return "running" if life is not None and life.phase == "running" else "starting"
        if life is None or life.phase not in ("stopped", "failed"):
            return "gone"
        return "stopped" if life.phase == "stopped" else "failed"
