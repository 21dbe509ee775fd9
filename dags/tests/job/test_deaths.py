"""Detecting deaths from a job's status: values in, values out."""

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pytest

from lowtide_airflow.job.deaths import Death, Deaths, why_not_restart
from lowtide_airflow.job.status import JobStatus
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.life import Life

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DIED = Cause("loss", "worker 1/0 died")


def life(phase: str, number: int = 1, cause: str = "", ago: timedelta = timedelta(), again: bool | None = None) -> Life:
    at = (NOW - ago).isoformat()
    return Life(number, phase, Cause.of(cause), "127.0.0.1:1", "process 1", at, again=again)


def status(phase: str, *, held: bool, number: int = 1, cause: str = "") -> JobStatus:
    return JobStatus("orders", True, "process 1" if held else None, number, life(phase, number, cause), 500, 10, 2)


@pytest.mark.parametrize(
    ("phase", "held", "state"),
    [
        ("running", True, "running"),
        ("running", False, "gone"),
        ("failed", True, "starting"),
        ("failed", False, "failed"),
        ("stopped", True, "starting"),
        ("stopped", False, "stopped"),
    ],
)
def test_a_state_is_who_holds_the_lease_and_what_the_life_said(phase: str, held: bool, state: str) -> None:
    assert status(phase, held=held).state == state


def test_a_job_that_was_handed_over_is_gone_until_a_standby_leads_it() -> None:
    handed = replace(status("stopped", held=False), life=replace(life("stopped"), handed_over=True))
    assert handed.state == "gone"
    deaths = Deaths(gone_s=3.0)
    assert deaths.observe(handed, 0.0) is None
    died = deaths.observe(handed, 3.0)
    assert died == Death("orders", 1, "it was handed over, but no standby has continued it", 500)
    taken = replace(handed, holder="process 2", incarnation=2)
    assert (taken.state, deaths.observe(taken, 4.0)) == ("starting", None)
    finished = replace(handed, life=replace(life("stopped"), handed_over=True, finished=True))
    assert finished.state == "stopped"


def test_a_life_that_has_said_nothing_yet_starts_and_one_that_never_said_anything_is_gone() -> None:
    before = life("failed", 1)
    assert JobStatus("orders", True, "process 2", 2, before, None, 10, 2).state == "starting"
    assert JobStatus("orders", True, None, 2, before, None, 10, 2).state == "gone"
    assert JobStatus("orders", False, None, 0, None, None, 0, 0).state == "unknown"
    assert JobStatus("orders", True, None, 0, None, None, 10, 2).state == "unknown"


def test_a_job_that_was_killed_is_dead_once_its_lease_stays_free() -> None:
    deaths = Deaths(gone_s=3.0)
    assert deaths.observe(status("running", held=True), 0.0) is None
    assert deaths.observe(status("running", held=False), 10.0) is None
    assert deaths.observe(status("running", held=False), 12.9) is None
    died = deaths.observe(status("running", held=False), 13.0)
    assert died == Death("orders", 1, "it was killed, or its machine went down", 500)
    assert deaths.observe(status("running", held=False), 20.0) is None


def test_a_job_that_was_cut_off_and_takes_its_lease_again_has_not_died() -> None:
    deaths = Deaths(gone_s=3.0)
    for second in range(20):
        assert deaths.observe(status("running", held=second % 3 == 0), float(second)) is None


def test_one_that_said_that_it_does_not_begin_again_is_dead_at_once() -> None:
    deaths, said = Deaths(gone_s=3.0, failed_s=30.0), life("failed", 1, "Kafka is away", again=False)
    ended = JobStatus("orders", True, None, 1, said, 500, 10, 2)
    assert deaths.observe(ended, 0.0) is None
    assert deaths.observe(ended, 3.0) == Death("orders", 1, "Kafka is away", 500)


def test_one_that_said_why_it_ended_may_be_begun_again_by_its_program() -> None:
    deaths = Deaths(gone_s=3.0, failed_s=30.0)
    assert deaths.observe(status("failed", held=False, cause="worker 1/0 died"), 0.0) is None
    assert deaths.observe(status("failed", held=False, cause="worker 1/0 died"), 29.0) is None
    assert deaths.observe(status("failed", held=True, number=2), 29.5) is None
    assert deaths.observe(status("running", held=True, number=2), 35.0) is None
    assert deaths.observe(status("failed", held=False, number=2, cause="again"), 40.0) is None
    died = deaths.observe(status("failed", held=False, number=2, cause="again"), 70.0)
    assert died == Death("orders", 2, "again", 500)


def test_each_death_is_reported_once_also_by_a_watcher_that_begins_anew() -> None:
    deaths = Deaths(reported=4, gone_s=0.0)
    assert deaths.observe(status("running", held=False, number=4), 1.0) is None
    died = deaths.observe(status("running", held=False, number=5), 2.0)
    assert died is not None
    assert died.incarnation == 5


def test_a_life_that_was_reported_dead_and_holds_its_lease_again_is_reported_when_it_dies() -> None:
    deaths = Deaths(reported=4, gone_s=3.0)
    assert deaths.observe(status("running", held=False, number=5), 0.0) is None
    assert deaths.observe(status("running", held=False, number=5), 3.0) is not None
    assert deaths.observe(status("running", held=True, number=5), 15.0) is None
    assert deaths.reported == 4
    assert deaths.observe(status("running", held=False, number=5), 7_000.0) is None
    died = deaths.observe(status("running", held=False, number=5), 7_003.0)
    assert died is not None
    assert (died.incarnation, deaths.reported) == (5, 5)


def test_a_life_that_follows_one_which_died_takes_nothing_back() -> None:
    deaths = Deaths(reported=5)
    assert deaths.observe(status("running", held=True, number=6), 0.0) is None
    assert deaths.reported == 5


@pytest.mark.parametrize("held", [True, False])
def test_where_lives_are_counted_anew_what_was_reported_is_forgotten(held: bool) -> None:
    deaths = Deaths(reported=7, gone_s=3.0)
    assert deaths.observe(status("running", held=held, number=2), 0.0) is None
    assert deaths.reported == 1
    assert deaths.observe(status("running", held=False, number=2), 1.0) is None
    assert deaths.observe(status("running", held=False, number=2), 4.0) is not None
    assert deaths.reported == 2


def test_a_job_that_is_not_known_makes_nobody_forget() -> None:
    deaths = Deaths(reported=7)
    assert deaths.observe(JobStatus("orders", False, None, 0, None, None, 0, 0), 0.0) is None
    assert deaths.reported == 7
    # Its first driver is there, and has not begun a life yet.
    assert deaths.observe(JobStatus("orders", True, "process 1", 0, None, None, 10, 2), 1.0) is None
    assert deaths.reported == 0


def test_a_job_that_was_stopped_has_not_died() -> None:
    deaths = Deaths(gone_s=0.0, failed_s=0.0)
    assert deaths.observe(status("stopped", held=False), 1.0) is None


def test_what_the_flow_itself_brings_about_would_come_again() -> None:
    raised = Cause("flow", 'step "sold": raised ValueError', way_out="correct the function")
    vain = why_not_restart(raised, [], NOW, max_deaths=5, within_s=600)
    assert vain is not None
    assert vain[0] == "in_vain"
    assert vain[1].endswith('step "sold": raised ValueError\n  what to do: correct the function')
    assert why_not_restart(replace(raised, kind="loss"), [], NOW, max_deaths=5, within_s=600) is None


def test_a_cause_is_read_as_it_was_kept_and_the_text_of_an_older_version_as_well() -> None:
    raised = Cause("flow", "it raised", "flow.py:3", "correct it", "Traceback")
    assert Life.of({"phase": "failed", "cause": asdict(raised)}).cause == raised
    assert Life.of({"phase": "failed", "cause": "it raised"}).cause == Cause("other", "it raised")
    assert Life.of({"phase": "stopped", "cause": ""}).cause is None
    assert Life.of({"phase": "stopped", "cause": None}).cause is None


def test_lives_that_end_again_and_again_need_a_person() -> None:
    ended = [life("failed", number, ago=timedelta(seconds=60 * number)) for number in range(1, 7)]
    vain = why_not_restart(DIED, ended, NOW, max_deaths=5, within_s=600)
    assert vain is not None
    assert vain[0] == "too_often"
    assert why_not_restart(DIED, ended, NOW, max_deaths=6, within_s=600) is None
    assert why_not_restart(DIED, ended, NOW, max_deaths=5, within_s=300) is None
    stopped = [life("stopped", number) for number in range(1, 9)]
    assert why_not_restart(DIED, stopped, NOW, max_deaths=5, within_s=600) is None
