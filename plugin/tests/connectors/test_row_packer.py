"""The jar's `RowPacker` in a JVM of its own; the test is its worker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from hanging import HANGS_S

from lowtide.core.rows import PackedRows, open_rows
from lowtide.flow.schema.headers import unpack_headers
from lowtide.jars.java import find_java
from lowtide.jars.shim import shim_jar
from lowtide.jars.third_party import pyspark_folder
from lowtide.process import wire
from lowtide.process.wire import Kind
from lowtide_tracker.handshake import NONCE_BYTES, REPLY_BYTES, ServerHandshake

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parents[1] / "support" / "jvm" / "RowsFromStdin.java"
QUIET_S = 0.5
"""So long nothing comes: the JVM has read what it was given."""


@dataclass(frozen=True)
class Record:
    """A record of Kafka, as the test gives it to the JVM."""

    offset: int
    timestamp: int = 0
    key: bytes | None = None
    value: bytes | None = b""
    headers: Sequence[tuple[str, str | bytes | None]] = ()

    def line(self) -> str:
        """As `RowsFromStdin` reads it."""
        headers = [(name, _hex(value)) for name, value in self.headers]
        return json.dumps([self.offset, self.timestamp, _hex(self.key), _hex(self.value), headers]) + "\n"


def _hex(data: str | bytes | None) -> str | None:
    data = data.encode() if isinstance(data, str) else data
    return None if data is None else data.hex()


class Jvm:
    """The worker's end of its task: the connection, and here also its rows."""

    def __init__(self, rows: IO[str], connection: socket.socket, giver: Executor) -> None:
        self._rows = rows
        self._giver = giver
        self.connection = connection

    def give(self, *records: Record) -> None:
        """Let Spark's iterator have these, as fast as it takes them."""
        self._giver.submit(self._write, "".join(record.line() for record in records))

    def end(self) -> None:
        """Let Spark's iterator end after what it was given."""
        self._giver.submit(self._rows.close)

    def _write(self, lines: str) -> None:
        self._rows.write(lines)
        self._rows.flush()

    def hear(self) -> tuple[int, bytes]:
        """Wait for the next message."""
        return wire.receive(self.connection)

    def rows(self) -> PackedRows:
        """Wait for the next message of rows."""
        kind, message = self.hear()
        assert kind == Kind.ROWS
        return open_rows(message)

    def taken(self) -> None:
        """Answer one message."""
        wire.send(self.connection, Kind.TAKEN, b"")

    def says_nothing(self) -> bool:
        """True if nothing comes for `QUIET_S`."""
        self.connection.settimeout(QUIET_S)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.connection.settimeout(HANGS_S)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("classes")
    path = os.pathsep.join([str(shim_jar()), f"{pyspark_folder() / 'jars'}/*"])
    compiler = find_java().executable.resolve().with_name("javac")
    subprocess.run([compiler, "-cp", path, "-d", folder, SOURCE], check=True, timeout=HANGS_S * 2)
    return os.pathsep.join([str(folder), path])


@contextmanager
def jvm(classes: str, *, max_rows: int = 100, max_bytes: int = 1 << 17, epoch_s: float = 600.0) -> Iterator[Jvm]:
    """Run a `RowPacker` until the block's end; then its epoch ends."""
    secret = os.urandom(32)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(HANGS_S)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        figures = [str(max_rows), str(max_bytes), str(int(epoch_s * 1000))]
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classes]
        command = [str(find_java().executable), *options, "io.lowtide.RowsFromStdin", address, secret.hex(), *figures]
        with (
            ThreadPoolExecutor(1) as giver,
            subprocess.Popen(command, stdin=subprocess.PIPE, stderr=sys.stderr, text=True) as process,
        ):
            assert process.stdin is not None
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(HANGS_S)
                    shake = ServerHandshake(secret, os.urandom(NONCE_BYTES))
                    connection.sendall(shake.hello())
                    connection.sendall(shake.answer(wire.receive_exactly(connection, REPLY_BYTES)))
                    yield Jvm(process.stdin, connection, giver)
                    wire.send(connection, Kind.ENDED, b"")
                    assert process.wait(HANGS_S) == 0
            finally:
                process.kill()


def test_records_come_as_they_were_given(classes: str) -> None:
    given = [
        Record(7, 1_700_000_000_123, b"k", b"v"),
        Record(8, -1, None, b""),
        Record(9, 0, b"", None),
        Record(1 << 40, -(1 << 62), b"K" * 255, b"V" * 256, [("a", b"xy"), ("é", None)]),
        Record((1 << 40) + 1, 5, b"k" * 65_535, b"v" * 65_536, [("", b"")]),
        Record((1 << 40) + 2, 5, b"k", b"v" * 300_000),
        *(Record((1 << 41) + number, number, b"%d" % number, b"value") for number in range(5000)),
    ]
    before = time.time_ns()
    got: list[Record] = []
    with jvm(classes) as task:
        task.give(*given)
        while len(got) < len(given):
            rows = task.rows()
            task.taken()
            assert (rows.topic, rows.partition) == ("in", 4)
            assert before < rows.born_ns <= rows.packed_ns < time.time_ns()
            assert rows.headers is None or any(rows.headers)
            headers = [unpack_headers(packed) for packed in rows.headers or [b""] * len(rows.keys)]
            columns = zip(rows.offsets, rows.timestamps, rows.keys, rows.values, headers, strict=True)
            got += (Record(*column) for column in columns)
    assert [record.line() for record in got] == [record.line() for record in given]


def test_columns_of_kafka_records(classes: str) -> None:
    with jvm(classes, max_rows=2) as task:
        task.give(Record(6), Record(7, 100, b"k", None), Record(8, 101, None, b"vv", [("a", b"x")]))
        task.rows()
        opened = open_rows(task.hear()[1])
        assert (opened.topic, opened.partition) == ("in", 4)
        assert opened.offsets == [7, 8]
        assert opened.timestamps == [100, 101]
        assert opened.keys == [b"k", None]
        assert opened.values == [None, b"vv"]
        assert opened.headers is not None
        assert [unpack_headers(packed) for packed in opened.headers or []] == [[], [("a", b"x")]]


def test_rows_gather_while_the_worker_is_busy(classes: str) -> None:
    with jvm(classes, max_rows=4) as task:
        task.give(Record(0))
        assert task.rows().offsets == [0]
        task.give(*map(Record, range(1, 7)))
        assert task.rows().offsets == [1, 2, 3, 4], "what is full does not wait"
        assert task.says_nothing()
        task.taken()
        assert task.says_nothing(), "the worker owes an answer yet"
        task.taken()
        assert task.rows().offsets == [5, 6]
        task.taken()
        task.give(Record(7))
        assert task.rows().offsets == [7], "a row that comes alone does not wait"


def test_messages_are_bounded_in_bytes(classes: str) -> None:
    with jvm(classes, max_bytes=20_000) as task:
        task.give(*(Record(offset, value=b"v" * 6000) for offset in range(6)), Record(6, value=b"v" * 50_000))
        task.end()
        assert [len(task.rows().offsets) for _ in range(2)] == [1, 3]
        task.taken()
        assert [task.rows().offsets for _ in range(2)] == [[4, 5], [6]]
        assert task.hear()[0] == Kind.END


def test_an_epoch_ends_with_all_its_rows_though_the_worker_does_not_answer(classes: str) -> None:
    with jvm(classes) as task:
        task.give(*map(Record, range(3)))
        task.end()
        offsets = task.rows().offsets
        while len(offsets) < 3:
            offsets += task.rows().offsets
        assert offsets == [0, 1, 2]
        assert task.hear()[0] == Kind.END


def test_a_worker_that_does_not_answer_stops_the_rows(classes: str) -> None:
    with jvm(classes, max_rows=1) as task:
        task.give(*map(Record, range(8)))
        assert [task.rows().offsets for _ in range(4)] == [[0], [1], [2], [3]]
        assert task.says_nothing()
        task.taken()
        assert task.rows().offsets == [4]
        assert task.says_nothing()


def test_a_worker_that_does_not_answer_stops_the_rows_only_until_the_epoch_is_over(classes: str) -> None:
    with jvm(classes, max_rows=1, epoch_s=2.0) as task:
        task.give(*map(Record, range(8)))
        assert [task.rows().offsets for _ in range(8)] == [[offset] for offset in range(8)]


def test_answers_are_read_while_a_message_is_being_written(classes: str) -> None:
    """Else task and worker would wait for each other: the worker does not read while its own output waits."""
    with jvm(classes, max_bytes=1 << 24) as task:
        task.give(Record(0))
        task.rows()
        task.give(Record(1, value=bytes(9 << 20)), Record(2))
        task.connection.recv(1, socket.MSG_PEEK)
        task.taken()
        for _ in range(40):
            wire.send(task.connection, Kind.OUT, bytes(1 << 20))
        assert task.rows().offsets == [1]
        task.taken()
        assert task.rows().offsets == [2]
