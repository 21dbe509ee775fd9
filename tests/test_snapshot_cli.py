"""Snapshots from the command line, on a real job: taken, looked at with its driver killed, recovered from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.judging import committed
from tests.shop import Load, Shop
from tests.waiting import HANGS_S

from lowtide.cli.main import run
from lowtide.cli.running_jobs import control_of
from lowtide.jobs.folder import JobFolder
from lowtide.status.subscriber import follow
from lowtide_snapshots.job.news import News
from tests.driver import ROOT, below

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]

READY_WITHIN_S = 150.0
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
FLOW = """
from pathlib import Path

from tests.judging import committed
from tests.shop import Shop

flow = Shop.from_json((Path(__file__).parent / "shop.json").read_text()).flow()
"""


@dataclass
class Console:
    """Calls `lowtide` for one shop's job."""

    shop: Shop
    folder: Path
    capfd: pytest.CaptureFixture[str]
    said: str = field(default="", init=False)

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Call a command here and return its output; what it says on standard error is in `said`."""
        self.capfd.readouterr()
        found = run([*arguments, *self._conf()])
        out, self.said = self.capfd.readouterr()
        assert found == code, out + self.said
        return out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def detached(self, *arguments: str) -> str:
        """Start the job under a supervisor, and return what was said meanwhile."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_TOOL_OPTIONS": QUICK_JVM}
        command = [sys.executable, "-m", "lowtide.cli", *arguments, "--detach", *self._conf()]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=READY_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr + self.job.log_file.read_text(errors="replace")[-4000:]
        return done.stderr

    @property
    def job(self) -> JobFolder:
        return JobFolder(Path(self.shop.settings["job.folder"]), self.shop.name)

    def kill_driver(self) -> None:
        state = self.job.state()
        assert state is not None
        assert state.runner is not None
        os.kill(state.runner.pid, signal.SIGKILL)
        until(lambda: (now := self.job.state()) is not None and now.ended)

    def kill_all(self) -> None:
        """Leave nothing behind."""
        state = self.job.state()
        for process in (state.supervisor, state.runner) if state is not None else ():
            if process is not None and process.alive():
                for pid in [process.pid, *below(process.pid)]:
                    os.kill(pid, signal.SIGKILL)

    def _conf(self) -> list[str]:
        return [text for key, value in self.shop.settings.items() for text in ("--set", f"{key}={value}")]


class Following:
    """Follows a job in a thread from life to life, until it is stopped."""

    def __init__(self, console: Console) -> None:
        conf, name = console.shop.conf, console.shop.name
        self.news: list[News] = []
        subjects = ["delivered", "commit", "segment:bought"]

        def follows() -> None:
            self.news.extend(follow(lambda: control_of(conf, name), subjects, limit_s=4 * HANGS_S))

        self._thread = threading.Thread(target=follows, daemon=True)
        self._thread.start()

    def judge(self, ids: Sequence[str]) -> None:
        """Each thing was reported once and in order, over the driver's death, until the job was stopped."""
        self._thread.join(HANGS_S)
        assert not self._thread.is_alive()
        assert [each.incarnation for each in self.news if each.kind == "life"] == [1, 2]
        assert (self.news[-1].kind, self.news[-1].data["cause"], self.news[-1].incarnation) == ("end", None, 2)
        for kind in ("delivered", "commit", "segment"):
            times = [each.time_ms for each in self.news if each.kind == kind]
            assert len(times) > 1
            assert all(one is not None and two is not None and one < two for one, two in pairwise(times)), times
            assert {each.incarnation for each in self.news if each.kind == kind} >= {1}
        assert [each.data["snapshot"] for each in self.news if each.kind == "commit"][:2] == list(ids)


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + HANGS_S
    while not true():
        assert time.monotonic() < deadline, f"not within {HANGS_S:g} s"
        time.sleep(0.1)


@pytest.fixture(name="console")
def _console(kafka: Kafka, zookeeper: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Console]:
    settings = {
        "kafka.bootstrap_servers": kafka.address,
        "zookeeper.hosts": zookeeper,
        "epoch.duration_s": 5.0,
        "spark.master": "local[8]",
        "spark.checkpoint_folder": str(tmp_path / "checkpoints"),
        "job.folder": str(tmp_path / "jobs"),
        "snapshots.url": str(tmp_path / "snapshots"),
    }
    shop = Shop.open("console", kafka, settings)
    (tmp_path / "shop.json").write_text(shop.to_json())
    (tmp_path / "flow.py").write_text(FLOW)
    console = Console(shop, tmp_path, capfd)
    yield console
    console.kill_all()


def test_a_job_is_recovered_from_what_was_taken_before_its_driver_was_killed(console: Console) -> None:
    job = console.shop.name
    console.detached("run", "flow.py")
    following = Following(console)
    with Load(console.shop, per_s=400):
        ids = taken(console, job)
    console.kill_driver()
    with_the_driver_dead(console, job, *ids)
    said = console.detached("recover", "flow.py", "--commit", "before the update", "--require-state")
    assert f'begins from commit {ids[0]} "before the update"' in said
    assert "to be read until now is reached; nothing is delivered twice" in said
    log = console.job.log_file.read_text(errors="replace")
    assert f"beginning from commit {ids[0]}" in log
    assert "verifying" not in log, "the command has verified it, and the job that it starts takes its word"
    begun = {each["id"]: each["restored_by"] for each in console.json("snapshots", "list", job)}
    assert begun[ids[0]] == 2, "the life has begun from the commit that was asked for"
    with Load(console.shop, first=50_000, per_s=300):
        time.sleep(1)
    assert console.shop.judge.right()
    console("stop", job, "--with-snapshot")
    stopped = console.said
    assert "committed: all before" in stopped
    assert f'job "{job}" has stopped' in stopped
    newest = console.json("snapshots", "list", job)[-1]
    assert (newest["phase"], newest["last"], newest["id"] in stopped) == ("committed", True, True)
    following.judge(ids)
    with_a_source_that_was_cut(console, job, ids[0])


def deliver(console: Console, records: int) -> None:
    """Waits until so many more are delivered: then min time has moved, also where an epoch's end stood in its way."""
    wanted = committed(console.shop.conf, console.shop.sink) + records
    until(lambda: committed(console.shop.conf, console.shop.sink) >= wanted)


def taken(console: Console, job: str) -> tuple[str, str]:
    """Takes two snapshots of the running job, the second committed later by hand; returns their ids."""
    deliver(console, 200)
    plan = console.json("recover", str(console.folder / "flow.py"), "--dry-run")
    assert plan["commit"] is None, "it would begin as `lowtide run` does before there is a commit"
    console("recover", str(console.folder / "flow.py"), "--dry-run", "--require-state", code=2)
    assert "--require-state refuses to begin without state" in console.said
    first = console.json("snapshot", job, "--name", "before the update")
    assert (first["phase"], first["name"]) == ("committed", "before the update")
    assert first["rows"] > 0
    at_ms = first["min_time_ms"]
    assert console.json("wait", job, "--commit", str(at_ms))["snapshot"] == first["id"]
    assert console.json("wait", job, "--delivered", str(at_ms), "--timeout", "60")["time_ms"] >= at_ms
    assert console.json("wait", job, "--left", "bought", str(at_ms))["time_ms"] >= at_ms
    assert not console("wait", job, "--delivered", "9999999999999", "--timeout", "0.5", code=6)
    assert "without news about delivered" in console.said
    deliver(console, 200)
    second = console.json("snapshot", "--no-commit")
    assert second["phase"] == "sealed"
    listed = console.json("snapshots", "list", job)
    assert [(each["id"], each["phase"]) for each in listed] == [(first["id"], "committed"), (second["id"], "sealed")]
    assert "is committed, at" in console("snapshots", "commit", job, second["id"])
    assert "was committed already" in console("snapshots", "commit", job, second["id"])
    deliver(console, 200)
    refused = console("snapshot", job, "--timeout", "0.000001", code=6)
    assert not refused
    assert "is not complete after 1e-06 s" in console.said
    return first["id"], second["id"]


def with_the_driver_dead(console: Console, job: str, named: str, newest: str) -> None:
    """All that needs no driver, in the end with a damaged part."""
    console("snapshot", job, code=4)
    assert f'job "{job}" does not run' in console.said
    listed = {each["id"]: each for each in console.json("snapshots", "list", job)}
    assert listed[named]["name"] == "before the update"
    content = console.json("snapshots", "show", job, "before the update")["content"]
    assert sum(part["rows"] for part in content["parts"]) == listed[named]["rows"] > 0
    assert "console" in console("snapshots", "show", job)
    between = console.json("snapshots", "diff", job, named, newest)
    assert all(front["records"] > 0 for front in between["fronts"])
    assert all(each["whole"] for each in console.json("snapshots", "verify", job, named, newest))
    # The third one was not waited for; whether it was committed before the kill is open.
    last = next(each["id"] for each in console.json("snapshots", "list", job) if each["last"])
    pruned = console.json("snapshots", "prune", job, "--keep", "1", "--dry-run")
    assert named in pruned["kept"]
    dropped = [] if last == newest else [newest]
    assert (pruned["dropped"], pruned["sources_do_not_reach"]) == (dropped, {})
    console("snapshots", "prune", job, "--keep", "1")
    parts = console.json("snapshots", "show", job, last)["content"]["parts"]
    damage(console, next(part for part in parts if part["snapshot"] == last))
    verdict = console.json("snapshots", "verify", job, last, code=6)[0]
    assert [each["why"] for each in verdict["damages"]] == ["it is missing"]
    plan = console.json("recover", str(console.folder / "flow.py"), "--dry-run")
    assert [each["id"] for each in plan["skipped"]] == [last]
    assert plan["commit"]["id"] != last
    assert plan["records"] == sum(front["records"] for front in plan["fronts"]) > 0


def with_a_source_that_was_cut(console: Console, job: str, named: str) -> None:
    """R17: of a commit that the log does not reach back to any more one is warned, and nothing begins from it."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    front = console.json("snapshots", "show", job, named)["content"]["fronts"][0]
    client = AdminClient({"bootstrap.servers": console.shop.conf.kafka.bootstrap_servers})
    cut = TopicPartition(front["source"], front["partition"], front["offset"] + 1)
    client.delete_records([cut])[cut].result(HANGS_S)
    lost = f"begins at offset {front['offset'] + 1}, but would be read from {front['offset']}"
    pruned = console.json("snapshots", "prune", job)
    assert pruned["sources_do_not_reach"] == {named: [f"{front['source']}-{front['partition']} {lost}"]}
    assert f'warning: job "{job}" can no longer begin from commit {named}' in console.said
    console("recover", str(console.folder / "flow.py"), "--dry-run", "--commit", named, code=5)
    assert "begin from a later commit" in console.said


def damage(console: Console, part: dict[str, Any]) -> None:
    name = f"{part['unit']:05d}"
    (file,) = (console.folder / "snapshots").glob(f"*/parts/{part['vertex']}/{name}/*-{part['snapshot']}.parquet")
    file.unlink()
