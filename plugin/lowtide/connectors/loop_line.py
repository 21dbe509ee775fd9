"""A host's line to the topics of loops: frames of its workers go out, those for its workers come in.

It is neither source nor sink. Its frames hold min time in the tracker by their values, as anywhere else (R7), and
the topic stores frames that a worker has no time for: no worker of a cycle waits for room at one that waits for it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lowtide.connectors.sender import Sender
from lowtide.core.frames import is_of_life, mark_of_life
from lowtide.errors import LifeEnded, LowtideError
from lowtide.flow.schema.headers import Headers

LOG = logging.getLogger(__name__)
INCARNATION = "lowtide.incarnation"
"""The header that says which life a frame is of."""
READ_S = 0.05
"""Longest wait of a read, and so the longest time until a new partition is read."""
READ_FRAMES = 500
QUEUED_FRAMES = 10_000
"""Frames that were read and wait for the host's loop; more are left in the topic."""
WAKE_BYTES = 4096
SETTINGS: dict[str, Any] = {
    "group.id": "lowtide-loop",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # A missing offset was needed.
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    "fetch.queue.backoff.ms": 1,
    "fetch.error.backoff.ms": 10,
    "queued.max.messages.kbytes": 32 << 10,
    "socket.nagle.disable": True,
    "reconnect.backoff.max.ms": 500,
    "log_level": 2,
}
GONE = frozenset({
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
})  # fmt: skip

Receiver = tuple[int, int]
"""The way back to a loop's head, and which of the head's workers."""


class LoopLine:
    """The line; only its own thread waits.

    Args:
        settings: librdkafka's, with the bootstrap servers and the security; they win over our own.
        incarnation: The life's number: frames of any other are skipped.
        job_id: What the job is called for good: frames of another one of its name are skipped.
        delivery_limit_ms: How long Kafka may take for a frame.
        max_record_bytes: What a frame may have.

    Attributes:
        skipped: Frames of other lives that have come.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        incarnation: int,
        *,
        delivery_limit_ms: int,
        max_record_bytes: int,
        job_id: str = "",
    ) -> None:
        self.skipped = 0
        self._settings = settings
        self._incarnation = incarnation
        self._job_id = job_id
        self._limit_ms = delivery_limit_ms
        self._max_record_bytes = max_record_bytes
        self._sending: Sender | None = None
        self._receivers: dict[tuple[str, int], Receiver] = {}
        self._new: SimpleQueue[TopicPartition | None] = SimpleQueue()
        self._came: deque[tuple[Receiver, bytes]] = deque()
        self._error: BaseException | None = None
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        self._room = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop line", daemon=True)
        self._closed = False

    def listen(self, receiver: Receiver, topic: str, offset: int) -> None:
        """Read what is sent to a worker that lives here from now on: its partition, from an offset."""
        self._receivers[topic, receiver[1]] = receiver
        self._new.put(TopicPartition(topic, receiver[1], offset))
        if self._thread.ident is None:
            self._thread.start()

    def send(self, target: int, topic: str, frame: bytes, headers: Headers) -> None:
        """Send a frame to a worker that lives elsewhere; frames of this line to one worker stay in order.

        Raises:
            LowtideError: Kafka does not take it.
        """
        if self._sending is None:
            self._sending = Sender(self._settings, self._limit_ms, self._max_record_bytes)
        whole: Headers = [(INCARNATION, mark_of_life(self._incarnation, self._job_id)), *headers]
        try:
            self._sending.produce([(topic, target, None, frame, 0, whole)], self.check)
        except KafkaException as caught:
            raise self._sending.ended(caught.args[0]) from caught

    def check(self) -> None:
        """See what has become of what was sent (errors: LowtideError, if Kafka does not take it)."""
        if self._sending is not None:
            self._sending.producer.poll(0)
            self._sending.check("take a frame of a loop")

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `receive` has something."""
        return self._readable

    def receive(self) -> list[tuple[Receiver, bytes]]:
        """Frames that have come, those of one sender in order (errors: LowtideError, what ended the reading)."""
        with suppress(BlockingIOError):
            os.read(self._readable, WAKE_BYTES)
        error, came = self._error, self._came
        found = [came.popleft() for _ in range(len(came))]
        self._room.set()
        if error is not None:
            raise error
        return found

    def close(self) -> None:
        """End both; frames on their way are of no more use."""
        if not self._closed:
            self._closed = True
            self._new.put(None)
            self._room.set()
            if self._thread.is_alive():
                self._thread.join(1.0)
            if self._sending is not None:
                self._sending.producer.purge()

    # -- the thread that reads -------------------------------------------------------------------------------------

    def _run(self) -> None:
        consumer = None
        try:
            consumer = Consumer(SETTINGS | dict(self._settings) | {"error_cb": _ignore})
            while self._assigned(consumer):
                if len(self._came) >= QUEUED_FRAMES:
                    self._room.clear()
                    self._room.wait(READ_S)
                    continue
                self._read(consumer)
        except BaseException as error:  # noqa: BLE001 - raised by `receive`, in the thread of the loop
            self._error = error
            self._wake()
        finally:
            if consumer is not None:
                consumer.close()

    def _assigned(self, consumer: Any) -> bool:
        """Begin with new partitions; return whether to continue."""
        while True:
            try:
                new = self._new.get_nowait()
            except Empty:
                return True
            if new is None:
                return False
            consumer.incremental_assign([new])

    def _read(self, consumer: Any) -> None:
        first = consumer.poll(READ_S)
        if first is None:
            return
        came = [first, *consumer.consume(READ_FRAMES, 0)]
        for message in came:
            error = message.error()
            if error is not None:
                if error.code() in GONE:
                    raise self._lost(message, error)
                continue  # The client recovers without us.
            if not is_of_life(dict(message.headers() or ()).get(INCARNATION), self._incarnation, self._job_id):
                self._skip(message)
                continue
            self._came.append((self._receivers[message.topic(), message.partition()], message.value()))
        self._wake()

    def _skip(self, message: Any) -> None:
        if not self.skipped:
            LOG.info("skipping frames of another life in topic %s", message.topic())
        self.skipped += 1

    def _lost(self, message: Any, error: KafkaError) -> LowtideError:
        return LifeEnded(
            f'cannot read frames of a loop from topic "{message.topic()}": {error.str()}',
            where=f"partition {message.partition()}",
            way_out="start the job again: it reads its sources again from its last commit, and nothing is lost or "
            "doubled; and do not delete the topic or its records while the job runs",
        )

    def _wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._writable, b"\0")


def _ignore(_: object) -> None:
    """Ignore connection errors: missing frames show them, and the tracker's watch sees that."""
