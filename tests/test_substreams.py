"""Clocks and the ends of substreams in a real job: byte by byte, and published over HTTP, over a kill."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.conftest import unique
from tests.judging import Judge, committed, produce
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.driver.job import Job
from lowtide.errors import LifeEnded, NotRunning
from lowtide.local.oracle import read_output
from lowtide.status.subscriber import follow
from lowtide_snapshots.job.news import DONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Spark

    from lowtide.conf import Conf
    from lowtide.status.control_client import ControlClient
    from lowtide_snapshots.job.news import News

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]

LANES = 2
COUNT = 2_500
BEGAN = datetime(2026, 3, 1, 10, tzinfo=UTC)
TOLD_WITHIN_S = 240.0


@dataclass(frozen=True)
class Document:
    name: str
    text: str


@dataclass(frozen=True)
class Word:
    word: str
    document: str
    count: int


@dataclass(frozen=True)
class Minute:
    word: str
    window_end: datetime
    words: int


@dataclass(frozen=True)
class Run:
    word: str
    begun: datetime
    ended: datetime
    count: int
    closed_by: str


def opens(word: Word) -> bool:
    return word.count % 5 == 1


def closes(word: Word) -> bool:
    return word.count % 5 == 0


def slowly(document: Document) -> Document:
    time.sleep(0.002)  # As long as it takes to be killed in the middle.
    return document


def words(document: Document) -> list[Word]:
    return [Word(word, document.name, 0) for word in document.text.split()]


def counted(count: int, word: Word) -> tuple[int, Word]:
    return count + 1, Word(word.word, word.document, count + 1)


def flow_of(name: str, source: str, sinks: dict[str, str]) -> lt.Flow:
    flow = lt.Flow(name)
    flow.clock("minutes", lt.minutes(5)).write("moments", lt.kafka(sinks["moments"], lt.json(lt.Moment)))
    documents = flow.read("documents", lt.kafka(source, lt.json(Document), stop="now")).map(slowly)
    index = documents.flat_map(words).key_by("word").scan("index", counted, 0)
    index.write("index", lt.kafka(sinks["index"], lt.json(Word), key="word"))
    done = documents.when_done("indexed", through=index, label="name", keep=lt.days(1))
    done.write("done", lt.kafka(sinks["done"], lt.json(Document), key="name"))
    seen = documents.when_begun("seen", label=("name", "text"), keep=lt.days(1))
    seen.write("seen", lt.kafka(sinks["seen"], lt.json(Document), key="name"))
    after = documents.when_done("after", order="stream", label=("text", "name"))
    after.write("after", lt.kafka(sinks["after"], lt.json(Document), key="name"))
    by_word = index.key_by("word", name="again")
    sums = by_word.window("sums", lt.tumbling(lt.minutes(1))).aggregate(Minute, words=lt.agg.count())
    sums.write("sums", lt.kafka(sinks["sums"], lt.json(Minute), key="word"))
    summed = documents.when_done("summed", through=sums, label="name")
    summed.write("summed", lt.kafka(sinks["summed"], lt.json(Document), key="name"))
    runs = by_word.substream("runs", Run, opens=opens, closes=closes, idle=lt.seconds(20))
    runs.begun.write("opened", lt.kafka(sinks["opened"], lt.json(Word), key="word"))
    billed = runs.ended.when_done("billed", through=sums, label="word")
    billed.write("runs", lt.kafka(sinks["runs"], lt.json(Run), key="word"))
    return flow


SINKS = ("moments", "index", "done", "seen", "after", "sums", "summed", "opened", "runs")


def write(conf: Conf, topic: str, partition: int, numbers: range) -> None:
    messages: list[tuple[bytes | lt.Message, int | None]] = []
    for number in numbers:
        (value,) = lt.json(Document).encode([Document(f"document-{number}", f"a w{number % 7} w{number % 3}")])
        assert value is not None
        messages.append((value, int((BEGAN + timedelta(seconds=number)).timestamp() * 1000)))
    produce(conf, topic, {partition: messages})


class Lives:
    """The job, life after life, for subscribers."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.news: dict[str, list[News]] = {}
        self.delivered: dict[str, bool] = {}
        self._threads: list[threading.Thread] = []

    def client(self) -> ControlClient:
        job = self.job
        if job is None:
            raise NotRunning("it is between two lives")
        return job.client()

    def wait_for(self, *labels: str, delivered: Callable[[str], bool], step: str = "indexed") -> None:
        """Subscribe to the ends of labels; of each it is noted whether it was delivered when it was published."""
        about = [f"done:{step}:{label}" for label in labels]

        def listen() -> None:
            for each in follow(self.client, about, at_ms=0, limit_s=TOLD_WITHIN_S):
                if each.kind == DONE:
                    label = str(each.data["about"]).split(":", 2)[2]
                    self.delivered[label] = delivered(label)
                    self.news.setdefault(label, []).append(each)

        thread = threading.Thread(target=listen)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(TOLD_WITHIN_S)


def test_labels_are_reported_when_they_are_delivered_and_clocks_strike_over_a_kill(spark: Spark) -> None:
    """One subscriber comes before the label does and sees the kill, others come after their labels have ended."""
    source = spark.kafka.topic("documents", 3)
    sinks = {name: spark.kafka.topic(name, LANES) for name in SINKS}
    conf = spark.conf(job__parallelism=2, job__lanes=LANES)
    write(conf, source, 0, range(0, COUNT, 2))
    write(conf, source, 1, range(1, COUNT, 2))
    flow = flow_of(unique("substreams"), source, sinks)
    lives = Lives()

    def is_delivered(label: str) -> bool:
        found = (each for lane in read_output(conf.kafka, sinks["index"]).values() for each in lane)
        return sum(f'"{label}"'.encode() in (each.value or b"") for each in found) == 3

    def has_come(label: str) -> bool:
        name = json.loads(label)["name"].encode()
        return any(
            name in (each.value or b"") for lane in read_output(conf.kafka, sinks["seen"]).values() for each in lane
        )

    seven, eight = ({"name": f"document-{each}", "text": f"a w{each % 7} w{each % 3}"} for each in (7, 8))
    begun, marked = (json.dumps(each, sort_keys=True, separators=(",", ":")) for each in (seven, eight))
    late = f"document-{COUNT - 10}"
    lives.job = job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        lives.wait_for(late, "document-3", delivered=is_delivered)
        lives.wait_for(begun, step="seen/begun", delivered=has_come)
        job.wait(lambda: committed(conf, sinks["done"]) < 100)
        assert not job.finished, "it is to be killed before"
        os.kill(next(each["pid"] for each in job.status()["workers"] if each["worker"] == "1/0"), signal.SIGKILL)
        with pytest.raises(LifeEnded):
            job.wait(until(60.0))
    finally:
        lives.job = None
        job.stop()
    lives.job = job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        lives.wait_for("document-5", delivered=is_delivered)
        lives.wait_for(marked, step="after", delivered=has_come)
        job.wait(until(120.0))
        assert job.finished
    finally:
        lives.job = None
        job.stop()
        lives.join()
    assert Judge(flow, conf).right() > 5 * COUNT
    told = (late, "document-3", "document-5", begun, marked)
    assert {label: len(news) for label, news in lives.news.items()} == dict.fromkeys(told, 1)
    assert all(lives.delivered.values()), "published is what is in the sinks"
    at = BEGAN + timedelta(seconds=COUNT - 10)
    assert lives.news[late][0].time_ms == int(at.timestamp() * 1000) + 2, "a tick after the record's"


def until(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() < deadline
