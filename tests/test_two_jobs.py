"""Two jobs on Spark, connected by a topic: ticks, output, delivered times; the tracker and a job are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.embedded.ports import free_port

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MARK = "LOWTIDE_TEST_TWO_JOBS"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PROGRAM = "import lowtide as lt\n\nfrom tests.test_two_jobs import {which}\n\nlt.main({which}({arguments}))\n"


@dataclass(frozen=True)
class Order:
    user: str
    number: int


@dataclass(frozen=True)
class Total:
    user: str
    number: int
    total: int


def doubled(order: Order) -> Order:
    return Order(order.user, 2 * order.number)


def added(total: int, order: Order) -> tuple[int, Total]:
    return total + order.number, Total(order.user, order.number, total + order.number)


def first_flow(job: str, source: str, sink: str) -> lt.Flow:
    flow = lt.Flow(job)
    stream = flow.read("orders", lt.kafka(source, lt.json(Order)))
    stream.key_by("user").map(doubled).write("out", lt.kafka(sink, lt.json(Order), key="user"))
    return flow


def last_flow(job: str, source: str, sink: str) -> lt.Flow:
    flow = lt.Flow(job)
    stream = flow.read("orders", lt.kafka(source, lt.json(Order)))
    stream.key_by("user").scan("totals", added, 0).write("out", lt.kafka(sink, lt.json(Total), key="user"))
    return flow


class Graph:
    """Two jobs and their tracker, in one folder; and all processes that are started in it."""

    def __init__(self, kafka: Kafka, zookeeper: str, folder: Path) -> None:
        self.kafka, self.folder, self.mark = kafka, folder, uuid.uuid4().hex
        self.source, self.middle, self.sink = (kafka.topic(name, 2) for name in ("orders", "doubled", "totals"))
        self.first, self.last = f"first-{self.mark[:8]}", f"last-{self.mark[:8]}"
        address = f"127.0.0.1:{free_port()}"
        (folder / "secret").write_text(self.mark)
        (folder / "lowtide.toml").write_text(
            f'[kafka]\nbootstrap_servers = "{kafka.address}"\n[zookeeper]\nhosts = "{zookeeper}"\n'
            "[epoch]\nduration_s = 5.0\n[job]\nrestarts = 0\nparallelism = 2\n"
            f'[spark]\nmaster = "local[4]"\n[tracker]\ngraph = "{address}"\nsecret_file = "secret"\n'
        )
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).parent.parent)
        known = {key: value for key, value in os.environ.items() if key not in ("PYSPARK_PYTHON", "SPARK_HOME")}
        said = self.folder / f"said-{len(self.started)}"
        process = subprocess.Popen(
            [sys.executable, *command, "--conf", "lowtide.toml"],
            cwd=self.folder,
            env={**known, MARK: self.mark, "JAVA_TOOL_OPTIONS": QUICK_JVM, "PYTHONPATH": root},
            stdin=subprocess.DEVNULL,
            stdout=said.open("wb"),
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self.started.append(process)
        return process

    def job(self, which: str, *arguments: str, after: str = "") -> subprocess.Popen[bytes]:
        """Start a job, and wait until it is ready."""
        file = self.folder / f"{which}.py"
        file.write_text(PROGRAM.format(which=which, arguments=", ".join(map(repr, arguments))))
        process = self.start(str(file), *(["--set", f"tracker.after={after}"] if after else []))
        until(lambda: "ready after" in self.said(process) or process.poll() is not None, lambda: self.said(process))
        assert process.poll() is None, self.said(process)
        return process

    def said(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"said-{self.started.index(process)}").read_text(errors="replace")

    def tracker(self) -> subprocess.Popen[bytes]:
        process = self.start("-m", "lowtide.cli", "tracker")
        until(lambda: "listens at" in self.said(process), lambda: self.said(process))
        return process

    def ask(self, *command: str) -> Any:
        program = [] if command[0].endswith(".py") else ["-m", "lowtide.cli"]
        asked = self.start(*program, *command, "--json")
        assert asked.wait(HANGS_S) == 0, self.said(asked)
        text = self.said(asked)
        return json.loads(text[text.index("\n", text.find("JAVA_TOOL")) if "JAVA_TOOL" in text else 0 :])

    def delivered(self) -> dict[str, int]:
        """By job its delivered time, as the tracker knows it."""
        return {known["job"]: known["delivered_ms"] or 0 for known in self.ask("tracker", "status")["jobs"]}

    def kill(self, process: subprocess.Popen[bytes], *, within: str = "") -> None:
        """Kill a process and, of a job, all that its folder's mark and command name."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(HANGS_S)

    def kill_all(self) -> None:
        for entry in os.scandir("/proc"):
            try:
                if entry.name.isdecimal() and f"{MARK}={self.mark}".encode() in Path(entry, "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
        for process in self.started:
            process.wait(HANGS_S)


def until(true: Callable[[], Any], why: Callable[[], Any]) -> None:
    deadline = time.monotonic() + HANGS_S
    while not true():
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)


@pytest.fixture(name="graph")
def _graph(kafka: Kafka, zookeeper: str, tmp_path: Path) -> Iterator[Graph]:
    graph = Graph(kafka, zookeeper, tmp_path)
    yield graph
    graph.kill_all()


def orders(begin: int, end: int) -> list[list[Order]]:
    """By source partition; each user's lie in one of them."""
    return [[Order(f"u{part}-{number % 3}", number) for number in range(begin, end)] for part in range(2)]


def by_user(records: Any) -> dict[str, list[tuple[int, int]]]:
    found = defaultdict(list)
    for record in records:
        found[record["user"]].append((record["number"], record["total"]))
    return dict(found)


def test_records_keep_their_ticks_and_the_last_jobs_time_implies_the_first_ones(graph: Graph) -> None:
    written: list[list[Order]] = [[], []]

    def write(begin: int, end: int) -> None:
        for part, records in enumerate(orders(begin, end)):
            written[part] += records
            graph.kafka.produce(graph.source, [vars(record) for record in records], part)

    tracker = graph.tracker()
    first = graph.job("first_flow", graph.first, graph.source, graph.middle)
    graph.job("last_flow", graph.last, graph.middle, graph.sink, after=graph.first)
    write(0, 50)
    assert len(graph.kafka.messages(graph.sink, 100)) == 100
    graph.kill(tracker)
    write(50, 60)
    tracker = graph.tracker()
    write(60, 70)
    assert len(graph.kafka.messages(graph.sink, 140)) == 140
    graph.kill(first)
    until(lambda: "is not running" in str(graph.ask("tracker", "status")["chains"]), lambda: graph.said(tracker))
    write(70, 80)
    plan = graph.ask("first_flow.py", "recover", "--dry-run")
    assert plan["readers"] == {graph.last: [graph.middle]}, "named before anything is done to them"
    graph.job("first_flow", graph.first, graph.source, graph.middle)
    write(80, 100)
    totals = graph.kafka.messages(graph.sink, 200, HANGS_S)
    doubles = graph.kafka.messages(graph.middle, 200)
    assert (len(doubles), len(totals)) == (200, 200)

    def ticks(messages: list[Any]) -> dict[tuple[str, int], int]:
        read = ((json.loads(message.value()), message.timestamp()[1]) for message in messages)
        return {(record["user"], record["number"]): ms for record, ms in read}

    assert ticks(totals) == ticks(doubles), "a label of the last job is not a tick of the first"
    between = first_flow("first", "a", "b").run_locally(orders=[*written[0], *written[1]])["out"]
    wanted = last_flow("last", "b", "c").run_locally(orders=between)["out"]
    assert by_user(json.loads(message.value()) for message in totals) == by_user(map(vars, wanted))
    newest = max(ticks(totals).values())
    until(lambda: graph.delivered()[graph.last] > newest, graph.delivered)
    times = graph.delivered()
    assert times[graph.last] <= times[graph.first]
