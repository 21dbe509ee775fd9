"""`lowtide logs`, `lowtide forget` and `lowtide status --watch`, on jobs of a folder."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import msgspec
import pytest
from own_sleep import sleep_is

from lowtide.cli.main import run
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.log import Log
from lowtide.jobs.state import JobState, now
from lowtide.process.identity import Process
from lowtide.process.mark import new_life
from lowtide_snapshots.cause import Cause


class Job:
    """A job of the folder, which this process runs, or which has ended."""

    def __init__(self, root: Path, name: str, *, runs: bool = False) -> None:
        self.folder = JobFolder(root, name)
        self.folder.make()
        self.log = Log(self.folder.log_file)
        self.log.begin()
        self.state = JobState(name=name, life=new_life(), phase="running", started_at=now())
        if runs:
            self.state = msgspec.structs.replace(self.state, runner=Process.of(os.getpid()))
            self.folder.write(self.state)
        else:
            self.ends()

    def says(self, *lines: str) -> None:
        with self.folder.log_file.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def ends(self) -> None:
        cause = Cause("stop", "it received SIGTERM")
        self.folder.write(
            msgspec.structs.replace(self.state, phase="stopped", cause=cause, ended_at=now(), exit_code=0)
        )


def said(root: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    """What a command says."""
    out = io.TextIOWrapper(io.BytesIO(), write_through=True)
    err = io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        found = run([*arguments, "--set", f"job.folder={root}"])
    out.seek(0)
    assert found == code, err.getvalue()
    return out.read(), err.getvalue()


def test_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    words = Job(tmp_path, "words")
    words.says(*(f"line {number}" for number in range(300)))
    lines = [f"line {number}\n" for number in range(300)]
    assert said(tmp_path, "logs", "words")[0] == "".join(lines[200:])
    assert said(tmp_path, "logs", "words", "-n", "2")[0] == "".join(lines[298:])
    assert said(tmp_path, "logs", "words", "--tail", "1000")[0] == "".join(lines)
    assert said(tmp_path, "logs", "words", "--tail", "0")[0] == ""


def test_the_log_before_is_shown(tmp_path: Path) -> None:
    words = Job(tmp_path, "words")
    assert "has no previous log" in said(tmp_path, "logs", "words", "--previous")[1]
    words.says("one")
    words.log.begin()
    words.says("two")
    assert said(tmp_path, "logs", "words", "--previous")[0] == "one\n"
    assert said(tmp_path, "logs", "words")[0] == "two\n"
    assert "leave out --follow" in said(tmp_path, "logs", "words", "--previous", "-f", code=2)[1]


def test_without_a_name_it_is_the_job_that_runs_or_the_one_that_ended_last(tmp_path: Path) -> None:
    assert "no job runs" in said(tmp_path, "logs", code=4)[1]
    assert 'there is no job "words"' in said(tmp_path, "logs", "words", code=4)[1]
    old, last = Job(tmp_path, "old"), Job(tmp_path, "last")
    ended = msgspec.structs.replace(old.state, phase="failed", ended_at=now().replace(year=2020))
    old.folder.write(ended)
    old.says("old")
    last.says("last")
    assert said(tmp_path, "logs")[0] == "last\n"
    Job(tmp_path, "runs", runs=True).says("runs")
    assert said(tmp_path, "logs")[0] == "runs\n"
    Job(tmp_path, "too", runs=True)
    assert "name one: runs, too" in said(tmp_path, "logs", code=4)[1]


def test_a_log_is_followed_over_a_full_file_and_a_start_until_the_job_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, looks = Job(tmp_path, "words", runs=True), 0
    words.says("one", "two")

    def look(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            words.says("three")
        elif looks == 2:
            Log(words.folder.log_file, limit_bytes=1).limit()
            words.says("four")
        elif looks == 3:
            words.log.begin()
            words.says("five")
        else:
            words.says("six")
            words.ends()

    sleep_is(monkeypatch, look)
    out, err = said(tmp_path, "logs", "words", "-f", "-n", "1")
    assert out.split() == ["two", "three", "four", "five", "six"]
    assert err == 'job "words" has stopped\n'


def test_an_ended_job_is_forgotten_and_a_running_one_is_not(tmp_path: Path) -> None:
    Job(tmp_path, "one")
    Job(tmp_path, "two")
    assert "is forgotten here" in said(tmp_path, "forget", "one", "two")[0]
    assert list(tmp_path.iterdir()) == []
    assert "no jobs in" in said(tmp_path, "status")[0]
    assert 'there is no job "one"' in said(tmp_path, "forget", "one", code=4)[1]
    runs = Job(tmp_path, "runs", runs=True)
    held = runs.folder.lock()
    assert "runs already" in said(tmp_path, "forget", "runs", code=4)[1]
    os.close(held)
    assert runs.folder.state() is not None


def test_status_looks_again_until_it_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, looks = Job(tmp_path, "words"), 0

    def look(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise KeyboardInterrupt
        words.folder.forget()

    sleep_is(monkeypatch, look)
    first, second = said(tmp_path, "status", "--watch")[0].split("UTC, again every 2 s\n")[1:]
    assert "words" in first
    assert "no jobs in" in second
    assert "leave out --open and --json" in said(tmp_path, "status", "--watch", "--json", code=2)[1]
