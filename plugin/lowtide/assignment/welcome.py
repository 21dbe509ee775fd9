"""The service's answer to a new worker: its front, its tracker, and the deployment."""

from __future__ import annotations

import struct

import msgspec

from lowtide_tracker import Floor

_LENGTH = struct.Struct("<I")


class FrontStart(msgspec.Struct, frozen=True, kw_only=True):
    """One front, as its worker begins with it.

    Attributes:
        number: Its number in the register.
        topic: The topic it reads.
        partition: The partition.
        offset: The first offset that it may be given.
        before: The label before that offset, as the snapshot has it that the life begins from; None if there is none.
        opening: The tick below which it labels nothing: its opening floor, and what was promised for it since.
        floors: The promises, as `(offset, tick)`.
        stop: The first offset that it does not read; None if it reads on for ever.
        preloaded: Where its preloaded records end; 0 if it has none.
    """

    number: int
    topic: str
    partition: int
    offset: int
    opening: int
    before: int | None = None
    floors: list[tuple[int, int]] = []
    stop: int | None = None
    preloaded: int = 0

    @property
    def name(self) -> str:
        """`topic-partition`."""
        return f"{self.topic}-{self.partition}"

    def promised(self) -> tuple[Floor, ...]:
        """The promises as floors."""
        return tuple(Floor(self.number, offset, tick) for offset, tick in self.floors)


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The service's answer to a worker that greets it.

    Attributes:
        tracker: The tracker's address.
        now_ms: The broker's time when this was sent.
        fronts: The source partitions' names by number.
        front: At level 0, the worker's own front.
        shards: The addresses of the tracker's shards, by number; empty where it is one process.
    """

    tracker: str
    now_ms: int
    fronts: dict[int, str]
    front: FrontStart | None = None
    shards: tuple[str, ...] = ()


def pack(welcome: Welcome, deployment: bytes) -> bytes:
    """Put both into one message: `u32 length | JSON | deployment`."""
    text = msgspec.json.encode(welcome)
    return _LENGTH.pack(len(text)) + text + deployment


def unpack(message: bytes) -> tuple[Welcome, bytes]:
    """Return what `pack` was given."""
    (length,) = _LENGTH.unpack_from(message)
    start = _LENGTH.size
    return msgspec.json.decode(message[start : start + length], type=Welcome), message[start + length :]
