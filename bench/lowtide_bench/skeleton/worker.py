"""Worker of the skeleton, a process of its own that blocks: `python -m lowtide_bench.skeleton.worker`.

A worker of level 0 sends each record to the worker of its key; one of level 1 counts the records of each key, and gives
them to Kafka. Tasks connect to it one after another, one per epoch.
"""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from lowtide_bench.child import Parent
from lowtide_bench.skeleton.frames import decode, encode
from lowtide_bench.skeleton.sink import Outgoing, Sink

LOOPBACK = "127.0.0.1"
BUFFER_BYTES = 1 << 16
KEY_BYTES = 8
COUNT_AT = 24
"""A value of `running-count` begins with its key and ends with its count, 8 bytes each; see `lowtide_bench.counted`."""

_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">ii")


def frames(connection: socket.socket) -> Iterator[bytes]:
    """Yield the frames of a task until it has no more.

    Raises:
        EOFError: the task ended in the middle of one.
    """
    with connection.makefile("rb", BUFFER_BYTES) as stream:
        while head := stream.read(_LENGTH.size):
            length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else -1
            frame = stream.read(max(length, 0))
            if len(frame) != length:
                raise EOFError("the task closed the connection in the middle of a frame")
            yield frame


class Sender:
    """Worker of level 0: sends each record to the worker of its key, one of a given number."""

    def __init__(self, targets: int) -> None:
        self._targets = targets

    def take(self, frame: bytes) -> bytes:
        """Return the task's output: a frame with a head for each target that gets something."""
        stamps: list[list[int]] = [[] for _ in range(self._targets)]
        values: list[list[bytes]] = [[] for _ in range(self._targets)]
        for stamp, value in zip(*decode(frame), strict=True):
            target = crc32(value[:KEY_BYTES]) % self._targets
            stamps[target].append(stamp)
            values[target].append(value)
        parts = []
        for target, some in enumerate(values):
            if some:
                body = encode(stamps[target], some)
                parts += [_HEAD.pack(target, len(body)), body]
        return b"".join(parts)


class Counter:
    """Worker of level 1: counts each key's records (if they have keys) and writes them to Kafka."""

    def __init__(self, sink: Sink, *, counts: bool) -> None:
        self._sink = sink
        self._made = self.counted if counts else self.passed
        self._counts: dict[bytes, int] = {}

    def take(self, frame: bytes) -> bytes:
        """Put a frame's records into the sink; the task gets nothing back."""
        self._sink.put(self._made(*decode(frame)))
        return b""

    def counted(self, stamps: list[int], values: list[bytes]) -> list[Outgoing]:
        """Return records with their key's count in the last bytes of the value."""
        counts = self._counts
        made: list[Outgoing] = []
        for stamp, value in zip(stamps, values, strict=True):
            key = value[:KEY_BYTES]
            counts[key] = count = counts.get(key, 0) + 1
            made.append((stamp, key, value[:COUNT_AT] + count.to_bytes(8, "little")))
        return made

    def passed(self, stamps: list[int], values: list[bytes]) -> list[Outgoing]:
        """Return records as they came."""
        return [(stamp, None, value) for stamp, value in zip(stamps, values, strict=True)]


def serve(listener: socket.socket, worker: Sender | Counter) -> None:
    """Take the frames of one task after the other."""
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for frame in frames(connection):
                    if answer := worker.take(frame):
                        connection.sendall(answer)
            except (EOFError, ConnectionError):
                # The task was stopped; if it was not, Spark ends the query and gives the reason.
                continue


def of_task(task: dict[str, Any]) -> Sender | Counter:
    """Return the worker that a task describes: of level 0 by its `targets`, of level 1 by its sink."""
    if "targets" in task:
        return Sender(task["targets"])
    return Counter(Sink(task["kafka"], task["topic"], task["partition"]), counts=task["counts"])


def main() -> None:
    """Report the port, then serve until the parent ends the process."""
    parent = Parent()
    worker = of_task(parent.task)
    # Nothing here makes cycles, and a search for them among millions of counts would show in the figures.
    gc.disable()
    with socket.create_server((LOOPBACK, 0)) as listener:
        parent.say(port=listener.getsockname()[1])
        serve(listener, worker)


if __name__ == "__main__":
    main()
