"""Measures the time from a record's output to the news that everything before it is out, in a quiet job (R18)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lowtide.conf import Conf
from lowtide.errors import LowtideError, NotRunning
from lowtide.status.control_client import ControlClient
from lowtide.status.subscriber import follow
from lowtide_bench.arrivals import percentiles
from lowtide_bench.flows import records_of
from lowtide_bench.ground import PARTITIONS, described, ground
from lowtide_bench.killable import Killable
from lowtide_bench.machine import in_words
from lowtide_bench.reader import SETTINGS
from lowtide_bench.schedule import NS
from lowtide_bench.session import Say
from lowtide_bench.systems import Way
from lowtide_bench.tables import Table, number

FLOW = "passthrough"
SUBJECTS = ("delivered", "min_time")
LATE_S = 10.0
"""Limit on a record, and on the news of it."""
NS_PER_MS = 1_000_000


class Listener:
    """A thread that follows a job's times while the block lasts; records the time of each report."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client
        self._news: dict[str, list[tuple[int, int]]] = {subject: [] for subject in SUBJECTS}
        threading.Thread(target=self._run, name="listener", daemon=True).start()

    def _run(self) -> None:
        try:
            for news in follow(lambda: self._client, SUBJECTS):
                time_ms = news.data.get("time_ms")
                if news.kind in self._news and isinstance(time_ms, int):
                    self._news[news.kind].append((time_ms, time.time_ns()))
        except LowtideError:
            return  # The job has been stopped.

    def passed_ns(self, subject: str, stamp_ms: int) -> int | None:
        """The time at which a subject's time passed a record's; None if it has not."""
        return next((at_ns for time_ms, at_ns in list(self._news[subject]) if time_ms > stamp_ms), None)


def run(records: int, every_s: float, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench telling --json` prints.

    Args:
        records: Number of records, written one after another.
        every_s: Average time from one to the next.
        conf: As in `lowtide_bench.run.run`.
        say: Called with each progress message.

    Raises:
        LowtideError: the job did not start, or a record did not come out.
    """
    with described() as surroundings, ground(conf, "create", say) as here:
        way = here.way(FLOW, FLOW)
        say("the flow")
        system = Killable(way, here.conf, here.folder)
        try:
            listener = Listener(system.running(conf.job.start_limit_s))
            waits = list(_waits(way, listener, records, every_s, say))
        finally:
            system.stop()
    return {"flow": FLOW, "records": records, "every_s": every_s, **_figures(waits), **surroundings}


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return the times from a record's output to the news of it."""
    rows = [
        (subject, *(number(result[f"{subject}_{each}_ms"], 0) for each in ("p50", "p99", "max")))
        for subject in SUBJECTS
    ]
    yield Table("News after a record is out", ("", "p50, ms", "p99, ms", "max, ms"), rows)


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine of the measurement."""
    return f"{result['records']} records, one each {result['every_s']:g} s; {in_words(result['machine'])}"


def _waits(way: Way, listener: Listener, count: int, every_s: float, say: Say) -> Iterator[dict[str, float]]:
    """Write records and read them; return, by subject, the ms from a record's output to the news of it."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    written = records_of(FLOW)
    spread = np.random.default_rng(1).uniform(0.7, 1.3, count + 1)
    producer = Producer({"bootstrap.servers": way.kafka, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": way.kafka, **SETTINGS})
    consumer.assign([TopicPartition(way.sink, partition, 0) for partition in range(PARTITIONS)])
    try:
        for sequence in range(count + 1):
            say(f"records: {sequence} of {count}")
            stamp_ms = time.time_ns() // NS_PER_MS
            key, value = written.message(sequence, stamp_ms * NS_PER_MS)
            producer.produce(way.source, value, key, sequence % PARTITIONS, timestamp=stamp_ms)
            producer.flush(LATE_S)
            message = consumer.poll(LATE_S)
            out_ns = time.time_ns()
            if message is None or message.error() is not None:
                raise NotRunning("a record did not come out", where=way.sink, way_out="see the job's log")
            time.sleep(every_s * spread[sequence])
            if sequence:  # The first one meets a job that has done nothing yet.
                yield {subject: _wait_ms(listener, subject, stamp_ms, out_ns) for subject in SUBJECTS}
    finally:
        consumer.close()


def _wait_ms(listener: Listener, subject: str, stamp_ms: int, out_ns: int) -> float:
    until = time.monotonic() + LATE_S
    while (passed_ns := listener.passed_ns(subject, stamp_ms)) is None:
        if time.monotonic() > until:
            return float("inf")
        time.sleep(0.05)
    return max(0.0, (passed_ns - out_ns) / NS * 1000)


def _figures(waits: list[dict[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for subject in SUBJECTS:
        values = np.array([wait[subject] for wait in waits], np.float64)
        for name, value in zip(("p50", "p99", "max"), percentiles(values, (50, 99, 100)), strict=True):
            found[f"{subject}_{name}_ms"] = value
    return found
