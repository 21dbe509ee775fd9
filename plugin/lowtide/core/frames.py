"""Frames from one worker to another, and the count that detects lost or swapped ones.

A frame is one msgpack array::

    [version, kind, vertex, sender, number, sent_ns, value, ticks, ats, units, flags, rows]

| element | is |
|---|---|
| version | 4 |
| kind | 0: records, 1: mark |
| vertex | the exchange's id in the plan, which determines the records' type; in a mark 0 |
| sender | the number of the worker that made it |
| number | counts the frames of one sender to one target from 0, over epochs |
| sent_ns | when it was made, ns since 1970 |
| value | the value that sender and receiver fold into the tracker at each of the ticks; in a mark the epoch's number |
| ticks | the distinct ticks, ascending |
| ats | per record its packed order key (`operators/order/order.py`) |
| units | per record its hash unit |
| flags | per record whether it is a tombstone; nil where none is |
| rows | per record a map of its fields (`fields.py`) |

The last frame that a sender gives a target in an epoch is a *mark* without records: it tells the target that nothing of
that epoch is missing. The first five elements come first so that the vertex is known before the records are read.
Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any

import msgspec

from lowtide.errors import LifeEnded

VERSION = 4
WAY_OUT = "start the job again; report it if it happens without a failure of the network or of Spark"


class FrameKind(IntEnum):
    """The content of a frame."""

    RECORDS = 0
    MARK = 1


class Head(msgspec.Struct, array_like=True, gc=False):
    """The elements before a frame's records; see the top of this file."""

    version: int
    kind: int
    vertex: int
    sender: int
    number: int
    sent_ns: int
    value: int
    ticks: list[int]
    ats: list[bytes]
    units: list[int]
    flags: list[bool] | None


class Encoded(Head, array_like=True, gc=False):
    """A frame whose records are encoded already."""

    rows: msgspec.Raw


encode: Callable[[Encoded], bytes] = msgspec.msgpack.Encoder().encode
_any: Callable[[bytes], Head] = msgspec.msgpack.Decoder(Head).decode
_NO_ROWS = msgspec.Raw(b"\x90")


@cache
def _decoder(record: Any) -> Callable[[bytes], Any]:
    """Make a decoder of frames with records of one dataclass, one call into C per frame."""
    frame = msgspec.defstruct("Frame", [("rows", list[record])], bases=(Head,), array_like=True, gc=False)
    decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(frame).decode
    return decode


def open_frame(data: bytes, record_of: dict[int, type]) -> Any:
    """Decode a frame to a `Head` with `rows`; a mark to one without.

    Args:
        data: Its bytes.
        record_of: By exchange the dataclass of its records.

    Raises:
        LifeEnded: these bytes are not a frame of this version.
    """
    try:
        if data[1] != VERSION or data[2] > FrameKind.MARK:
            raise _no_frame(data)
        # The array's head, version and kind are one byte each, and so is a vertex below 128.
        vertex = data[3] if data[3] < 128 else _any(data).vertex
        record = record_of[vertex] if data[2] == FrameKind.RECORDS else None
        return _any(data) if record is None else _decoder(record)(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError, KeyError) as error:
        raise _no_frame(data) from error


def mark_of_life(incarnation: int, job_id: str) -> bytes:
    """Return the header that marks a loop's frame as of a life.

    The number alone is not enough: jobs of one name, under two ZooKeepers, share the topic.
    """
    return f"{incarnation} {job_id}".rstrip().encode()


def is_of_life(said: bytes | None, incarnation: int, job_id: str = "") -> bool:
    """Return whether a frame of a loop's topic is of this life, by its header; those of others are there too (R7)."""
    return said == mark_of_life(incarnation, job_id)


def rows_in(data: bytes) -> int:
    """Estimate the number of a frame's records by its size alone, to divide work."""
    return max(1, len(data) >> 7)


class Outbox:
    """Numbers the frames of one sender, per target, and makes their bytes."""

    def __init__(self, sender: int, targets: int) -> None:
        self._sender = sender
        self._next = [0] * targets

    def numbered(self, target: int) -> int:
        """Return the number of frames sent to a target, marks included."""
        return self._next[target]

    @property
    def sender(self) -> int:
        """Return the number of the worker that sends."""
        return self._sender

    def records(self, target: int, frame: Any, sent_ns: int) -> bytes:
        """Make the bytes of the next frame for `target`."""
        number = self._next[target]
        self._next[target] = number + 1
        batch = frame.batch
        return encode(
            Encoded(
                VERSION,
                0,
                frame.vertex,
                self._sender,
                number,
                sent_ns,
                frame.value,
                frame.ticks,
                batch.ats,
                batch.units,
                batch.flags,
                msgspec.Raw(frame.payload),
            )
        )

    def marks(self, epoch: int, sent_ns: int) -> list[tuple[int, bytes]]:
        """Make the frames that end an epoch, one for every target."""
        marks = []
        for target, number in enumerate(self._next):
            mark = Encoded(VERSION, 1, 0, self._sender, number, sent_ns, epoch, [], [], [], None, _NO_ROWS)
            marks.append((target, encode(mark)))
            self._next[target] = number + 1
        return marks


class Inbox:
    """Checks the frames that reach one target: none missing, none twice, none swapped, each epoch complete (R10)."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._next: dict[int, int] = {}
        self._unmarked: set[int] = set()
        self._marks: dict[int, int] = {}

    def take(self, head: Head) -> None:
        """Count a frame.

        Raises:
            LifeEnded: it is not the next one of its sender.
        """
        sender = head.sender
        expected = self._next.get(sender, 0)
        if head.number != expected:
            happened = "was lost" if head.number > expected else "came twice or too late"
            raise LifeEnded(
                f"a frame {happened} on the way from worker number {sender} to worker {self._target}: "
                f"expected number {expected}, found {head.number}",
                way_out=WAY_OUT,
            )
        self._next[sender] = expected + 1
        if head.kind == FrameKind.MARK:
            self._unmarked.discard(sender)
            self._marks[sender] = head.value
        else:
            self._unmarked.add(sender)

    def taken(self, sender: int) -> int:
        """Return the number of a sender's frames that came, marks included."""
        return self._next.get(sender, 0)

    def end(self, epoch: int) -> None:
        """Check that every sender has announced the end of exactly this epoch.

        Raises:
            LifeEnded: the last frames of a sender are missing, or it announced the end of another epoch.
        """
        marks, self._marks = self._marks, {}
        if self._unmarked:
            senders = ", ".join(map(str, sorted(self._unmarked)))
            raise LifeEnded(
                f"epoch {epoch} ended at worker {self._target} before worker number {senders} announced its end: "
                "its last frames were lost",
                way_out=WAY_OUT,
            )
        for sender, marked in marks.items():
            if marked != epoch:
                raise LifeEnded(
                    f"epoch {epoch} ended at worker {self._target}, but worker number {sender} announced the end of "
                    f"epoch {marked}: frames of two epochs were mixed up",
                    way_out=WAY_OUT,
                )


def _no_frame(data: bytes) -> LifeEnded:
    return LifeEnded(
        f"{len(data)} bytes that begin with {data[:4]!r} are not a frame of version {VERSION}",
        way_out="give every executor the driver's version of Lowtide, then start the job again",
    )
