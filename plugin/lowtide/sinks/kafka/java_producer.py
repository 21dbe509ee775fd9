"""Kafka's own producer, in a process of its own: `io.lowtide.TransactionProcess` (decision 070).

It is handed whole transactions over a socket, which is its standard input, and answers how each ended. Messages are
`u32 length | msgpack` in both directions, big-endian.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from lowtide.connectors.sender import Outgoing
from lowtide.errors import LifeEnded, LowtideError
from lowtide.jars.java import find_java
from lowtide.jars.shim import shim_jar
from lowtide.jars.third_party import producer_jars_here
from lowtide.sinks.contract import Packet

MAIN = "io.lowtide.TransactionProcess"
SLICE_S = 0.5
"""Time after which whoever waits asks whether it may go on waiting."""
MESSAGE_RECORDS, MESSAGE_BYTES = 1_000, 1 << 20
"""Limits of one message, unless a single record is larger; most transactions are one message."""
HEAP_MB = 48
"""Heap of the process, in addition to records on their way."""
LENGTH_BYTES = 4
WORDS_BYTES = 16_000
"""Length of the process's last words that are looked through for its error."""
WORDS_SHOWN = 800
"""Characters of them that an error repeats."""
NOTES = ("NOTE: ", "SLF4J", "OpenJDK ", "Java HotSpot", "Picked up ", "WARNING:", "\tat ", "\t... ")
"""Beginnings of lines that no process ends for: notes of the JVM and of its log, and the frames of a trace."""


class Kind(IntEnum):
    """The end of a claim or a transaction; `Outcome.java` says what each means."""

    DONE = 0
    ABORTED = 1
    REFUSED = 2
    TOO_LARGE = 3
    FENCED = 4
    DENIED = 5
    OLD = 6
    UNKNOWN = 7


class Outcome(NamedTuple):
    """The end of a claim or a transaction, and the record it ended by.

    Attributes:
        kind: In one word.
        text: In Kafka's words; empty for none.
        topic: The record's topic; empty if it was no record's fault.
        partition: Its partition.
        bytes: The size of its key and value.
    """

    kind: Kind
    text: str
    topic: str
    partition: int
    bytes: int


_encode = msgspec.msgpack.Encoder().encode
_outcome = msgspec.msgpack.Decoder(tuple[int, str, str, int, int]).decode


class JavaProducer:
    """The process, from its start to its end; at most one call at a time.

    Args:
        buffer_bytes: What it may hold of records that no broker has taken yet.

    Raises:
        JarMissing, JarDamaged: Its jars are not there.
        JavaMissing: There is no Java.
    """

    def __init__(self, buffer_bytes: int) -> None:
        heap_mb = HEAP_MB + (2 * buffer_bytes >> 20)
        command = [str(find_java().executable), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-Xshare:auto", "-XX:+ExitOnOutOfMemoryError", "-cp", _class_path(), MAIN]
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(SLICE_S)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        with theirs:
            # It is told apart from other processes of a host by nothing: it ends when the socket closes.
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=self._said, stderr=self._said)

    def open(
        self, ids: Sequence[str], properties: Mapping[str, str], max_record_bytes: int, patience: Callable[[], None]
    ) -> Outcome:
        """Claim transactional ids, which take turns from then on.

        Args:
            ids: The ids.
            properties: The producer's, secrets included.
            max_record_bytes: What key and value of one record may have.
            patience: Called while it takes long; raises when that takes too long.
        """
        self._send(_encode((ids, list(properties.items()), max_record_bytes)), patience)
        return self._answer(patience)

    def transact(
        self,
        packets: Iterable[Packet],
        lasts: Callable[[Packet], Iterable[Outgoing]],
        patience: Callable[[], None],
    ) -> Outcome:
        """Commit packets, each with its lasts, in one transaction, and return how that ended."""
        records: list[Outgoing] = []
        for packet in packets:
            for portion in _portions(packet.messages):
                if records and len(records) + len(portion) > MESSAGE_RECORDS:
                    self._send(_encode((False, records)), patience)
                    records = []
                records += portion
            records += lasts(packet)
        self._send(_encode((True, records)), patience)
        return self._answer(patience)

    def close(self) -> None:
        """End the process; what is open under its ids is for the next claim, or the broker, to abort."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
        self._said.close()

    def _send(self, message: bytes, patience: Callable[[], None]) -> None:
        left = memoryview(len(message).to_bytes(LENGTH_BYTES, "big") + message)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except TimeoutError:
                patience()
            except OSError as gone:
                raise self._ended() from gone

    def _answer(self, patience: Callable[[], None]) -> Outcome:
        length = int.from_bytes(self._received(LENGTH_BYTES, patience), "big")
        kind, text, topic, partition, size = _outcome(self._received(length, patience))
        return Outcome(Kind(kind), text, topic, partition, size)

    def _received(self, length: int, patience: Callable[[], None]) -> bytes:
        received = bytearray()
        while len(received) < length:
            try:
                part = self._socket.recv(length - len(received))
            except TimeoutError:
                patience()
                continue
            except OSError as gone:
                raise self._ended() from gone
            if not part:
                raise self._ended()
            received += part
        return bytes(received)

    def _ended(self) -> LowtideError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(SLICE_S)
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - WORDS_BYTES))
        words = last_words(self._said.read().decode(errors="replace"))
        status = self._process.returncode
        return LifeEnded(
            f"the process of Kafka's producer ended with status {status}: {words or 'without a word'}",
            where=f"process {self._process.pid} on this host",
            way_out="start the job again: nothing is lost or duplicated; without that process: "
            '[kafka] transactions = "v1"',
        )


def last_words(said: str) -> str:
    """Return the errors in what the process printed, in one line; empty for none."""
    lines = [line.strip() for line in said.splitlines() if not line.startswith(NOTES)]
    return "; ".join(filter(None, lines))[-WORDS_SHOWN:]


def _class_path() -> str:
    return ":".join(map(str, (shim_jar(), *producer_jars_here(Path.cwd()))))


def _portions(messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Yield records in parts that fit into a message."""
    for start in range(0, len(messages), MESSAGE_RECORDS):
        yield from _halved(messages[start : start + MESSAGE_RECORDS])


def _halved(messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    if len(messages) > 1 and sum([len(message[3] or b"") for message in messages]) > MESSAGE_BYTES:
        middle = len(messages) // 2
        yield from _halved(messages[:middle])
        yield from _halved(messages[middle:])
    else:
        yield messages
