"""Why a job does not run, and what to do about it, in sentences for whoever is called at night."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lowtide_airflow.deaths import MOST_ENDED, WITHIN_S, again_in_vain
from lowtide_airflow.job_look import JobLook, Life
from lowtide_airflow.jobs_file import JobEntry
from lowtide_airflow.ui.answers import SnapshotLine

__all__ = ["advice", "parted"]

NO_GOOD_COMMIT = "no_good_commit"
REASONS = {
    "in_vain": "A function or a record of the flow ended it, and would end the next life as well: correct that first.",
    "too_often": f"More than {MOST_ENDED} lives have ended within {WITHIN_S / 60:g} min: see first why they do.",
    NO_GOOD_COMMIT: "None of its commits can be read: first restore the store from a backup, if there is one.",
}
"""Why a machine does not decide, as far as can be seen from here, by the words of `RecoverFlow`."""

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
    look: JobLook, lives: Sequence[Life], ended_ms: int, snapshots: Sequence[SnapshotLine], entry: JobEntry | None
) -> tuple[str, list[str]]:
    """Say why a job does not run and what to do; nothing of one that runs.

    Args:
        look: at its place.
        lives: its last ones, oldest first.
        ended_ms: when the last one ended, if it has; what was too often then, a person is asked about ever since.
        snapshots: of the job, ascending.
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
    what, way_out = parted(look.said.cause if look.said is not None else "")
    said = f"{way_out[:1].upper()}{way_out[1:]}." if way_out else ""
    asked = _asked(what, lives, ended_ms, snapshots)
    contact = f"If it stays dead, tell {entry.contact}." if entry is not None and entry.contact else ""
    to_do = [said, _recovery(entry, asked), _begins_from(snapshots), contact]
    return what or GONE, [each for each in to_do if each]


def _asked(cause: str, lives: Sequence[Life], ended_ms: int, snapshots: Sequence[SnapshotLine]) -> str | None:
    """Why the DAG recover asks a person, as a word of `REASONS`; None if a machine decides, as far as can be seen."""
    ended = datetime.fromtimestamp(ended_ms / 1000, UTC)
    vain = again_in_vain(cause, lives, ended)
    if vain is not None:
        return vain[0]
    commits = _commits(snapshots)
    return NO_GOOD_COMMIT if commits and all(each.why for each in commits) else None


def _start(entry: JobEntry | None) -> str:
    if entry is None:
        return (
            "To start it, run `lowtide run flow.py --conf FILE` where it is to run; it is not in Airflow's jobs file."
        )
    return f"To start it, trigger the DAG {entry.dag_id('submit')}."


def _recovery(entry: JobEntry | None, asked: str | None) -> str:
    """Who starts it again, or how to do it by hand; no run of the DAG is begun beside one that waits for an answer."""

    def stateless(how: str) -> str:
        return f", {how} if none of them can be read even then" if asked == NO_GOOD_COMMIT else ""

    reason = f"{REASONS[asked]} " if asked else ""
    if entry is None:
        return (
            f"{reason}Airflow does not recover it, as it is not in the jobs file: run "
            f"`lowtide recover flow.py --conf FILE` where it ran{stateless('with --allow-no-state')}."
        )
    dag, by_hand = entry.dag_id("recover"), f"trigger the DAG {entry.dag_id('submit')}{stateless('with no_state')}."
    if not entry.recover:
        by_hand = by_hand if asked else f"trigger the DAG {dag}, if no run of it asks under Required actions."
        return f"{reason}It is not started again by itself, as the jobs file says recover = false: {by_hand}"
    if asked is None:
        return (
            f"The DAG {dag} starts it again by itself. If it does not, see whether that is paused, or asks under "
            "Required actions; trigger it only if its run has failed."
        )
    return (
        f"{reason}Airflow asks about it under Required actions, by the task ask_a_person of the DAG {dag}: Approve "
        f"starts it all the same{stateless('without state')}, Reject leaves it. If nothing is asked there, as that DAG "
        f"is paused, its run has failed or was answered: {by_hand}"
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
    at = datetime.fromtimestamp(commit.min_time_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")[:-6]
    return (
        f"The next life begins from commit {commit.id}{named}, with all before {at} UTC, and reads again what came "
        "since; nothing is delivered twice."
    )
