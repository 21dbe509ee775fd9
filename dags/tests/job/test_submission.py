"""Submissions, which begin one life however often they are tried: on a real ZooKeeper, with programs of the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from lowtide_airflow.errors import RunsAlready, SubmitFailed
from lowtide_airflow.job.program import Start
from lowtide_airflow.job.submission import Submission, submit_once
from lowtide_snapshots.errors import SubmissionTaken
from lowtide_snapshots.job.store import JobStore

if TYPE_CHECKING:
    from seen_job import Job

pytestmark = pytest.mark.zookeeper

START = Start("flow.py")
KEY = "airflow:dag/run/task"


@dataclass
class Submitting:
    """Does with each submission what the test says, one after the other."""

    acts: list[Callable[[str], Any]]
    keys: list[str] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)

    def submit(self, start: Start, key: str, log: Any) -> None:
        self.starts.append(start)
        self.keys.append(key)
        self.acts.pop(0)(key)

    def preview(self, start: Start, log: Any) -> None:
        raise AssertionError


def fail(code: int) -> Callable[[str], Any]:
    def failing(_key: str) -> None:
        raise SubmitFailed("it refuses", code=code)

    return failing


def go(job: Job, *acts: Callable[[str], Any], **given: Any) -> tuple[Submission, list[str]]:
    submit = Submitting(list(acts))
    begun = submit_once(job.client(), submit, START, KEY, pause_s=0.05, **given)
    assert all(start == START for start in submit.starts)
    return begun, submit.keys


def next_start(job: Job, start: Start) -> Start:
    """The start that the next try of a task makes."""
    submit = Submitting([job.runs])
    submit_once(job.client(), submit, start, KEY, pause_s=0.05)
    (started,) = submit.starts
    return started


def test_a_first_try_begins_a_life_and_later_ones_find_it(job: Job) -> None:
    assert go(job, job.runs) == (Submission(KEY, 1, adopted=False), [KEY])
    assert go(job) == (Submission(KEY, 1, adopted=True), [])
    job.ends("stopped")
    assert go(job) == (Submission(KEY, 1, adopted=True), [])


def test_a_job_that_somebody_else_runs_is_left(job: Job) -> None:
    job.runs("somebody's")
    with pytest.raises(RunsAlready, match='life 1, by process 1 on a test, submission "somebody\'s"'):
        go(job)


def test_what_its_surroundings_refuse_is_submitted_again_until_they_do_not(job: Job) -> None:
    assert go(job, fail(4), fail(4), job.runs) == (Submission(KEY, 1, adopted=False), [KEY] * 3)


def test_what_is_refused_for_another_reason_or_for_too_long_fails(job: Job) -> None:
    with pytest.raises(SubmitFailed, match="it refuses"):
        go(job, fail(3))
    with pytest.raises(SubmitFailed, match="it refuses"):
        go(job, fail(4), again_within_s=-1.0)


def test_a_program_that_is_refused_as_another_one_with_its_key_has_begun_is_that_one(job: Job) -> None:
    def beaten(key: str) -> None:
        job.runs(key)
        fail(4)(key)

    assert go(job, beaten) == (Submission(KEY, 1, adopted=False), [KEY])


def test_of_two_programs_with_one_key_one_begins_a_life(job: Job) -> None:
    job.runs(KEY)
    job.ends()
    with JobStore(job.services.zookeeper, job.name, session_timeout_s=2.0) as late:
        late.take_lease("a late program", 5.0, lambda _: None)
        with pytest.raises(SubmissionTaken, match="has already begun life 1"):
            late.raise_incarnation(KEY)
    assert job.client().status().incarnation == 1


def test_a_life_that_died_is_followed_by_one_of_the_keys_next_form(job: Job) -> None:
    go(job, job.runs)
    job.ends("failed")
    begun, keys = go(job, job.runs, dead=1)
    assert (begun, keys) == (Submission(f"{KEY}#2", 2, adopted=False), [f"{KEY}#2"])
    assert go(job, dead=1) == (Submission(f"{KEY}#2", 2, adopted=True), [])


def test_a_life_that_is_gone_is_followed_once_that_is_clear(job: Job) -> None:
    go(job, job.runs)
    job.leave()
    said: list[object] = []
    begun, _ = go(job, job.runs, log=said.append)
    assert begun == Submission(f"{KEY}#2", 2, adopted=False)
    assert any("life 1 is gone" in str(text) for text in said)


def test_a_life_that_its_program_followed_with_another_is_followed_once_that_has_died_as_well(job: Job) -> None:
    go(job, job.runs)
    job.ends("failed", again=True)
    job.runs()
    assert go(job) == (Submission(KEY, 1, adopted=True), [])
    job.ends("failed", again=False)
    assert go(job, job.runs)[0] == Submission(f"{KEY}#2", 3, adopted=False)


def test_a_life_that_somebody_else_followed_is_not_judged_by_that_ones_end(job: Job) -> None:
    go(job, job.runs)
    job.ends("failed", again=False)
    job.runs("somebody's", driver="process 2 on another")
    job.ends("failed", again=False, driver="process 2 on another")
    assert go(job) == (Submission(KEY, 1, adopted=True), [])


def test_of_several_forms_the_newest_counts(job: Job) -> None:
    go(job, job.runs)
    job.ends("failed", again=False)
    go(job, job.runs, dead=1)
    job.ends("failed", again=False)
    assert go(job, job.runs) == (Submission(f"{KEY}#3", 3, adopted=False), [f"{KEY}#3"])


def test_what_a_cluster_has_taken_and_not_begun_is_not_handed_over_again(job: Job) -> None:
    assert go(job, lambda _key: None) == (Submission(KEY, None, adopted=False), [KEY])
    assert go(job, accepted=KEY) == (Submission(KEY, None, adopted=True), [])
    job.runs(KEY)
    assert go(job, accepted=KEY) == (Submission(KEY, 1, adopted=True), [])
    job.ends("failed", again=False)
    assert go(job, lambda _key: None, accepted=KEY) == (Submission(f"{KEY}#2", None, adopted=False), [f"{KEY}#2"])


ASKED = [Start("flow.py", commit="x", redeliver=True), Start("flow.py", time="2026-11-25T08:00:00", redeliver=True)]
CHOSEN = [Start("flow.py", commit="x"), Start("flow.py", time="2026-11-25T08:00:00"), Start("flow.py", no_state=True)]


@pytest.mark.parametrize("start", ASKED)
def test_a_redelivery_is_done_once(job: Job, start: Start) -> None:
    assert next_start(job, start) == start
    job.ends("failed", again=False)
    assert next_start(job, start) == START
    job.ends("failed", again=False)
    assert next_start(job, start) == START


def test_a_redelivery_that_failed_before_its_life_ran_is_asked_for_again(job: Job) -> None:
    (start, _) = ASKED
    job.start(KEY)
    job.say("failed", "the store is away", control="", control_proof="", submission=KEY, again=False)
    job.leave()
    assert next_start(job, start) == start
    job.ends("failed", again=False)
    assert next_start(job, start) == START


@pytest.mark.parametrize("start", CHOSEN)
def test_a_chosen_start_holds_until_a_life_has_committed_something(job: Job, start: Start) -> None:
    job.runs("before")
    job.commit(job.seal(10))
    job.ends("stopped")
    assert next_start(job, start) == start
    job.ends("failed", again=False)
    assert next_start(job, start) == start
    job.commit(job.seal(20))
    job.ends("failed", again=False)
    assert next_start(job, start) == START
