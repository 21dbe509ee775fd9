"""A job's own log: where it is, and how it ends, of a job that has died on this host."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lowtide_airflow.job.log import LINES, tell_log
from lowtide_airflow.job.status import JobStatus
from lowtide_snapshots.job.life import Life

HERE = socket.gethostname()


def told(phase: str, log: str, *, holder: str | None = None, incarnation: int = 3) -> list[str]:
    life = Life(incarnation=3, phase=phase, log=log)
    said: list[str] = []
    status = JobStatus("orders", True, holder, incarnation, life, None, 1, 1)
    tell_log(status, lambda line: said.append(f"info {line}"), lambda line: said.append(f"error {line}"))
    return said


def place(log: str) -> str:
    return f'info job "orders", life 3: its own log is {log}'


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    file = tmp_path / "job.log"
    file.write_text("reading\nValueError: 7\n")
    return file


@pytest.mark.parametrize(
    ("phase", "holder", "lines"),
    [
        ("running", "process 1", []),
        ("stopped", None, []),
        ("failed", "process 1", []),
        ("failed", None, ["error | reading", "error | ValueError: 7"]),
        ("running", None, ["error | reading", "error | ValueError: 7"]),
    ],
)
def test_a_line_ends_with_where_the_log_is_and_a_dead_jobs_last_lines_follow(
    file: Path, phase: str, holder: str | None, lines: list[str]
) -> None:
    assert told(phase, f"{HERE}:{file}", holder=holder) == [place(f"{HERE}:{file}"), *lines]


def test_nothing_is_said_of_a_life_that_has_not_reported_where_its_log_is(file: Path) -> None:
    assert told("failed", "") == []
    assert told("failed", f"{HERE}:{file}", incarnation=4) == []


def test_the_log_of_another_host_is_not_looked_for_here(file: Path) -> None:
    assert told("failed", f"elsewhere:{file}") == [place(f"elsewhere:{file}")]


def test_no_other_file_is_read_whatever_zookeeper_says(tmp_path: Path) -> None:
    other = tmp_path / "airflow.cfg"
    other.write_text("[database]\nsql_alchemy_conn = postgresql://airflow:secret@db\n")
    assert told("failed", f"{HERE}:{other}") == [place(f"{HERE}:{other}")]
    assert told("failed", f"{HERE}:{tmp_path}/job.log") == [place(f"{HERE}:{tmp_path}/job.log")], "there is none"


def test_no_more_than_the_end_of_a_long_log_is_told(file: Path) -> None:
    file.write_text("".join(f"line {number}\n" for number in range(1_000)))
    _, *lines = told("failed", f"{HERE}:{file}")
    assert lines == [f"error | line {number}" for number in range(1_000 - LINES, 1_000)]
