"""Messages between nodes: frames as a job's workers make them, and markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

from msgspec import Raw
from msgspec.msgpack import Encoder

from lowtide.core.frames import VERSION, Encoded, FrameKind, encode, open_frame
from lowtide_tracker.message_reader import HEAD

FRAME, MARKER = 0, 1
_MARKER = Struct(">HHq")
_AT = Struct(">qHI")
_rows = Encoder().encode


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the flow; its tick is in its order key."""

    key: int
    value: bytes


@dataclass(slots=True)
class Batch:
    """Records on their way to one node: what becomes a frame."""

    ats: list[bytes]
    units: list[int]
    records: list[Record]
    ticks: set[int]

    @classmethod
    def empty(cls) -> Batch:
        """Return one without records."""
        return cls([], [], [], set())

    def add(self, at: bytes, tick: int, record: Record) -> None:
        """Append a record."""
        self.ats.append(at)
        self.units.append(record.key & 127)
        self.records.append(record)
        self.ticks.add(tick)


def order_key(tick: int, front: int, sequence: int) -> bytes:
    """Return the order key of a record."""
    return _AT.pack(tick, front, sequence)


def tick_of(at: bytes) -> int:
    """Return the tick of an order key."""
    tick: int = _AT.unpack(at)[0]
    return tick


def frame(level: int, sender: int, number: int, batch: Batch, value: int, ticks: Sequence[int]) -> bytes:
    """Return a frame's message; the tracker's value and ticks are 0 and empty where it tracks nothing."""
    data = encode(
        Encoded(
            VERSION, FrameKind.RECORDS, level, sender, number, 0, value, list(ticks), batch.ats, batch.units, None,
            Raw(_rows(batch.records)),
        )
    )  # fmt: skip
    return HEAD.pack(1 + len(data), FRAME) + data


def opened(payload: bytes, depth: int) -> Any:
    """Return the head of a frame of a flow with this many levels, with its records as `rows`."""
    return open_frame(payload, dict.fromkeys(range(1, depth + 1), Record))


def marker(level: int, sender: int, tick: int) -> bytes:
    """Return a marker's message: the sender sends this level nothing below the tick any more."""
    return HEAD.pack(1 + _MARKER.size, MARKER) + _MARKER.pack(level, sender, tick)


def opened_marker(payload: bytes) -> tuple[int, int, int]:
    """Return (level, sender, tick) of a marker."""
    level, sender, tick = _MARKER.unpack(payload)
    return level, sender, tick
