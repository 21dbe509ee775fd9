"""What the page says of a job that does not run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide_airflow.job_look import JobLook, Life
from lowtide_airflow.jobs_file import JobEntry
from lowtide_airflow.ui.advice import advice, parted
from lowtide_airflow.ui.answers import LifeLine, SnapshotLine
from lowtide_airflow.ui.sight import life_lines

AT = "2026-11-21T22:00:00+00:00"
AT_MS = 1_795_298_400_000
LIFE = Life(7, "running", "", "127.0.0.1:1", "process 4 on here", AT, since=AT, commit="000006-0009")
LOOK = JobLook("orders", True, None, 7, LIFE, AT_MS + 60_000, 2, 4)
ENTRY = JobEntry("orders", "flow.py", contact="the stream team")
COMMIT = SnapshotLine("000007-0004", "before", "committed", AT_MS, AT_MS, 1, 2, 3, 7, last=True, why="")


def told(
    look: JobLook, entry: JobEntry | None = ENTRY, commits: tuple[SnapshotLine, ...] = (COMMIT,)
) -> tuple[str, str]:
    lives = life_lines([] if look.life is None else [look.life], look)
    why, to_do = advice(look, lives, commits, entry)
    return why, " ".join(to_do)


def ended(phase: str, cause: str = "") -> JobLook:
    return replace(LOOK, life=replace(LIFE, phase=phase, cause=cause, at="2026-11-21T22:05:00+00:00"))


def test_a_job_that_runs_needs_no_advice() -> None:
    assert told(replace(LOOK, holder="process 4")) == ("", "")


def test_a_job_that_was_stopped_is_started_again_by_its_dag() -> None:
    assert told(ended("stopped")) == (
        "It was stopped on purpose.",
        "To start it, trigger the DAG lowtide_submit__orders.",
    )
    assert "not in Airflow's jobs file" in told(ended("stopped"), None)[1]


def test_a_job_that_was_never_started_says_how_it_is() -> None:
    never = replace(LOOK, known=False, incarnation=0, life=None, told_ms=None)
    assert told(never, commits=()) == ("", "To start it, trigger the DAG lowtide_submit__orders.")


def test_a_cause_is_shown_with_its_own_way_out_first() -> None:
    why, to_do = told(
        ended("failed", "worker 1/0 died: killed by SIGKILL\n  what to do: more memory, or smaller limits")
    )
    assert why == "worker 1/0 died: killed by SIGKILL"
    assert to_do.startswith("More memory, or smaller limits. The DAG lowtide_recover__orders starts it again by itself")
    assert 'from commit 000007-0004 "before", with all before 2026-11-21 22:00:00 UTC' in to_do
    assert to_do.endswith("If it stays dead, tell the stream team.")


def test_a_job_that_ended_without_a_word_is_said_to_have() -> None:
    why, to_do = told(LOOK)
    assert "gone without a word" in why
    assert "lowtide_recover__orders" in to_do


def test_who_starts_it_again_is_what_the_jobs_file_says() -> None:
    assert "recover = false" in told(ended("failed", "x"), replace(ENTRY, recover=False))[1]
    assert "Airflow does not recover it" in told(ended("failed", "x"), None)[1]


def test_without_a_commit_everything_is_read_again() -> None:
    assert "reads everything again from the job's first record" in told(ended("failed", "x"), commits=())[1]


def test_a_job_that_starts_asks_for_patience() -> None:
    why, to_do = told(replace(ended("failed", "x"), holder="process 9 on there"))
    assert "process 9 on there holds its lease" in why
    assert to_do.startswith("Wait.")


@pytest.mark.parametrize(
    ("cause", "parts"),
    [("", ("", "")), ("a", ("a", "")), ("a\n  where: b\n  what to do: c", ("a\n  where: b", "c"))],
)
def test_a_cause_is_parted(cause: str, parts: tuple[str, str]) -> None:
    assert parted(cause) == parts


def test_a_life_that_said_nothing_was_over_when_the_next_began() -> None:
    key = "airflow:lowtide_recover__orders/manual__2026/recover"
    first = replace(
        LIFE, incarnation=6, submission=key, since="2026-11-21T20:00:00+00:00", at="2026-11-21T20:00:00+00:00"
    )
    lines = life_lines([first, LIFE], replace(LOOK, holder="process 4"))
    assert lines == [
        LifeLine(6, "gone", AT_MS - 7_200_000, AT_MS, True, "", "", "000006-0009", "DAG lowtide_recover__orders"),
        LifeLine(7, "running", AT_MS, None, False, "", "", "000006-0009", "its program, after the life before"),
    ]


def test_who_began_a_life_is_told() -> None:
    lives = [LIFE, LIFE, replace(LIFE, driver="process 5 on here"), replace(LIFE, submission="by script")]
    told = [line.begun_by for line in life_lines(lives, LOOK)]
    assert told == ["a start by hand", "its program, after the life before", "a start by hand", "submission by script"]


def test_the_last_life_that_said_nothing_lived_until_it_told_something_last() -> None:
    (line,) = life_lines([LIFE], LOOK)
    assert (line.phase, line.ended_ms, line.about) == ("gone", AT_MS + 60_000, True)
    (line,) = life_lines([LIFE], replace(LOOK, told_ms=None))
    assert line.ended_ms == AT_MS
