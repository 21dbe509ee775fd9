"""A whole run: Kafka, ZooKeeper and Spark, one query after another; each is measured and compared with DuckDB."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from nexmark.events import WAIT
from nexmark.generator import DELAY_MS, Generator, Log
from nexmark.queries import Query, answers, flow_of

from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.driver.job import Job
from lowtide.driver.session import start_session
from lowtide.local.oracle import read_output
from lowtide_bench.child import Child, ChildFailed
from lowtide_bench.ground import described, ground, modes
from lowtide_bench.nexmark.figures import Speed
from lowtide_bench.nexmark.writing import PARTITIONS, Live, messages_of, write
from lowtide_bench.session import READY_LIMIT_S, SAVE_LIMIT_S, Say, child

LANES = 2
SLOTS = 14
"""Spark's slots: enough for the longest query, its workers of all levels and its sources' partitions."""
CLOSES_S = 11.0
"""From an event's time to the end of the last window with it."""
LEAD_S = 1.0
DONE_LIMIT_S = 300.0
"""Limit on a query's work on its backlog, and on the wait for its last result."""


@dataclass(frozen=True, slots=True)
class Course:
    """The events to send.

    Attributes:
        records: Events of the backlog, which is complete before a query starts.
        rate: Events per second, both in the backlog's time and in the live load.
        seconds: Duration of the live load.
        seed: Seed of all events.
    """

    records: int
    rate: int
    seconds: float
    seed: int


def run(queries: Sequence[Query], course: Course, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure queries, and return the object of `lowtide bench nexmark --json`.

    Raises:
        LowtideError: the run failed.
    """
    with described() as surroundings, ground(conf, "create", say) as here:
        spark = dataclasses.replace(here.conf.spark, master=f"local[{SLOTS}]")
        conf = dataclasses.replace(here.conf, spark=spark)
        say("starting Spark")
        session = start_session(conf, "nexmark")
        # To Spark each query's end is a torn stream, which it warns of at length; real failures are raised here.
        session.sparkContext.setLogLevel("OFF")
        try:
            found = []
            for query in queries:
                measured = _Measured(query, course, conf, str(here.folder / f"{query.name}.npy"), say)
                found.append(measured.figures())
        finally:
            session.stop()
    return {"queries": found, **dataclasses.asdict(course), **modes(conf, "create"), **surroundings}


class _Measured:
    """Measurement of one query: topics and events of its own, a job, a reader beside it."""

    def __init__(self, query: Query, course: Course, conf: Conf, file: str, say: Say) -> None:
        self._query, self._course, self._conf, self._file = query, course, conf, file
        self._say: Say = lambda what: say(f"{query.name}: {what}")
        self._sources = [name for name in PARTITIONS if any(call.name == name for call in query.flow.calls)]
        self._topics = {name: f"{query.name}-{name}" for name in (*self._sources, query.name)}
        self._generator = Generator(course.seed, course.rate)

    def figures(self) -> dict[str, Any]:
        """Run it, and return its object."""
        conf, course, query = self._conf, self._course, self._query
        for name, topic in self._topics.items():
            Topics(conf.kafka).create(topic, partitions=PARTITIONS.get(name, LANES))
        self._say(f"writing a backlog of {course.records:,} events")
        behind_s = course.records / course.rate + DELAY_MS / 1_000
        backlog = self._generator.log(course.records, datetime.now(UTC) - timedelta(seconds=behind_s))
        old = messages_of(backlog, self._sources)
        write(conf.kafka, self._topics, old, paced=False)
        with ExitStack() as stack:
            task = {"kafka": conf.kafka.bootstrap_servers, "topic": self._topics[query.name], "partitions": LANES}
            reader = child(stack, "lowtide_bench.nexmark.reader", {**task, "file": self._file})
            reader.expect("ready", READY_LIMIT_S)
            job = stack.enter_context(self._running())
            self._until(job, _end_ms(backlog), "working off the backlog")
            live_at = datetime.now(UTC) + timedelta(seconds=LEAD_S)
            live = self._generator.log(round(course.rate * course.seconds), live_at)
            load = Live(conf.kafka, self._topics, messages_of(live, self._sources))
            self._say(f"{course.rate:,} events/s for {course.seconds:g} s")
            job.wait(lambda: not load.over())
            load.over()
            self._until(job, _end_ms(live), "waiting for the last windows to close")
            came = self._came(reader)
        speed = Speed.of(came, np.array([due for due, *_ in old], np.int64), int(live_at.timestamp() * 1_000))
        equal = self._equal([backlog, live])
        self._say("equal to DuckDB's answer" if equal else "NOT equal to DuckDB's answer")
        return {"name": query.name, "equal": equal, **speed.as_json()}

    @contextmanager
    def _running(self) -> Iterator[Job]:
        conf = self._conf
        job = Job.start(flow_of(f"nexmark-{self._query.name}", [self._query], self._topics), conf, self._say)
        try:
            job.wait_for_workers(conf.job.start_limit_s)
            yield job
        finally:
            job.stop()

    def _until(self, job: Job, end_ms: int, what: str) -> None:
        """Wait until everything before a moment is delivered."""
        self._say(what)
        deadline = time.monotonic() + DONE_LIMIT_S
        while (job.client().status().delivered_time_ms or 0) < end_ms:
            if time.monotonic() > deadline:
                raise ChildFailed(
                    f"{self._query.name}: {what} took longer than {DONE_LIMIT_S:g} s", way_out="take fewer --records"
                )
            nap = time.monotonic() + 0.5
            job.wait(lambda nap=nap: time.monotonic() < nap)  # type: ignore[misc]

    def _came(self, reader: Child) -> np.ndarray[Any, np.dtype[np.int64]]:
        time.sleep(LEAD_S)
        reader.send({"end": True})
        reader.expect("saved", SAVE_LIMIT_S)
        found: np.ndarray[Any, np.dtype[np.int64]] = np.load(self._file)
        return found

    def _equal(self, logs: list[Log]) -> bool:
        query = self._query
        lanes = read_output(self._conf.kafka, self._topics[query.name]).values()
        results = query.read(message.value for lane in lanes for message in lane)
        return query.rows(results) == answers(logs, [query])[query.name]


def _end_ms(log: Log) -> int:
    """Return the moment, ms since 1970, before which all results of these events lie."""
    last = max(each.record.date_time for each in log.bids) + timedelta(seconds=CLOSES_S)
    expiry = max(each.record.expires for each in log.auctions)
    return int((max(last, expiry) + WAIT + timedelta(seconds=1)).timestamp() * 1_000)
