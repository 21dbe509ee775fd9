"""Producers, one for each partition, that send at the same time and at a steady pace."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from demo.corpus import Text

APART = 50
"""Distance of a document's second version from its first, in documents."""
FLUSH_LIMIT_S = 30.0


class Feeder:
    """Sends both versions of every text; a document's versions go to the same partition, in order.

    Args:
        kafka: The bootstrap servers.
        topic: The documents' topic.
        texts: All of them.
        partitions: Number of partitions, each with a producer.
        seconds: Duration of all of it, without the waiting at the gate.
        gate_share: Share after which each producer waits until the gate is opened.
    """

    def __init__(
        self, kafka: str, topic: str, texts: Sequence[Text], partitions: int, *, seconds: float, gate_share: float
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._messages = [list(_versions([t for t in texts if t.partition == number])) for number in range(partitions)]
        self._seconds = seconds
        self._gate_share = gate_share
        self._gate = threading.Event()
        self._ended = threading.Event()
        self._sent = [0] * partitions
        self._changes = [0] * partitions
        self._error: BaseException | None = None
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(partitions)]

    @property
    def total(self) -> int:
        """Return the number of documents to send, counting each version."""
        return sum(map(len, self._messages))

    @property
    def sent(self) -> int:
        """Return the number of documents sent."""
        return sum(self._sent)

    @property
    def changes(self) -> int:
        """Return the number of changes of the index that the documents sent so far make."""
        return sum(self._changes)

    @property
    def done(self) -> bool:
        """Return whether all were sent and Kafka has them; raise the error if sending failed."""
        if self._error is not None:
            raise self._error
        return not any(thread.is_alive() for thread in self._threads)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def open_gate(self) -> None:
        """Let the last part be sent."""
        self._gate.set()

    def end(self) -> None:
        """Send nothing more, and wait for the producers."""
        self._ended.set()
        self._gate.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _run(self, number: int) -> None:
        try:
            self._send(number)
        except BaseException as error:  # noqa: BLE001 - raised by `done`
            self._error = error

    def _send(self, number: int) -> None:
        from confluent_kafka import Producer

        failed: list[Any] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        settings: dict[str, Any] = {"bootstrap.servers": self._kafka, "enable.idempotence": True, "linger.ms": 1}
        producer = Producer({**settings, "on_delivery": delivered})
        messages = self._messages[number]
        gate, pause_s = int(len(messages) * self._gate_share), self._seconds / max(1, len(messages))
        due = time.monotonic()
        for index, (name, text, changes) in enumerate(messages):
            if index == gate and not self._gate.is_set():
                producer.flush(FLUSH_LIMIT_S)
                self._gate.wait()
                due = time.monotonic()
            self._ended.wait(max(0.0, due - time.monotonic()))
            if self._ended.is_set():
                producer.flush(FLUSH_LIMIT_S)
                return
            due += pause_s
            value = json.dumps({"name": name, "text": text}).encode()
            producer.produce(self._topic, value, name.encode(), number)
            producer.poll(0)
            self._changes[number] += changes
            self._sent[number] += 1
        if producer.flush(FLUSH_LIMIT_S) or failed:
            raise RuntimeError(f"Kafka did not take all documents of producer {number}: {failed[:1]}")


def _versions(texts: Sequence[Text]) -> Iterator[tuple[str, str, int]]:
    """Yield name, text and changes of every message of one producer: each second version comes some documents later."""
    later: deque[tuple[str, str, int]] = deque()
    for text in texts:
        first, second = text.changes()
        yield text.name, text.first, first
        later.append((text.name, text.second, second))
        if len(later) > APART:
            yield later.popleft()
    yield from later
