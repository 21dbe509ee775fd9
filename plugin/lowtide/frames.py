"""Frames: what goes from one worker to another, and the count that notices a lost or swapped one.

A frame is a header of 48 bytes, its distinct ticks and an Arrow record batch (IPC message without its schema; the
vertex says which)::

    magic "LF" | u8 version | u8 kind | u16 vertex | u16 0 | u32 sender | u32 rows | u32 ticks | u32 0
    | u64 number | i64 sent_ns | u64 value | i64 tick[ticks]

All little-endian. `value` is what sender and receiver fold into the tracker at each of the ticks. `number` counts the
frames of one sender to one target from 0, over epochs. The last frame that a sender gives a target in an epoch is a
*mark* without rows: it tells the target that nothing of that epoch is missing.
Nothing here does I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from lowtide.errors import LifeEnded

MAGIC = b"LF"
VERSION = 3
_HEADER = struct.Struct("<2sBBHHIIIIQqQ")
HEADER_BYTES = _HEADER.size
WAY_OUT = "start the job again; report it if it happens without a failure of the network or of Spark"


class FrameKind(IntEnum):
    """What a frame brings."""

    RECORDS = 0
    MARK = 1


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before a frame's records.

    Attributes:
        kind: Records, or the mark at an epoch's end.
        vertex: The id of the exchange in the plan; 0 in a mark.
        sender: The number of the worker that made it.
        rows: How many records follow; in a mark the epoch's number.
        number: Its place among the frames of this sender to this target, from 0.
        sent_ns: When it was made, ns since 1970.
        value: What is folded into the tracker at each tick; 0 in a mark.
        ticks: How many distinct ticks follow.
    """

    kind: FrameKind
    vertex: int
    sender: int
    rows: int
    number: int
    sent_ns: int
    value: int = 0
    ticks: int = 0

    def pack(self) -> bytes:
        """Return the header's `HEADER_BYTES`."""
        first = (MAGIC, VERSION, self.kind, self.vertex, 0, self.sender, self.rows, self.ticks, 0)
        return _HEADER.pack(*first, self.number, self.sent_ns, self.value)

    @classmethod
    def unpack(cls, frame: bytes) -> Header:
        """Read the header of a frame.

        Raises:
            LifeEnded: these bytes are no frame of this version.
        """
        if len(frame) < HEADER_BYTES or frame[:2] != MAGIC or frame[2] != VERSION:
            raise LifeEnded(
                f"{len(frame)} bytes that begin with {frame[:4]!r} are no frame of version {VERSION}",
                way_out="give every executor the driver's version of Lowtide, then start the job again",
            )
        _, _, kind, vertex, _, sender, rows, ticks, _, number, sent_ns, value = _HEADER.unpack_from(frame)
        return cls(FrameKind(kind), vertex, sender, rows, number, sent_ns, value, ticks)

    def ticks_of(self, frame: bytes) -> list[int]:
        """Return the distinct ticks that stand behind this header in its frame, ascending."""
        return list(struct.unpack_from(f"<{self.ticks}q", frame, HEADER_BYTES))

    @property
    def records_at(self) -> int:
        """Where in the frame its Arrow message begins."""
        return HEADER_BYTES + 8 * self.ticks


def rows_of(frame: bytes) -> int:
    """Return how many records a frame brings, by its header alone; 0 for a mark, and for bytes that are no frame."""
    if len(frame) < HEADER_BYTES or frame[3] != FrameKind.RECORDS:
        return 0
    return int.from_bytes(frame[12:16], "little")


class Outbox:
    """Numbers the frames of one sender, per target."""

    def __init__(self, sender: int, targets: int) -> None:
        self._sender = sender
        self._next = [0] * targets

    def records(self, target: int, vertex: int, rows: int, *, sent_ns: int, value: int, ticks: Sequence[int]) -> bytes:
        """Return what stands before the records of the next frame for `target`: its header and its ticks."""
        number = self._number(target)
        header = Header(FrameKind.RECORDS, vertex, self._sender, rows, number, sent_ns, value, len(ticks))
        return header.pack() + struct.pack(f"<{len(ticks)}q", *ticks)

    def marks(self, epoch: int, sent_ns: int) -> list[tuple[int, bytes]]:
        """Return the frames that end an epoch, one for every target."""
        return [
            (target, Header(FrameKind.MARK, 0, self._sender, epoch, self._number(target), sent_ns).pack())
            for target in range(len(self._next))
        ]

    def numbered(self, target: int) -> int:
        """How many frames a target has been sent, marks too."""
        return self._next[target]

    def _number(self, target: int) -> int:
        number = self._next[target]
        self._next[target] = number + 1
        return number


class Inbox:
    """Checks the frames that reach one target: none missing, none twice, none swapped, each epoch complete (R10)."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._next: dict[int, int] = {}
        self._unmarked: set[int] = set()
        self._marks: dict[int, int] = {}

    def take(self, header: Header) -> None:
        """Count a frame.

        Raises:
            LifeEnded: it is not the next one of its sender.
        """
        expected = self._next.get(header.sender, 0)
        if header.number != expected:
            happened = "was lost" if header.number > expected else "came again or too late"
            raise LifeEnded(
                f"a frame {happened} on the way from worker number {header.sender} to worker {self._target}: "
                f"number {header.number} came where {expected} was due",
                way_out=WAY_OUT,
            )
        self._next[header.sender] = expected + 1
        if header.kind is FrameKind.MARK:
            self._unmarked.discard(header.sender)
            self._marks[header.sender] = header.rows
        else:
            self._unmarked.add(header.sender)

    def taken(self, sender: int) -> int:
        """How many frames of a sender have come, marks too."""
        return self._next.get(sender, 0)

    def end(self, epoch: int) -> None:
        """Check that every sender has told its end of this very epoch.

        Raises:
            LifeEnded: the last frames of one are missing, or the end it told is another epoch's.
        """
        marks, self._marks = self._marks, {}
        if self._unmarked:
            senders = ", ".join(map(str, sorted(self._unmarked)))
            raise LifeEnded(
                f"epoch {epoch} ended at worker {self._target} before worker number {senders} told its end: "
                "its last frames were lost",
                way_out=WAY_OUT,
            )
        for sender, marked in marks.items():
            if marked != epoch:
                raise LifeEnded(
                    f"epoch {epoch} ended at worker {self._target}, but worker number {sender} told the end of "
                    f"epoch {marked}: frames of two epochs were mixed on the way",
                    way_out=WAY_OUT,
                )
