"""Advice for the engineer on call: why a job does not run, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lowtide_airflow.job.deaths import MAX_DEATHS, WITHIN_S, why_not_restart
from lowtide_airflow.job.status import JobStatus
from lowtide_airflow.jobs_file import JobEntry
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.life import Life
from lowtide_snapshots.page.answers import SnapshotLine

NO_GOOD_COMMIT = "no_good_commit"
REASONS = {
    "in_vain": "A function or a record of the flow ended it and would end the next life too: correct that first.",
    "too_often": f"More than {MAX_DEATHS} lives have ended within {WITHIN_S / 60:g} min: find out why first.",
    NO_GOOD_COMMIT: "None of its commits can be read: first restore the store from a backup, if there is one.",
}
"Why a person has to decide, by the words of `RecoverFlowOperator`, as far as can be seen from here."

BY_HAND = "run `lowtide run flow.py --conf FILE` where it is to run"

GONE = (
    "Its driver is gone without reporting an end, and its lease has run out: the process was killed, its machine went "
    "down, or it is cut off from ZooKeeper."
)


def advice(
    status: JobStatus, lives: Sequence[Life], ended_ms: int, snapshots: Sequence[SnapshotLine], entry: JobEntry | None
) -> tuple[str, list[str]]:
    """Return why a job does not run, and what to do, a sentence each; nothing for one that runs.

    Args:
        status: the job's.
        lives: its last ones, oldest first.
        ended_ms: when the last one ended, if it has: deaths are counted back from there.
        snapshots: the job's, ascending.
        entry: the job's in the jobs file; None if it has none.
    """
    match status.state:
        case "running":
            return "", []
        case "unknown":
            return "", [_start(entry)]
        case "starting":
            return f"It is starting or ending: {status.holder} holds its lease, and no life runs yet.", [
                "Wait. A start reads again what came since the last commit, which takes time."
            ]
        case "stopped":
            if status.finished:
                return "All its sources have ended, and everything is delivered.", []
            return "It was stopped on purpose.", [_start(entry)]
    cause = None if status.current is None else status.current.cause
    what, way_out = ("", "") if cause is None else (cause.story, cause.way_out)
    first = f"{way_out[:1].upper()}{way_out[1:]}." if way_out else ""
    asked = _asked_for(cause, lives, ended_ms, snapshots)
    contact = f"If it stays dead, notify {entry.contact}." if entry is not None and entry.contact else ""
    to_do = [first, _recovery(entry, asked), _begins_from(snapshots), contact]
    return what or GONE, [each for each in to_do if each]


def _asked_for(
    cause: Cause | None, lives: Sequence[Life], ended_ms: int, snapshots: Sequence[SnapshotLine]
) -> str | None:
    """Return the reason why the DAG recover asks a person, a key of `REASONS`; None if it probably decides itself."""
    ended = datetime.fromtimestamp(ended_ms / 1000, UTC)
    why = why_not_restart(cause, lives, ended)
    if why is not None:
        return why[0]
    commits = _commits(snapshots)
    return NO_GOOD_COMMIT if commits and all(each.why for each in commits) else None


def _start(entry: JobEntry | None) -> str:
    if entry is None:
        return f"To start it, {BY_HAND}; it is not in Airflow's jobs file."
    return f"To start it, {_submit(entry)}."


def _submit(entry: JobEntry) -> str:
    return f"trigger the DAG {entry.dag_id('submit')}" if entry.has("submit") else BY_HAND


def _recovery(entry: JobEntry | None, asked: str | None) -> str:
    """Say what restarts it, or how to do so by hand; never a second run of the DAG beside one that awaits an answer."""

    def stateless(how: str) -> str:
        return f", {how} if none of them can be read even then" if asked == NO_GOOD_COMMIT else ""

    reason = f"{REASONS[asked]} " if asked else ""
    if entry is None or not entry.has("recover"):
        why = "it is not in the jobs file" if entry is None else "the jobs file gives it no DAG for that"
        return (
            f"{reason}Airflow does not recover it because {why}: run `lowtide recover "
            f"flow.py --conf FILE` where it ran{stateless('with --allow-no-state')}."
        )
    dag, by_hand = entry.dag_id("recover"), f"{_submit(entry)}{stateless('with no_state')}."
    if not entry.recover:
        by_hand = by_hand if asked else f"trigger the DAG {dag}, unless a run of it asks under Required actions."
        return f"{reason}Airflow does not restart it, as the jobs file says recover = false: {by_hand}"
    if asked is None:
        return (
            f"The DAG {dag} restarts it. If it does not, check whether that DAG is paused, or asks under Required "
            "actions; trigger it only if its run has failed."
        )
    return (
        f"{reason}Airflow asks about it under Required actions, in the task ask_a_person of the DAG {dag}: "
        f"Approve restarts it anyway{stateless('without state')}, Reject leaves it. If there is no question, "
        f"because the DAG is paused or its run has failed or was answered: {by_hand}"
    )


def _commits(snapshots: Sequence[SnapshotLine]) -> list[SnapshotLine]:
    return [each for each in snapshots if each.phase == "committed"]


def _begins_from(snapshots: Sequence[SnapshotLine]) -> str:
    commits = _commits(snapshots)
    commit = next((each for each in reversed(commits) if not each.why), None)
    if commit is None:
        return (
            f"It has no commit{' that can be read' if commits else ''}: the next life reads everything again from the "
            "job's first record, which the sources must still have."
        )
    named = f' "{commit.name}"' if commit.name else ""
    at = datetime.fromtimestamp((commit.min_time_ms or 0) / 1000, UTC).isoformat(sep=" ", timespec="seconds")[:-6]
    return (
        f"The next life begins from commit {commit.id}{named}, with everything before {at} UTC, and reads again what "
        "came since; nothing is delivered twice."
    )
