"""A job that asks an HTTP service about every record: whatever is killed, each has one answer, and one effect."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.chaos.processes import of_program
from tests.flow_program import FlowProgram, orders
from tests.settings import settings_of
from tests.waiting import HANGS_S, wait_until

from lowtide.cli.running_jobs import control_of
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.core.operators.questions import place_of
from lowtide.flow.plan.own_topics import answers_topic
from lowtide.sinks.answers.encoder import answer_of
from lowtide.status.control_client import ControlClient

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
PART = 400
SINKS = """
import urllib.request


@dataclass(frozen=True)
class Scored:
    user: str
    number: int
    so_far: int
    score: int
    key: str


def ask(order: Order, key: str) -> Scored:
    request = urllib.request.Request("{url}", headers={{"Idempotency-Key": key}})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return Scored(order.user, order.number, order.so_far, int(answer.read()), key)


scored = orders.call("score", ask, timeout=lt.seconds(5), retries=9, concurrency=16)
scored.write("out", lt.kafka("{out}", lt.json(Scored), key="user"))
"""


BESIDE = """
orders.key_by("number").write("beside", lt.kafka("{beside}", lt.json(Order), key="user"))
"""
"""A branch without the call, whose records go from worker to worker."""
FRONT_BYTES = 1 << 14


class Service:
    """Gives each key a number of its own, once; some connections are reset before they are answered, or after.

    Attributes:
        asked: By key how often it was asked.
        effects: By key its number.
        answers: While it is clear, questions wait.
        slow_s: Of every tenth key the first answer takes so long.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answers = threading.Event()
        self.answers.set()
        self.slow_s = 0.0
        self.effects: dict[str, int] = {}
        self._lock, self._chance = threading.Lock(), random.Random(5)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                number, reset = outer.answer(self.headers["Idempotency-Key"])
                if reset:
                    self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.close_connection = True
                    return
                body = str(number).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # As many as may come at once.

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, key: str) -> tuple[int, bool]:
        """The number of a key, and whether its connection is reset."""
        self.answers.wait()
        if int(key, 16) % 10 == 0 and not self.asked[key]:
            time.sleep(self.slow_s)
        with self._lock:
            self.asked[key] += 1
            number = self.effects.setdefault(key, 1000 + len(self.effects))
            return number, self._chance.random() < 0.05

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()


class Job(FlowProgram):
    """The flow with a call."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: str, url: str) -> None:
        self._out, self._beside = kafka.topic("scored", 12), kafka.topic("beside", 12)
        settings = settings_of(kafka, zookeeper, folder, 12) | {"job.restarts": 3}
        settings |= {"snapshots.max_commit_age_s": 3.0, "snapshots.keep": 1, "job.lanes": 2}
        super().__init__(folder, kafka, self.sinks(url), settings)
        self._kafka = kafka

    def sinks(self, url: str) -> str:
        """What stands behind the orders."""
        return SINKS.format(url=url, out=self._out)

    def rows(self) -> list[dict[str, Any]]:
        """What has come out."""
        return self._kafka.records(self._out)

    def control(self) -> ControlClient:
        """The control API of the running program."""
        given = {name: value for name, value in self.settings.items() if name in ("zookeeper.hosts",)}
        return control_of(Conf.load(None, given | {"job.folder": str(self.flow.parent / ".lowtide/jobs")}), self.name)

    def cut(self) -> int:
        """The number of offsets of answers that are gone."""
        topics = Topics(Conf.load(None, {"kafka.bootstrap_servers": self._kafka.address}).kafka)
        return sum(topics.earliest([topics.describe(answers_topic(self.name, "score"))]).values())


class Branched(Job):
    """The flow with a branch beside the call, and fronts that read a few hundred orders ahead."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: str, url: str) -> None:
        super().__init__(folder, kafka, zookeeper, url)
        self.settings = {**self.settings, "job.max_front_bytes": FRONT_BYTES}
        # Without dead letters what fails behind the call may be corrected further up, so that all sinks wait for it.
        letters = f'dead_letters=lt.kafka("{kafka.topic("letters", 1)}", lt.raw())'
        flow = self.flow.read_text()
        assert f'lt.Flow("{self.name}")' in flow
        self.flow.write_text(flow.replace(f'lt.Flow("{self.name}")', f'lt.Flow("{self.name}", {letters})'))

    def sinks(self, url: str) -> str:
        patient = super().sinks(url).replace("retries=9", "retries=1_000")
        return patient + BESIDE.format(beside=self._beside)

    def beside(self) -> int:
        """The number of records that have come out beside the call."""
        return len(self._kafka.records(self._beside))

    def epochs(self) -> list[int]:
        """The epochs that Spark has committed."""
        committed = (self.flow.parent / "checkpoints").rglob("commits/*")
        return [int(each.name) for each in committed if each.name.isdigit()]


class Completing(Job):
    """The flow with a call right after its source, whose answers go on as they come."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: str, url: str) -> None:
        super().__init__(folder, kafka, zookeeper, url)
        self.settings = {**self.settings, "snapshots.keep": 1_000}
        flow, counted = self.flow.read_text(), '.key_by("user").scan("counted", count, 0)'
        assert counted in flow
        self.flow.write_text(flow.replace(counted, ""))

    def sinks(self, url: str) -> str:
        return super().sinks(url).replace("concurrency=16", 'concurrency=16, order="answer"')

    def parted(self) -> list[list[dict[str, Any]]]:
        """What has come out, by partition."""
        found: dict[int, list[dict[str, Any]]] = {}
        for message in self._kafka.messages(self._out):
            found.setdefault(message.partition(), []).append(json.loads(message.value()))
        return list(found.values())

    def kept(self) -> list[str]:
        """The call keys in the answers that are kept, in the order of the log (errors: AssertionError)."""
        topics = Topics(Conf.load(None, {"kafka.bootstrap_servers": self._kafka.address}).kafka)
        (topic,) = (name for name in topics.names() if name == answers_topic(self.name, "score"))
        lanes: dict[int, list[bytes]] = {}
        keys: dict[bytes, str] = {}
        for message in self._kafka.messages(topic):
            at, answer = answer_of(message)
            lanes.setdefault(message.partition(), []).append(at)
            (keys[at],) = (text for text in words_in(msgspec.msgpack.decode(answer.value)) if len(text) == 32)
        assert all(ats == sorted(ats) for ats in lanes.values()), "keys rise in each lane"
        assert len({place_of(at) for at in keys}) == len(keys), "each place is answered once"
        return [keys[at] for at in sorted(keys)]


def words_in(value: Any) -> list[str]:
    """The texts in a value, however deep."""
    if isinstance(value, dict):
        value = list(value.values())
    return [text for each in value for text in words_in(each)] if isinstance(value, list) else [str(value)]


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


@pytest.fixture
def job(kafka: Kafka, zookeeper: str, tmp_path: Path, service: Service) -> Iterator[Job]:
    job = Job(tmp_path, kafka, zookeeper, service.url)
    yield job
    job.close()


def test_each_record_has_one_answer_over_kills_of_driver_host_and_caller(job: Job, service: Service) -> None:
    """In between the job gets more lanes, so that answers are in the partitions of other lanes."""
    given = orders(4 * PART)
    process = job.start()
    job.produce(given[:PART])
    job.have(PART // 3, lambda: len(job.rows()))
    process.kill()
    process.wait(HANGS_S)
    job.grow(8)
    process = job.start()
    job.produce(given[PART : 2 * PART])
    job.have(PART + PART // 3, lambda: len(job.rows()))
    os.kill(of_program(process.pid)["caller"][0], signal.SIGKILL)
    job.produce(given[2 * PART : 3 * PART])
    job.have(2 * PART + PART // 3, lambda: len(job.rows()))
    os.kill(of_program(process.pid)["worker"][0], signal.SIGKILL)
    job.produce(given[3 * PART :])
    job.have(len(given), lambda: len(job.rows()))
    found = job.rows()
    assert len(found) == len(given)
    assert sorted(each["number"] for each in found) == [each["number"] for each in given]
    counts: Counter[str] = Counter()
    for each in sorted(found, key=lambda each: each["number"]):
        counts[each["user"]] += 1
        assert each["so_far"] == counts[each["user"]]
        assert each["score"] == service.effects[each["key"]]
    assert {each["key"] for each in found} == set(service.effects), "nobody is asked about what is no record"
    assert sum(service.asked.values()) > len(given), "resets and kills have had effects"
    wait_until(lambda: job.cut() > 0, HANGS_S, "answers below the commit are cut")


def test_answers_go_on_as_they_come_and_open_questions_outlive_a_kill(
    kafka: Kafka, zookeeper: str, tmp_path: Path, service: Service
) -> None:
    job = Completing(tmp_path, kafka, zookeeper, service.url)
    given, half = orders(2 * PART), PART // 2
    service.slow_s = 1.0
    try:
        process = job.start()
        job.produce(given[:half])
        job.have(half, lambda: len(job.rows()))
        service.answers.clear()
        job.produce(given[half : half + 16])
        control = job.control()
        wait_until(lambda: counted(control) == (16, 0), HANGS_S, "questions are open")
        for _ in range(2):
            last = control.status().snapshots.last
            wait_until(partial(has_newer, control, last), HANGS_S, "a snapshot does not wait for answers")
        process.kill()
        process.wait(HANGS_S)
        service.answers.set()
        job.grow(8)
        job.settings = {**job.settings, "job.parallelism": 1}
        job.start()
        job.produce(given[half + 16 :])
        job.have(len(given), lambda: len(job.rows()))
        found, kept = job.rows(), job.kept()
        assert sorted(each["number"] for each in found) == [each["number"] for each in given], "each comes out once"
        assert all(each["score"] == service.effects[each["key"]] for each in found)
        assert {each["key"] for each in found} == set(service.effects)
        overtaken = 0
        for part in job.parted():
            # Answers below the first commit are cut, and come before all others.
            keys = [each["key"] for each in part]
            later = [key for key in keys if key in set(kept)]
            assert keys[len(keys) - len(later) :] == later == [key for key in kept if key in set(keys)]
            numbers = [each["number"] for each in part]
            overtaken += sum(one > other for one, other in pairwise(numbers))
        assert overtaken > 0, "slow ones are overtaken"
    finally:
        job.close()


def test_a_service_that_does_not_answer_is_named_and_counted(job: Job, service: Service) -> None:
    given = orders(PART)
    job.start()
    job.produce(given[: PART // 2])
    job.have(PART // 2, lambda: len(job.rows()))
    service.answers.clear()
    job.produce(given[PART // 2 :])
    control = job.control()
    wait_until(lambda: control.status().holder.startswith('open calls of "score" at '), HANGS_S, "the call is named")
    wait_until(lambda: control.status().calls["score"].oldest_s > 1, HANGS_S, "the question grows old")
    # Two workers have as many open as they may; their counts come one by one.
    expected = (2 * 16, PART // 2 - 2 * 16)
    wait_until(lambda: counted(control) == expected, HANGS_S, "all questions are counted")
    assert 'calls of "score"' in "".join(segment.holder for segment in control.status().segments)
    service.answers.set()
    job.have(PART, lambda: len(job.rows()))
    wait_until(lambda: metrics_of(control)["lowtide_call_seconds_count"] == PART, HANGS_S, "all are counted")
    # They come with the next beat; one that came too late may never have got as far as the service.
    again = sum(service.asked.values()) - PART
    assert again > 0
    wait_until(lambda: metrics_of(control)["lowtide_call_retries_total"] >= again, HANGS_S, "tries are counted")
    counts = metrics_of(control)
    assert counts["lowtide_call_seconds_sum"] > 16
    assert (counts["lowtide_calls_open"], counts["lowtide_call_failures_total"]) == (0, 0)
    assert "lowtide_host_turn_seconds_count 0.0" not in control.metrics(), "loops have turned"


@pytest.mark.nightly
def test_only_fronts_stop_where_no_more_calls_may_be_open(
    kafka: Kafka, zookeeper: str, tmp_path: Path, service: Service
) -> None:
    """R8: what needs no answer goes on between workers and out, acks and epochs go on, and the life stays."""
    job = Branched(tmp_path, kafka, zookeeper, service.url)
    given = orders(10 * PART)
    try:
        job.start()
        job.produce(given[:PART])
        job.have(PART, lambda: min(len(job.rows()), job.beside()))
        control = job.control()
        wait_until(job.epochs, HANGS_S, "an epoch has ended")
        life, epoch = control.status().incarnation, max(job.epochs())
        service.answers.clear()
        job.produce(given[PART:])
        wait_until(lambda: set(pulling(control).values()) == {0}, HANGS_S, "both fronts are stopped")
        wait_until(lambda: counted(control)[0] == 2 * 16, HANGS_S, "as many calls are open as may be")
        assert counted(control)[1] > 0, "others wait for them"
        wait_until(lambda: job.beside() >= PART + sum(counted(control)) // 2, HANGS_S, "records go out beside the call")
        assert job.beside() > PART + 2 * 16
        wait_until(lambda: max(job.epochs()) > epoch + 1, HANGS_S, "epochs end")
        assert len(job.rows()) <= PART + 2 * 16, "behind the call is what was answered before"
        assert job.beside() < len(given), "the rest is not read"
        assert set(pulling(control).values()) == {0}
        service.answers.set()
        job.have(len(given), lambda: min(len(job.rows()), job.beside()))
        wait_until(lambda: set(pulling(control).values()) == {1}, HANGS_S, "both fronts read on")
        assert control.status().incarnation == life
        assert sorted(each["number"] for each in job.rows()) == [each["number"] for each in given]
        assert job.beside() == len(given)
    finally:
        job.close()


def pulling(control: ControlClient) -> dict[str, float]:
    """By partition whether it is read."""
    families = text_string_to_metric_families(control.metrics())
    samples = [sample for family in families for sample in family.samples]
    return {each.labels["partition"]: each.value for each in samples if each.name == "lowtide_front_pulling"}


def has_newer(control: ControlClient, commit: str) -> bool:
    """Whether there is another last commit."""
    return control.status().snapshots.last != commit


def counted(control: ControlClient) -> tuple[int, int]:
    """The open calls, and those that wait."""
    call = control.status().calls["score"]
    return call.open, call.waiting


def metrics_of(control: ControlClient) -> dict[str, float]:
    """The metrics of calls, all steps together, as a scraper reads them."""
    families = text_string_to_metric_families(control.metrics())
    samples = [sample for family in families for sample in family.samples]
    return {sample.name: sample.value for sample in samples if sample.labels.get("step") == "score"}
