"""Writes a staged log as hosts do: in transactions, of which some are aborted or left open by a host that dies."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.conftest import Kafka
from tests.waiting import HANGS_S

from lowtide.sinks.staged.encoder import MARK


class Staging:
    """One staged log.

    Args:
        kafka: The broker.
        lanes: Number of lanes.
        seed: Decides what is written.

    Attributes:
        topic: The log.
        staged: By lane what was committed: time, key and value.
        marks: By lane the last mark that was committed.
    """

    def __init__(self, kafka: Kafka, lanes: int, seed: int = 0) -> None:
        self.topic = kafka.topic("staged", lanes)
        self.staged: dict[int, list[tuple[int, str, str]]] = {lane: [] for lane in range(lanes)}
        self.marks: dict[int, int] = {}
        self._rng = random.Random(seed)
        self._kafka = kafka
        self._time_ms = 1_700_000_000_000
        self._number = 0
        self._producer = self._claimed()

    def write(self, transactions: int, abort: float = 0.3) -> None:
        """Write so many transactions over random lanes; every one ends with a mark."""
        for _ in range(transactions):
            self._write(aborted=self._rng.random() < abort)

    def mark(self) -> int:
        """Mark all lanes; return the time."""
        self._producer.begin_transaction()
        self._time_ms += 10
        self._mark(self._time_ms, list(self.staged))
        self._producer.commit_transaction(HANGS_S)
        return self._time_ms

    def _write(self, *, aborted: bool) -> None:
        producer, rng = self._producer, self._rng
        producer.begin_transaction()
        lanes = rng.sample(list(self.staged), rng.randint(1, len(self.staged)))
        time_ms, written = self._time_ms, {}
        for lane in lanes:
            rows = [self._row(time_ms, n) for n in range(rng.randint(0, 20))]
            for at, key, value in rows:
                producer.produce(self.topic, value.encode(), None if key == "-" else key.encode(), lane, timestamp=at)
            written[lane] = rows
        self._mark(time_ms + 10, lanes, keep=not aborted)
        if aborted:
            # What the next transaction writes is as if this one had not been.
            producer.flush(HANGS_S)
            producer.abort_transaction(HANGS_S)
            if rng.random() < 0.2:
                self._producer = self._claimed()
            return
        producer.commit_transaction(HANGS_S)
        self._time_ms = time_ms + 10
        for lane, rows in written.items():
            self.staged[lane] += rows

    def _row(self, time_ms: int, number: int) -> tuple[int, str, str]:
        self._number += 1
        key = self._rng.choice(["-", "a", "ß"])
        return time_ms, key, f'{{"n":{self._number},"of":{number}}}'

    def _mark(self, time_ms: int, lanes: list[int], *, keep: bool = True) -> None:
        for lane in lanes:
            self._producer.produce(self.topic, None, None, lane, headers=[(MARK, b"%d" % time_ms)])
            if keep:
                self.marks[lane] = time_ms

    def _claimed(self) -> Any:
        from confluent_kafka import Producer

        settings: Mapping[str, Any] = {
            "bootstrap.servers": self._kafka.address,
            "transactional.id": self.topic,
            "log_level": 0,
        }
        producer = Producer(dict(settings))
        producer.init_transactions(HANGS_S)
        return producer
