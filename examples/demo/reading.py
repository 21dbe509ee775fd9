"""Reader of the delivered topic (read_committed), and the latency by its clock."""

from __future__ import annotations

import threading
import time
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

Stamps = npt.NDArray[np.int64]
Times = npt.NDArray[np.floating]

CAUGHT_UP_MS = 1_000
"""A reader that gets messages younger than this has caught up."""
WARM_UP_MS = 3_000
BATCH = 2_000


class Reader:
    """Records the timestamp of every delivered message and its time of receipt, both in ms since 1970."""

    def __init__(self, kafka: str, topic: str, partitions: int) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": kafka,
            "group.id": "demo",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 1,
        }
        self._topic = topic
        self._partitions = partitions
        self._stamps, self._times = array("q"), array("d")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __len__(self) -> int:
        return len(self._times)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def seen(self) -> tuple[Stamps, Times]:
        """Timestamps and times of receipt so far."""
        count = len(self._times)
        return np.array(self._stamps[:count], np.int64), np.array(self._times[:count], np.float64)

    def _run(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer: Any = Consumer(self._settings)
        consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(self._partitions)])
        while not self._ended.is_set():
            first = consumer.poll(0.1)
            if first is None:
                continue
            messages = [first, *consumer.consume(BATCH, 0)]
            now_ms = time.time() * 1e3
            good = [message.timestamp()[1] for message in messages if message.error() is None]
            # The times last: a concurrent reader of both goes by their number.
            self._stamps.extend(good)
            self._times.extend([now_ms] * len(good))
        consumer.close()


def caught_up(stamps: Stamps, times: Times, after_ms: float) -> float | None:
    """Return when the first message after a time came that was younger than `CAUGHT_UP_MS`; None if none has."""
    fresh = times[(times > after_ms) & (times - stamps < CAUGHT_UP_MS)]
    return float(fresh[0]) if len(fresh) else None


def steady(stamps: Stamps, times: Times, outage_ms: tuple[float, float]) -> tuple[Times, float]:
    """Return the latencies and the rate of steady running.

    Changes count that came after the first three seconds, and either before the kill or from a document that Kafka got
    after the reader had caught up with it.

    Args:
        stamps: The timestamps of all changes: those of their documents, in whole ticks.
        times: The time at which each came.
        outage_ms: From the kill until the reader had caught up.

    Returns:
        The latency of each such change in ms, from its document's timestamp to the reader's clock; and the number of
        changes per second in those two periods.
    """
    killed, caught_up = outage_ms
    if not len(times):
        return np.empty(0), float("nan")
    began = float(stamps.min()) + WARM_UP_MS
    before, after = (stamps >= began) & (times < killed), stamps >= caught_up
    lasted_ms = max(0.0, killed - began)
    if after.any():
        lasted_ms += float(times[after].max()) - caught_up
    counted = before | after
    rate = float(np.count_nonzero(counted)) / lasted_ms * 1e3 if lasted_ms else float("nan")
    return times[counted] - stamps[counted], rate
