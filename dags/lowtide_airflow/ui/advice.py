"""Why a job does not run, and what to do about it, in sentences for whoever is called at night."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lowtide_airflow.job_look import JobLook
from lowtide_airflow.jobs_file import JobEntry
from lowtide_airflow.ui.answers import LifeLine, SnapshotLine

__all__ = ["advice", "parted"]

_WAY_OUT = "\n  what to do: "
GONE = (
    "Its driver has gone without a word, and its lease has run out: the process was killed, its machine went down, or "
    "it is cut off from ZooKeeper."
)


def parted(cause: str) -> tuple[str, str]:
    """What a cause of death says has happened, and what it says is to be done."""
    what, _, way_out = cause.partition(_WAY_OUT)
    return what.strip(), way_out.strip()


def advice(
    look: JobLook, lives: Sequence[LifeLine], snapshots: Sequence[SnapshotLine], entry: JobEntry | None
) -> tuple[str, list[str]]:
    """Say why a job does not run and what to do; nothing of one that runs.

    Args:
        look: at its place.
        lives: of the job, ascending.
        snapshots: of the job.
        entry: in the jobs file; None if it is not there.
    """
    match look.state:
        case "running":
            return "", []
        case "unknown":
            return "", [_start(entry)]
        case "starting":
            return f"It is starting or ending: {look.holder} holds its lease, and no life runs yet.", [
                "Wait. A start takes as long as it takes to read again what came since the last commit."
            ]
        case "stopped":
            return "It was stopped on purpose.", [_start(entry)]
    last = lives[-1] if lives and lives[-1].incarnation == look.incarnation else None
    why = last.cause if last is not None and last.cause else GONE
    said = f"{last.way_out[:1].upper()}{last.way_out[1:]}." if last is not None and last.way_out else ""
    contact = f"If it stays dead, tell {entry.contact}." if entry is not None and entry.contact else ""
    return why, [each for each in (said, _recovery(entry), _begins_from(snapshots), contact) if each]


def _start(entry: JobEntry | None) -> str:
    if entry is None:
        return (
            "To start it, run `lowtide run flow.py --conf FILE` where it is to run; it is not in Airflow's jobs file."
        )
    return f"To start it, trigger the DAG {entry.dag_id('submit')}."


def _recovery(entry: JobEntry | None) -> str:
    if entry is None:
        return (
            "Airflow does not recover it, as it is not in the jobs file: run `lowtide recover flow.py --conf FILE` "
            "where it ran."
        )
    dag = entry.dag_id("recover")
    if entry.recover:
        return f"The DAG {dag} starts it again by itself; if that is paused or its run fails, trigger it."
    return f"It is not started again by itself, as the jobs file says recover = false: trigger the DAG {dag}."


def _begins_from(snapshots: Sequence[SnapshotLine]) -> str:
    commit = next((each for each in snapshots if each.last), None)
    if commit is None:
        return (
            "It has no commit: the next life reads everything again from the job's first record, which the sources "
            "must still have."
        )
    named = f' "{commit.name}"' if commit.name else ""
    at = datetime.fromtimestamp(commit.min_time_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")[:-6]
    return (
        f"The next life begins from commit {commit.id}{named}, with all before {at} UTC, and reads again what came "
        "since; nothing is delivered twice."
    )
