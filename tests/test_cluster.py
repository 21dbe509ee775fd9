"""Several executors: workers are found again, wherever an epoch's tasks run, and losing an executor ends the life."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packets import Packets
from tests.job_program import Program
from tests.settings import settings_of
from tests.shop import Load, Shop

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]
EPOCHS = 4
PROGRAM = """
import json, sys
from dataclasses import dataclass

from lowtide import Flow, json as as_json, kafka
from lowtide.conf import Conf
from lowtide.errors import LowtideError
from lowtide.driver.job import Job


@dataclass(frozen=True)
class Order:
    user: str
    number: int


@dataclass(frozen=True)
class Seen:
    user: str
    number: int
    so_far: int


@dataclass(frozen=True)
class Count:
    so_far: int = 0


def count(state: Count, order: Order) -> tuple[Count, Seen]:
    after = Count(state.so_far + 1)
    return after, Seen(order.user, order.number, after.so_far)


name, source, sink, broker, zookeeper, protected = sys.argv[1:]
flow = Flow(name)
stream = flow.read("orders", kafka(source, as_json(Order))).key_by("user").scan("count", count, Count())
stream.write("out", kafka(sink, as_json(Seen), key="user"))
conf = Conf.load(None, {
    "kafka.bootstrap_servers": broker, "zookeeper.hosts": zookeeper, "epoch.duration_s": 5.0,
    "spark.master": "local-cluster[2,3,1024]", "spark.checkpoint_folder": "checkpoints",
    "exchange.sealed": protected, "exchange.tls": protected, "spark.properties": {} if protected == "never" else {
        "spark.authenticate": "true", "spark.authenticate.secret": name, "spark.network.crypto.enabled": "true",
    },
})
job = Job.start(flow, conf)
job.wait_for_workers(90)
print("ready", flush=True)
try:
    for line in sys.stdin:
        if line.strip() == "secret":
            print(json.dumps({"secret": job.secret.hex()}), flush=True)
            continue
        print(json.dumps(job.status()), flush=True)
        if line.strip() == "wait":
            job.wait()
except LowtideError as error:
    print(json.dumps({"ended": str(error)}), flush=True)
job.stop()
"""


class Cluster:
    """The program above, running."""

    def __init__(self, kafka: Kafka, zookeeper: str, folder: Path, protected: str = "auto") -> None:
        self.kafka = kafka
        self.source, self.sink = kafka.topic("orders", 2), kafka.topic("out", 2)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        name = f"cluster-{uuid.uuid4().hex[:8]}"
        command = [sys.executable, str(program), name, self.source, self.sink, kafka.address, zookeeper, protected]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=folder)
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, question: str = "") -> dict[str, Any]:
        self.say(question)
        answer: dict[str, Any] = json.loads(self.line())
        return answer

    def say(self, question: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()

    def orders(self, numbers: range) -> None:
        for partition in (0, 1):
            chosen = [{"user": f"user-{n % 5}", "number": n} for n in numbers if n % 2 == partition]
            self.kafka.produce(self.source, chosen, partition)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()


@pytest.fixture
def cluster(kafka: Kafka, zookeeper: str, tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(kafka, zookeeper, tmp_path)
    yield running
    running.close()


def test_state_is_kept_over_epochs_on_two_executors_and_the_loss_of_one_ends_the_life(cluster: Cluster) -> None:
    """Each count goes on where the epoch before left it, though a task moves to the other executor half the time."""
    for epoch in range(EPOCHS):
        cluster.orders(range(200 * epoch, 200 * (epoch + 1)))
        seen = cluster.kafka.records(cluster.sink, 200 * (epoch + 1))
        assert len(seen) == 200 * (epoch + 1)
        wait_for_the_next_epoch(cluster)
    for user in {record["user"] for record in seen}:
        so_far = [record["so_far"] for record in seen if record["user"] == user]
        assert so_far == list(range(1, len(so_far) + 1))
    assert Counter(record["number"] for record in seen) == Counter(range(200 * EPOCHS))
    status = cluster.ask()
    assert status["totals"]["executors"] == 2

    lost = status["workers"][0]
    os.kill(parent_of(parent_of(lost["pid"])), signal.SIGKILL)
    cluster.ask("wait")
    ended = json.loads(cluster.line())["ended"]
    assert f"on executor {lost['executor']}" in ended
    assert "start the job again" in ended


@pytest.mark.nightly
def test_a_program_goes_on_in_its_session_when_an_executor_is_lost(
    kafka: Kafka, zookeeper: str, tmp_path: Path
) -> None:
    """Spark's JVM stays, and gives no tasks to the executor that is lost; the output is what it would have been."""
    folder = {"job.folder": str(tmp_path / ".lowtide/jobs")}
    settings = settings_of(kafka, zookeeper, tmp_path, 1) | folder | {"spark.master": "local-cluster[2,6,1024]"}
    shop = Shop.open("replaced", kafka, settings, letters=2)
    program = Program(shop, tmp_path)
    try:
        before = program.running()
        with Load(shop):
            view = program.moved()
            worker = next(each for each in view.workers if each.executor == "1")
            os.kill(parent_of(parent_of(worker.pid)), signal.SIGKILL)
            after = program.running(restarts=1)
            program.moved()
        assert after.jvm == before.jvm
        assert shop.judge.right()
        program.stop()
    finally:
        program.close()


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="packets are seen by root alone")
@pytest.mark.parametrize("protected", ["auto", "never"])
def test_what_goes_between_a_jobs_processes_is_read_by_nobody(
    protected: str, kafka: Kafka, zookeeper: str, tmp_path: Path
) -> None:
    """All packets of this machine but Kafka's, which has a TLS of its own, are searched for records and the secret."""
    running = Cluster(kafka, zookeeper, tmp_path, protected)
    try:
        secret = running.ask("secret")["secret"]
        searched = {
            "a frame": rb"\x9c\x04\x00[\s\S]{0,400}user-[0-4]",
            "a user": rb"user-[0-4]",
            "the secret": rb"%b|%b" % (secret.encode(), re.escape(bytes.fromhex(secret))),
        }
        with Packets("lo", searched, apart_from=int(kafka.address.rpartition(":")[2])) as packets:
            for turn in range(20):
                running.orders(range(20 * turn, 20 * (turn + 1)))
                assert len(kafka.records(running.sink, 20 * (turn + 1))) == 20 * (turn + 1)
        assert packets.seen > 1_000
        # Spark sends the settings of its plugins with each task, and the secret is among them.
        clear = set(searched) if protected == "never" else set()
        assert {what for what, found in packets.found.items() if found} == clear, packets.found
    finally:
        running.close()


def wait_for_the_next_epoch(cluster: Cluster) -> None:
    """Workers are detached for a moment at each boundary; without a look at it, let one epoch's time pass."""
    import time

    time.sleep(5.2)
    assert not cluster.ask()["cause"]


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])
