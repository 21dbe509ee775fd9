"""`lowtide status` over a job's control API, as another program uses it: real processes, real HTTP."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from controlled import TOKEN, ControlledJob, controlled
from seen import MIN_TIME, SHAPE, moment, reader, worker

from lowtide.conf import Conf, ControlConf
from lowtide.conf.token import job_token
from lowtide.errors import ConfError
from lowtide.events import EventLog
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.state import JobState
from lowtide.process.identity import Process
from lowtide.status.subscriptions import Hub
from lowtide_snapshots.job.control_address import ask


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Iterator[ControlledJob]:
    """A job whose folder says that this process runs it."""
    with controlled(SHAPE, EventLog("index", 3)) as job:
        published(job, tmp_path)
        yield job


def published(job: ControlledJob, root: Path) -> None:
    folder = JobFolder(root, "index")
    folder.make()
    folder.keep_token(TOKEN)
    began = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    us = Process.of(os.getpid())
    folder.write(
        msgspec.structs.replace(
            JobState(name="index", life="l", phase="running", started_at=began, runner=us),
            incarnation=job.at.incarnation,
            **job.at.fields(),
        )
    )


def status(root: Path, *arguments: str) -> str:
    done = asked(root, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(root: Path, *arguments: str, browser: str = "") -> subprocess.CompletedProcess[str]:
    """`lowtide status`, on a machine whose only browser is this command."""
    command = [sys.executable, "-m", "lowtide.cli", "status", *arguments, "--set", f"job.folder={root}"]
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    variables = {key: value for key, value in os.environ.items() if key not in screens}
    variables |= {"BROWSER": browser} if browser else {}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=variables)


def test_the_page_of_a_lagging_job_names_who_holds_min_time(job: ControlledJob, tmp_path: Path) -> None:
    workers = [reader("0/documents-1", 3, 4000, parked=12, pulling=False), worker("2/0", delivered=9, repairs=2)]
    job.watch.events.event("stalled", segment=1, holder="front 3")
    for second in range(3):
        job.watch.look(float(second), moment(90_000, workers=workers, control=job.address))
    page = status(tmp_path, "index")
    line = next(line for line in page.splitlines() if line.startswith("lag"))
    assert "90.0 s, held for 2.0 s by front 3 (documents-1)" in line
    assert re.search(r"2026-01-02 03:05:00\.000   90\.0 s +0   front 3 \(documents-1\)", page)
    assert "12   stopped: it is ahead of the others" in page
    assert "stalled  segment 1, holder front 3" in page
    assert job.address in page
    assert "\033" not in page


def test_all_jobs_in_one_table_and_one_as_json(job: ControlledJob, tmp_path: Path) -> None:
    workers = [reader("0/documents-1", 3, 4000), worker("2/0", delivered=3000, dead_letters=1)]
    job.watch.look(0.0, moment(250, workers=workers, delivered_time=MIN_TIME))
    row = status(tmp_path).splitlines()[1]
    assert row.split()[0] == "index"
    assert "4,000  3,000  2        250 ms" in row
    known = json.loads(status(tmp_path, "index", "--json"))[0]
    assert known["figures"] == {
        "records_in": 4000, "records_out": 3000, "dead_letters": 1, "workers": 2, "executors": 1,
    }  # fmt: skip
    assert known["view"]["lag_ms"] == 250
    assert known["view"]["delivered_time_ms"] == 2 * MIN_TIME
    assert (known["control"], known["phase"]) == (job.address, "running")


def test_a_job_that_does_not_answer_is_reported_by_its_folder(job: ControlledJob, tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, "index")
    folder.keep_token("the token of another life")
    assert "its service does not answer" in status(tmp_path, "index")
    assert json.loads(status(tmp_path, "index", "--json"))[0]["view"] is None


def test_the_token_is_for_its_owner_alone_and_goes_with_the_secret(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, "index")
    folder.make()
    assert folder.token() is None
    folder.keep_token("first")
    folder.keep_token("second")
    assert (folder.token(), folder.token_file.stat().st_mode & 0o777) == ("second", 0o600)
    folder.forget_secret()
    assert folder.token() is None


@pytest.mark.parametrize("name", [["index"], []])
def test_the_page_is_opened_with_the_token_which_is_on_no_command_line(
    job: ControlledJob, tmp_path: Path, name: list[str]
) -> None:
    folder = JobFolder(tmp_path, "index")
    folder.keep_certificate(job.certificate)
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}\n')
    browser.chmod(0o755)
    done = asked(tmp_path, *name, "--open", browser=f"{browser} %s")
    assert done.returncode == 0, done.stderr
    assert seen.read_text().strip() == folder.page_file.as_uri()
    assert folder.page_file.stat().st_mode & 0o777 == 0o600
    assert f"url=https://{job.address}/#token={TOKEN}" in folder.page_file.read_text()
    assert f"https://{job.address}/" in done.stdout
    assert TOKEN not in done.stdout
    assert job.at.certificate.upper()[:2] + ":" in done.stdout, "the browser will warn of it"
    folder.forget_secret()
    assert not folder.page_file.exists()


def test_without_a_browser_it_is_said_how_to_open_the_page(job: ControlledJob, tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, "index")
    folder.keep_certificate(job.certificate)
    done = asked(tmp_path, "index", "--open", browser="false %s")
    assert done.returncode == 4
    assert f"where: https://{job.address}/" in done.stderr
    assert str(folder.token_file) in done.stderr
    port = job.address.partition(":")[2]
    assert f"ssh -L {port}:127.0.0.1:{port} " in done.stderr
    folder.forget_secret()
    assert asked(tmp_path, "index", "--open").returncode == 4, "another user's token cannot be read"
    state = folder.state()
    assert state is not None
    folder.write(msgspec.structs.replace(state, phase="stopped", ended_at=state.started_at))
    ended = asked(tmp_path, "index", "--open")
    assert (ended.returncode, "has ended" in ended.stderr) == (4, True)


def test_it_listens_on_loopback_unless_the_conf_says_otherwise(job: ControlledJob) -> None:
    assert Conf().control.host == "127.0.0.1"
    assert job.address.startswith("127.0.0.1:")
    port = int(job.address.rpartition(":")[2])
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert f"0100007F:{port:04X}" in {line[1] for line in listening if line[3] == "0A"}


def test_a_token_of_ones_own_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    control = ControlConf(token_file=str(file))
    with pytest.raises(ConfError, match="cannot be read"):
        job_token(control)
    for wrong in ("short", "with a blank in it", "not ascii ÄÖÜäöüß€", "two-lines-of-it-\nand-another"):
        file.write_text(wrong)
        with pytest.raises(ConfError, match="at least 16"):
            job_token(control)
    file.write_text("0123456789abcdef\n")
    assert job_token(control) == "0123456789abcdef"
    assert len({job_token(ControlConf()) for _ in range(3)}) == 3


def test_the_end_of_a_label_is_waited_for(tmp_path: Path) -> None:
    shape = replace(SHAPE, labels={"indexed": {"name": "str"}})
    with controlled(shape, EventLog("index", 3)) as job:
        published(job, tmp_path)
        job.tell(waits)
        job.tell(lambda hub: hub.reached("done:indexed:a:b", 500))
        reported = waited(tmp_path, "--done", "indexed", "a:b")
        assert (
            reported.stdout == "a:b, of indexed, has ended, and all before 1970-01-01 00:00:01.000 UTC is delivered\n"
        )
        news = json.loads(waited(tmp_path, "--done", "indexed", "a:b", "--json").stdout)
        assert news == {"job": "index", "incarnation": 3, "about": "done:indexed:a:b", "time_ms": 1_000}
        assert waited(tmp_path, "--done", "indexed", "c", "--timeout", "0.5").returncode == 6
        assert "its labels are those of indexed" in waited(tmp_path, "--done", "index", "c").stderr
        assert "give one of --delivered" in waited(tmp_path, "--done", "indexed", "c", "--delivered", "5").stderr
        job.ended["indexed", "a:b"] = 1_000
        code, answer = ask(job.at, TOKEN, "GET", "/done/indexed?label=a%3Ab", limit_s=120)
        assert (code, json.loads(answer)) == (200, {"step": "indexed", "label": "a:b", "ended_ms": 1_000})
        assert json.loads(ask(job.at, TOKEN, "GET", "/done/indexed?label=c", limit_s=120)[1])["ended_ms"] is None
        assert ask(job.at, TOKEN, "GET", "/done/index?label=c", limit_s=120)[0] == 404


def test_the_beginning_of_a_label_is_waited_for(tmp_path: Path) -> None:
    shape = replace(SHAPE, labels={"seen/begun": {"site": "str", "name": "str"}})
    with controlled(shape, EventLog("index", 3)) as job:
        published(job, tmp_path)
        given = '{"site":"docs","name":"a"}'
        subject = f"done:seen/begun:{given}"
        job.tell(lambda hub: waits(hub, subject))
        job.tell(lambda hub: hub.reached(subject, 500))
        reported = waited(tmp_path, "--begun", "seen", given)
        assert reported.stdout.endswith(
            ", of seen, has begun, and all before 1970-01-01 00:00:01.000 UTC is delivered\n"
        )
        assert "its labels are those of seen/begun" in waited(tmp_path, "--begun", "see", "c").stderr
        code, _ = ask(job.at, TOKEN, "GET", f"/done/seen%2Fbegun?label={quote(given)}", limit_s=120)
        assert code == 200


def waits(hub: Hub, subject: str = "done:indexed:a:b") -> None:
    """Somebody waits for this label, so that its end is known."""
    hub.subscribe([subject])


def waited(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lowtide.cli", "wait", "index", *arguments, "--set", f"job.folder={root}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
