"""What Airflow's REST API says of DAGs, their runs and tasks: only what is used here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["Dag", "DagRun", "Health", "TaskRun"]

ENDED = frozenset(("success", "failed"))


@dataclass(frozen=True, slots=True)
class Dag:
    """A DAG that Airflow knows; `has_errors` if its file could not be read the last time."""

    id: str
    paused: bool
    has_errors: bool

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Dag:
        """Read it from an answer of the API."""
        return cls(found["dag_id"], found["is_paused"], found["has_import_errors"])


@dataclass(frozen=True, slots=True)
class DagRun:
    """One run of a DAG.

    Attributes:
        state: "queued", "running", "success" or "failed".
        kind: What began it: "manual", "scheduled", "asset_triggered", …
        logical_date: The schedule's date that it stands for; None for a run without.
        began: When its first task could run; None before.
        ended: None before.
        conf: Its parameters.
    """

    dag: str
    id: str
    state: str
    kind: str
    logical_date: datetime | None
    queued: datetime | None
    began: datetime | None
    ended: datetime | None
    conf: Mapping[str, Any]

    @property
    def over(self) -> bool:
        """Whether it has ended, one way or the other."""
        return self.state in ENDED

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> DagRun:
        """Read it from an answer of the API."""
        return cls(
            found["dag_id"],
            found["dag_run_id"],
            found["state"],
            found["run_type"],
            moment(found["logical_date"]),
            moment(found["queued_at"]),
            moment(found["start_date"]),
            moment(found["end_date"]),
            found["conf"] or {},
        )


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task of a run, as it is now.

    Attributes:
        state: "running", "deferred", "up_for_retry", "awaiting_input", "success", "failed", …; None before it is due.
        tries: How often it was begun.
        map_index: -1 for a task that is not mapped.
        pid: The process that it runs in, or ran in last; None before.
    """

    dag: str
    run: str
    id: str
    state: str | None
    tries: int
    map_index: int
    began: datetime | None
    ended: datetime | None
    pid: int | None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> TaskRun:
        """Read it from an answer of the API."""
        return cls(
            found["dag_id"],
            found["dag_run_id"],
            found["task_id"],
            found["state"],
            found["try_number"],
            found["map_index"],
            moment(found["start_date"]),
            moment(found["end_date"]),
            found["pid"],
        )


@dataclass(frozen=True, slots=True)
class Health:
    """Since when each part of Airflow was last heard of; None for one that is not healthy."""

    database: bool
    parts: Mapping[str, datetime | None]

    def missing(self, since: datetime) -> list[str]:
        """The parts that have not been heard of since a time: an earlier life's heartbeat says nothing of this one."""
        late = [name for name, heard in self.parts.items() if heard is None or heard < since]
        return late if self.database else ["database", *late]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Health:
        """Read it from an answer of the API."""
        parts = {}
        for name in ("scheduler", "triggerer", "dag_processor"):
            heard = moment(found[name][f"latest_{name}_heartbeat"])
            parts[name] = heard if found[name]["status"] == "healthy" else None
        return cls(found["metadatabase"]["status"] == "healthy", parts)


def moment(text: str | None) -> datetime | None:
    """A time of the API's, with its zone."""
    return None if text is None else datetime.fromisoformat(text)
