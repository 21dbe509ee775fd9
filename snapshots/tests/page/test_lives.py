"""The lives of a job, as the page draws them."""

from __future__ import annotations

from dataclasses import replace

from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.life import Life
from lowtide_snapshots.page.answers import LifeLine
from lowtide_snapshots.page.lives import life_lines

AT = "2026-11-21T22:00:00+00:00"
AT_MS = 1_795_298_400_000
LIFE = Life(7, "running", None, "127.0.0.1:1", "process 4 on here", AT, since=AT, commit="000006-0009")


def lines(*lives: Life, running: int | None = None, delivered_ms: int | None = AT_MS + 60_000) -> list[LifeLine]:
    return life_lines(lives, running=running, delivered_ms=delivered_ms)


def test_a_life_that_said_nothing_was_over_when_the_next_began() -> None:
    key = "airflow:lowtide_recover__orders/manual__2026/recover"
    first = replace(
        LIFE, incarnation=6, submission=key, since="2026-11-21T20:00:00+00:00", at="2026-11-21T20:00:00+00:00"
    )
    assert lines(first, LIFE, running=7) == [
        LifeLine(6, "gone", AT_MS - 7_200_000, AT_MS, True, "", "", "000006-0009", "DAG lowtide_recover__orders"),
        LifeLine(7, "running", AT_MS, None, False, "", "", "000006-0009", "its program, after the previous life"),
    ]


def test_who_began_a_life_is_notified() -> None:
    lives = [LIFE, LIFE, replace(LIFE, driver="process 5 on here"), replace(LIFE, submission="by script")]
    shown = [line.begun_by for line in lines(*lives)]
    assert shown == [
        "a start by hand",
        "its program, after the previous life",
        "a start by hand",
        "submission by script",
    ]


def test_the_last_life_that_said_nothing_lived_until_it_reported_something_last() -> None:
    (line,) = lines(LIFE)
    assert (line.phase, line.ended_ms, line.about) == ("gone", AT_MS + 60_000, True)
    (line,) = lines(LIFE, delivered_ms=None)
    assert line.ended_ms == AT_MS


def test_an_end_has_its_cause_and_what_to_do() -> None:
    (line,) = lines(replace(LIFE, phase="failed", cause=Cause("flow", "a", "b", "c", "d")))
    assert (line.phase, line.cause, line.way_out, line.about) == ("failed", "a\n  where: b", "c", False)
