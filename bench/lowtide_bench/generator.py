"""Process that sends records by a schedule: `python -m lowtide_bench.generator`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from lowtide_bench.child import Parent
from lowtide_bench.flows import records_of
from lowtide_bench.ramp import Ramp
from lowtide_bench.record import Records
from lowtide_bench.schedule import NS, Schedule

CHUNK = 2_000
"""Records to send without looking at the clock."""
PAUSE_NS = 300_000
"""The shortest sleep; a shorter one would cost more CPU than the few records that are due are worth."""
POLL_NS = 50_000_000
SAY_EVERY_NS = NS // 2
FLUSH_LIMIT_S = 30.0
SETTINGS: dict[str, Any] = {
    # As Kafka's own producer has them since version 4: with librdkafka's defaults a busy generator fills the connection
    # with thousands of requests of a record each, which the broker takes one after the other, seconds late.
    "linger.ms": 5,
    "max.in.flight.requests.per.connection": 5,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
    "delivery.report.only.error": True,
}


class Generator:
    """Sends the records of a schedule, each when it is due, late ones as fast as it can."""

    def __init__(self, schedule: Schedule | Ramp, records: Records, kafka: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Producer

        self._schedule = schedule
        self._records = records
        self._topic = topic
        self._partitions = partitions
        self._failed = 0
        self._producer = Producer({"bootstrap.servers": kafka, "on_delivery": self._count_failed, **SETTINGS})
        self._lags_ns: list[int] = []

    def run(self, parent: Parent) -> None:
        """Send everything; report `sent` now and then, and at the end `finished` with its lag behind the schedule."""
        schedule, sent, said_at = self._schedule, 0, 0
        while sent < schedule.count:
            now = time.time_ns()
            due = min(schedule.due(now), sent + CHUNK)
            if due > sent:
                self._lags_ns.append(now - schedule.time_of(sent))
                for sequence in range(sent, due):
                    self._send(sequence)
                sent = due
            if now - said_at > SAY_EVERY_NS:
                said_at = now
                parent.say(sent=sent)
            self._producer.poll(0)
            self._sleep_until(schedule.time_of(sent))
        unsent = self._producer.flush(FLUSH_LIMIT_S)
        lags_ms = np.array(self._lags_ns) / 1e6
        p99, longest = (round(float(lag), 3) for lag in np.percentile(lags_ms, (99, 100)))
        parent.say(finished=sent - unsent - self._failed, lag_p99_ms=p99, lag_max_ms=longest)

    def _send(self, sequence: int) -> None:
        key, value = self._records.message(sequence, self._schedule.time_of(sequence))
        partition = self._records.partition(sequence, self._partitions)
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition)
                return
            except BufferError:
                self._producer.poll(0.01)

    def _sleep_until(self, time_ns: int) -> None:
        left = time_ns - time.time_ns()
        if left > 0 or self._schedule.rate > NS // PAUSE_NS:
            time.sleep(min(max(left, PAUSE_NS), POLL_NS) / NS)

    def _count_failed(self, error: object, _message: object) -> None:
        self._failed += error is not None


def main() -> None:
    """Send the task's records, then wait to be ended."""
    parent = Parent()
    task = parent.task
    given = task["schedule"]
    schedule = Ramp(**given) if "rates" in given else Schedule(**given)
    records = records_of(task["flow"])
    Generator(schedule, records, task["kafka"], task["topic"], task["partitions"]).run(parent)
    parent.wait()


if __name__ == "__main__":
    main()
