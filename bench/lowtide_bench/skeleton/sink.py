"""The skeleton's output to Kafka: everything that came since the last transaction goes into the next."""

from __future__ import annotations

import os
import threading
import time
import traceback
from queue import Empty, SimpleQueue

from lowtide.connectors.sender import SETTINGS

LIMIT_S = 30.0
MOST_WAITING = 64
"""Frames; more make the worker wait, and everything upstream of it."""
WAIT_S = 0.001

Outgoing = tuple[int, bytes | None, bytes]
"""Timestamp in ms, key, value."""


class Sink:
    """One partition of a topic, with a transactional producer and its own thread; the process ends if that fails."""

    def __init__(self, kafka: str, topic: str, partition: int) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": kafka, **SETTINGS, "transactional.id": f"skeleton-{topic}-{partition}"}
        self._producer = Producer(settings)
        self._producer.init_transactions(LIMIT_S)
        self._topic = topic
        self._partition = partition
        self._waiting: SimpleQueue[list[Outgoing]] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, records: list[Outgoing]) -> None:
        """Hand over records; wait while too many are queued."""
        while self._waiting.qsize() >= MOST_WAITING:
            time.sleep(WAIT_S)
        self._waiting.put(records)

    def _run(self) -> None:
        try:
            while True:
                self._commit(self._bundle())
        except BaseException:  # noqa: BLE001 - the main thread waits for its task; the parent is to see why
            traceback.print_exc()
            os._exit(1)

    def _bundle(self) -> list[Outgoing]:
        """Wait for records, and return all that are there."""
        bundle = self._waiting.get()
        try:
            while True:
                bundle += self._waiting.get_nowait()
        except Empty:
            return bundle

    def _commit(self, bundle: list[Outgoing]) -> None:
        self._producer.begin_transaction()
        for stamp, key, value in bundle:
            self._produce(stamp, key, value)
        self._producer.commit_transaction(LIMIT_S)

    def _produce(self, stamp: int, key: bytes | None, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, key, self._partition, timestamp=stamp)
                return
            except BufferError:
                self._producer.poll(0.01)
