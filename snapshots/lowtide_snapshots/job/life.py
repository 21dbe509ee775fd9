"""The report of one life, as its node in ZooKeeper has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from lowtide_snapshots.cause import Cause

AIRFLOW = "airflow:"
"""Prefix of the submission keys of Airflow's tasks; the DAG's id follows."""


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
        finished: whether it was stopped because all its sources had ended and everything was delivered.
        log: where its own log is, `host:file`; empty if unknown, or if it is the output of its program.
        again: whether its program restarts it after this end; None if unknown.
        handed_over: whether it was stopped for a standby to continue the job.
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
    finished: bool = False
    log: str = ""
    handed_over: bool = False

    @property
    def goes_on(self) -> bool:
        """True for one that was stopped for a standby to continue the job, before its sources had ended."""
        return self.phase == "stopped" and self.handed_over and not self.finished

    @property
    def is_failed_task_start(self) -> bool:
        """True for a start by an Airflow task that failed: that task handles it."""
        return self.ran is False and self.phase == "failed" and (self.submission or "").startswith(AIRFLOW)

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Self:
        """Read a life from its node; what an older version did not write is empty."""
        known = {each.name: node[each.name] for each in fields(cls) if node.get(each.name) is not None}
        life = cls(**known | {"cause": Cause.of(known.get("cause"))})
        return replace(life, phase="stopped") if life.phase == "stopping" else life
