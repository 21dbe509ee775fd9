"""The answers to the page's requests: plain values, none of which has a secret.

Times are ms since 1970, and None if unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from lowtide_snapshots.errors import LowtideError

LIVE = (
    "phase",
    "started_ms",
    "seen_ms",
    "min_time_ms",
    "lag_ms",
    "holder",
    "held_s",
    "to_do",
    "delivered_time_ms",
    "rates",
    "totals",
    "latency_ms",
    "hops",
    "steps",
    "levels",
    "kept",
    "segments",
    "fronts",
    "sinks",
    "calls",
    "refused",
    "troubles",
    "found",
    "snapshots",
    "connections",
    "standbys",
)
"""Keys of a job's full status, `GET /status` of its control API, that the page gets."""

LifePhase = Literal["running", "stopped", "failed", "gone"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that could not be read: what, where, and what to do."""

    what: str
    where: str = ""
    way_out: str = ""

    @classmethod
    def of(cls, error: LowtideError) -> Self:
        """Return that of an error."""
        return cls(error.what, error.where, error.way_out)


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job among all.

    Attributes:
        job: its name.
        connection: the id of its Airflow connection; empty outside of Airflow.
        state: see `JobAnswer`; "unreachable" if its services do not answer.
        listed: whether it is in the jobs file.
    """

    job: str
    connection: str
    state: str
    listed: bool


@dataclass(frozen=True, slots=True)
class JobsAnswer:
    """All jobs that a server of the page knows.

    Attributes:
        asked_ms: this machine's time.
        server: what serves the page: Airflow's API server, or the job itself by its control API.
        kept_ms: for how long the page need not ask again.
        jobs: those of the jobs file first, then the others that ZooKeeper knows; of a control API its own job alone.
        troubles: what could not be read.
    """

    asked_ms: int
    server: Literal["airflow", "job"]
    kept_ms: int
    jobs: list[JobLine]
    troubles: list[Trouble]


@dataclass(frozen=True, slots=True)
class LifeLine:
    """One life of a job.

    Attributes:
        incarnation: its number.
        phase: "gone" if it ended without reporting it.
        began_ms: when it began to run.
        ended_ms: None while it runs.
        about: whether the end is an estimate: it was alive then, and over soon after.
        cause: why it ended; empty if it reported nothing.
        way_out: what to do, as far as the cause says.
        commit: the snapshot that it began from; None for none.
        begun_by: what began it: a DAG, its own program after the life before, or a start by hand.
    """

    incarnation: int
    phase: LifePhase
    began_ms: int | None
    ended_ms: int | None
    about: bool
    cause: str
    way_out: str
    commit: str | None
    begun_by: str


@dataclass(frozen=True, slots=True)
class SnapshotLine:
    """One snapshot of any life.

    Attributes:
        phase: "committed", "sealed" or "over"; in the life that takes it also "taking" and "failed".
        min_time_ms: its T: it holds everything before it; None before that is known.
        at_ms: when it was committed, or sealed or given up if it is not.
        rows, bytes, parts: None if they are not known, or its manifest cannot be read.
        last: whether it is the commit to recover from.
        why: why its manifest cannot be read, or why it failed; empty if neither is so.
    """

    id: str
    name: str | None
    phase: str
    min_time_ms: int | None
    at_ms: int | None
    parts: int | None
    rows: int | None
    bytes: int | None
    incarnation: int
    last: bool
    why: str


@dataclass(frozen=True, slots=True)
class JobAnswer:
    """One job.

    Attributes:
        asked_ms: this machine's time.
        state: "unknown" (never started), "starting", "running", "stopping", "stopped", "failed", "gone" (ended without
            reporting it); "unreachable" if its services do not answer, and then nothing else is known.
        holder: the process that holds the lease; empty for none.
        incarnation: that of the current or last life; 0 if there was none.
        delivered_ms: everything before it is durable in the sinks (R18).
        why: why it does not run; empty while it runs.
        to_do: what to do about it, a sentence each.
        live: the keys `LIVE` of its control API's status; None if that does not answer.
        history: `GET /history` of its control API; None if that does not answer.
        snapshots: ascending.
        lives: ascending.
        troubles: what could not be read.
    """

    job: str
    connection: str
    asked_ms: int
    state: str
    holder: str = ""
    incarnation: int = 0
    delivered_ms: int | None = None
    why: str = ""
    to_do: list[str] = field(default_factory=list)
    live: Mapping[str, Any] | None = None
    history: Any = None
    snapshots: list[SnapshotLine] = field(default_factory=list)
    lives: list[LifeLine] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
