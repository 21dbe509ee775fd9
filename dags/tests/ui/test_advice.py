"""The page's advice about a job that does not run."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lowtide_airflow.job.deaths import MAX_DEATHS, WITHIN_S
from lowtide_airflow.job.status import JobStatus
from lowtide_airflow.jobs_file import JobEntry
from lowtide_airflow.ui.advice import advice
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.life import Life
from lowtide_snapshots.page.answers import SnapshotLine
from lowtide_snapshots.page.lives import life_lines

AT = "2026-11-21T22:00:00+00:00"
AT_MS = 1_795_298_400_000
LIFE = Life(7, "running", None, "127.0.0.1:1", "process 4 on here", AT, since=AT, commit="000006-0009")
LOOK = JobStatus("orders", True, None, 7, LIFE, AT_MS + 60_000, 2, 4)
ENTRY = JobEntry("orders", "flow.py", contact="the stream team")
COMMIT = SnapshotLine("000007-0004", "before", "committed", AT_MS, AT_MS, 1, 2, 3, 7, last=True, why="")


def advice_on(
    look: JobStatus,
    entry: JobEntry | None = ENTRY,
    commits: tuple[SnapshotLine, ...] = (COMMIT,),
    before: Sequence[Life] = (),
) -> tuple[str, str]:
    lives = [*before, *([] if look.life is None else [look.life])]
    running = look.incarnation if look.alive else None
    lines = life_lines(lives, running=running, delivered_ms=look.delivered_ms)
    why, to_do = advice(look, lives, (lines[-1].ended_ms if lines else None) or AT_MS, commits, entry)
    return why, " ".join(to_do)


def ended(phase: str, cause: Cause | str = "") -> JobStatus:
    kept = cause if isinstance(cause, Cause) else Cause.of(cause)
    return replace(LOOK, life=replace(LIFE, phase=phase, cause=kept, at="2026-11-21T22:05:00+00:00"))


def test_a_job_that_runs_needs_no_advice() -> None:
    assert advice_on(replace(LOOK, holder="process 4")) == ("", "")


def test_a_job_that_was_stopped_is_started_again_by_its_dag() -> None:
    assert advice_on(ended("stopped")) == (
        "It was stopped on purpose.",
        "To start it, trigger the DAG lowtide_submit__orders.",
    )
    assert "not in Airflow's jobs file" in advice_on(ended("stopped"), None)[1]


def test_a_job_that_has_come_to_its_end_needs_no_start() -> None:
    look = ended("stopped")
    assert look.life is not None
    finished = replace(look, life=replace(look.life, finished=True))
    assert advice_on(finished) == ("All its sources have ended, and everything is delivered.", "")


def test_a_job_that_was_never_started_says_how_it_is() -> None:
    never = replace(LOOK, known=False, incarnation=0, life=None, delivered_ms=None)
    assert advice_on(never, commits=()) == ("", "To start it, trigger the DAG lowtide_submit__orders.")


def test_a_cause_is_shown_with_its_own_way_out_first() -> None:
    why, to_do = advice_on(
        ended("failed", Cause("loss", "worker 1/0 died: killed by SIGKILL", way_out="more memory, or smaller limits"))
    )
    assert why == "worker 1/0 died: killed by SIGKILL"
    assert to_do.startswith(
        "More memory, or smaller limits. The DAG lowtide_recover__orders restarts it. If it does not"
    )
    assert 'from commit 000007-0004 "before", with everything before 2026-11-21 22:00:00 UTC' in to_do
    assert to_do.endswith("If it stays dead, notify the stream team.")


def test_a_job_that_ended_without_a_word_is_said_to_have() -> None:
    why, to_do = advice_on(LOOK)
    assert "gone without reporting an end" in why
    assert "lowtide_recover__orders" in to_do


def test_who_starts_it_again_is_what_the_jobs_file_says() -> None:
    assert "recover = false" in advice_on(ended("failed", "x"), replace(ENTRY, recover=False))[1]
    assert "Airflow does not recover it" in advice_on(ended("failed", "x"), None)[1]


def test_where_the_jobs_file_gives_no_dag_it_is_done_by_hand() -> None:
    by_hand = replace(ENTRY, dags=("snapshot",))
    stopped = advice_on(ended("stopped"), by_hand)[1]
    assert stopped == "To start it, run `lowtide run flow.py --conf FILE` where it is to run."
    to_do = advice_on(ended("failed", "x"), by_hand)[1]
    assert "because the jobs file gives it no DAG for that: run `lowtide recover flow.py" in to_do
    assert "lowtide_recover__" not in to_do
    assert "lowtide run flow.py" in advice_on(ended("failed", IN_VAIN), replace(ENTRY, dags=("recover",)))[1]


IN_VAIN = Cause("flow", 'step "count": raised ValueError: no such word', way_out="correct the function")


def test_where_the_flow_itself_ended_it_airflow_asks_once_that_is_corrected() -> None:
    why, to_do = advice_on(ended("failed", IN_VAIN))
    assert why == 'step "count": raised ValueError: no such word'
    assert to_do.startswith("Correct the function. A function or a record of the flow ended it")
    assert "under Required actions, in the task ask_a_person of the DAG lowtide_recover__orders: Approve" in to_do
    assert "restarts it anyway, Reject leaves it." in to_do
    assert "If there is no question" in to_do
    assert "trigger the DAG lowtide_submit__orders." in to_do
    assert "restarts it." not in to_do


def before(minutes: Sequence[int], phase: str = "failed") -> list[Life]:
    """Lives that ended so many minutes before the last one did, at 22:05."""
    ends = (datetime.fromtimestamp(AT_MS / 1000 + 60 * (5 - each), UTC).isoformat() for each in minutes)
    return [replace(LIFE, incarnation=1, phase=phase, at=at) for at in ends]


def test_where_lives_ended_too_often_airflow_asks_however_long_ago_that_was() -> None:
    to_do = advice_on(ended("failed", "worker 1/0 died"), before=before([29, 25, 20, 15, 10]))[1]
    assert "More than 5 lives have ended within 30 min: find out why first. Airflow asks about it" in to_do
    assert "restarts it." not in to_do


@pytest.mark.parametrize(
    "lives", [before([25, 20, 15, 10]), before([31, 25, 20, 15, 10]), before([25, 20, 15, 10, 5, 4], "stopped")]
)
def test_where_few_lives_ended_nobody_is_asked(lives: list[Life]) -> None:
    assert "restarts it. If it does not" in advice_on(ended("failed", "worker 1/0 died"), before=lives)[1]


def test_lives_that_ended_without_a_word_count_until_about_when_the_last_one_was_heard_of() -> None:
    assert "Airflow asks about it" in advice_on(LOOK, before=before([28, 25, 20, 15, 10]))[1]
    later = replace(LOOK, delivered_ms=AT_MS + 1_800_000)
    assert "restarts it. If it does not" in advice_on(later, before=before([28, 25, 20, 15, 10]))[1]


def damaged(line: SnapshotLine) -> SnapshotLine:
    return replace(line, rows=None, bytes=None, parts=None, why="its manifest is damaged")


EARLIER = replace(COMMIT, id="000007-0003", name=None, last=False)


def test_where_no_commit_can_be_read_airflow_asks_whether_to_begin_without_state() -> None:
    sealed = replace(COMMIT, id="000007-0005", phase="sealed", last=False)
    to_do = advice_on(LOOK, commits=(damaged(EARLIER), damaged(COMMIT), sealed))[1]
    assert to_do.startswith("None of its commits can be read: first restore the store from a backup, if there is one.")
    assert "Approve restarts it anyway, without state if none of them can be read even then, Reject" in to_do
    assert "trigger the DAG lowtide_submit__orders, with no_state if none of them can be read even then." in to_do
    assert "It has no commit that can be read: the next life reads everything again" in to_do
    assert "restarts it." not in to_do


def test_a_commit_that_cannot_be_read_is_passed_over() -> None:
    to_do = advice_on(LOOK, commits=(EARLIER, damaged(COMMIT)))[1]
    assert "restarts it. If it does not" in to_do
    assert "The next life begins from commit 000007-0003, with" in to_do


@pytest.mark.parametrize("look", [ended("failed", IN_VAIN), ended("failed", "worker 1/0 died"), LOOK])
@pytest.mark.parametrize("commits", [(), (COMMIT,), (damaged(COMMIT),)])
@pytest.mark.parametrize("recover", [True, False])
def test_nobody_is_asked_to_trigger_beside_a_run_that_asks(
    look: JobStatus, commits: tuple[SnapshotLine, ...], recover: bool
) -> None:
    to_do = advice_on(look, replace(ENTRY, recover=recover), commits)[1]
    assert "trigger it." not in to_do
    assert "trigger the DAG lowtide_recover__orders." not in to_do
    if recover:
        assert "Required actions" in to_do


def test_where_nobody_is_asked_it_is_said_what_to_do_by_hand() -> None:
    by_hand = advice_on(ended("failed", IN_VAIN), replace(ENTRY, recover=False))[1]
    assert "correct that first. Airflow does not restart it" in by_hand
    assert "recover = false: trigger the DAG lowtide_submit__orders." in by_hand
    assert "ask_a_person" not in by_hand
    unlisted = advice_on(LOOK, None, (damaged(COMMIT),))[1]
    assert "where it ran, with --allow-no-state if none of them can be read even then." in unlisted
    assert "with --allow-no-state" not in advice_on(LOOK, None)[1]


@pytest.mark.airflow
@pytest.mark.usefixtures("airflow_home")
def test_the_page_and_the_dag_count_alike() -> None:
    from lowtide_airflow.operators import RecoverFlowOperator

    takes = inspect.signature(RecoverFlowOperator.__init__).parameters
    assert (takes["max_deaths"].default, takes["within_s"].default) == (MAX_DEATHS, WITHIN_S)


def test_without_a_commit_everything_is_read_again() -> None:
    assert "reads everything again from the job's first record" in advice_on(ended("failed", "x"), commits=())[1]


def test_a_job_that_starts_asks_for_patience() -> None:
    why, to_do = advice_on(replace(ended("failed", "x"), holder="process 9 on there"))
    assert "process 9 on there holds its lease" in why
    assert to_do.startswith("Wait.")
