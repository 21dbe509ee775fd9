"""The state file of a job: its current life, or its last one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from lowtide.process.identity import Process
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.control_address import ControlAddress

Phase = Literal["starting", "standby", "running", "stopping", "stopped", "finished", "failed"]
ENDED: tuple[Phase, ...] = ("stopped", "finished", "failed")


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a job, as `state.json` holds it. Times are UTC.

    Attributes:
        name: The job's name, which is its flow's.
        life: The mark of this life's processes.
        phase: "standby" waits for the lease of a job that another program runs. "stopped" ended because somebody asked
            for it, "finished" because all its sources had ended and everything was delivered, "failed" for any other
            reason.
        runner: The process that runs the job; None while the supervisor has not started it.
        supervisor: The process that watches the runner; None where it runs in the foreground.
        step: What is done now, in words, while it starts.
        cause: Why it ended; None until then.
        exit_code: What the runner ended with; None while it runs.
        incarnation: The number of this life.
        address: Where the job's service listens; empty before.
        control: Where its control API listens, `host:port`; empty before.
        control_certificate: What it shows there, and a proof of both, as `ControlAddress` has them.
        restarts: How often the runner has restarted the job.
        jvm: Spark's driver where it is this runner's child.
    """

    name: str
    life: str
    phase: Phase
    started_at: datetime
    runner: Process | None = None
    supervisor: Process | None = None
    jvm: Process | None = None
    step: str = ""
    cause: Cause | None = None
    exit_code: int | None = None
    incarnation: int | None = None
    address: str = ""
    control: str = ""
    control_certificate: str = ""
    control_proof: str = ""
    restarts: int = 0
    ready_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """True once this life is recorded as over."""
        return self.phase in ENDED

    def control_address(self) -> ControlAddress | None:
        """Return where its control API listens; None before it does."""
        return ControlAddress.of(self.name, msgspec.structs.asdict(self)) if self.control else None

    def seen(self) -> JobState:
        """Return the state as it is now: a life whose processes have gone without a word has failed."""
        if self.ended or any(process is not None and process.alive() for process in (self.runner, self.supervisor)):
            return self
        who = f"process {self.runner.pid}" if self.runner else "it"
        gone = Cause("loss", f"{who} was killed, or the machine went down")
        return msgspec.structs.replace(self, phase="failed", cause=self.cause or gone)


def now() -> datetime:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def read_state(file: Path) -> JobState | None:
    """Return the state in a file; None if there is none, or one that another version wrote."""
    try:
        values = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        # An older version wrote the cause as a text.
        return msgspec.convert(values | {"cause": Cause.of(values.get("cause"))}, JobState)
    except (OSError, msgspec.MsgspecError):
        return None


def write_state(file: Path, state: JobState) -> None:
    """Put a state into a file: a reader sees the one before or this one, never a part."""
    draft = file.with_suffix(".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(state)) + b"\n")
    draft.replace(file)
