"""The total order of records: as values for people, and as bytes that compare in the same order for all else.

    tick i64 | front i32 | sequence i64 | child path u32* | u32 0 | trace u64      big-endian, signs flipped

The elements of a child path are 1 and more, so the zero after it puts a path before its extensions: keys with paths of
any length compare without padding. The last 12 bytes, the zero and the trace, are a key's *tail*.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt

import xxhash

FIRST_TICK = -(1 << 63)
"""The lowest tick there can be."""
CLOCK = -1
"""The front of what time itself brings (`clock.py`): it stands before all records of its tick."""
SIGN_64 = 1 << 63
SIGN_32 = 1 << 31
TAIL_BYTES = 12
FIRST_TURN = 1
"""The path's next entry after the mark of a loop with a `key_by` in its body, of a record that enters it."""
_MASK_64 = (1 << 64) - 1
_TURN = 0x9E3779B97F4A7C15
_FIXED_BYTES = 20
_PLACE = struct.Struct(">QIQ")
_TAIL = struct.Struct(">IQ")
_FLAT = struct.Struct(">QIQ12s")
_BRANCHED = struct.Struct(">QIQ16s")


@dataclass(frozen=True, slots=True)
class Position:
    """A record's position in the log, or that of its source; with front `CLOCK`, the step's clock."""

    front: int
    sequence: int

    def __str__(self) -> str:
        if self.front == CLOCK:
            return f"the clock, {self.sequence}"
        return f"front {self.front}, offset {self.sequence}"


@dataclass(frozen=True, slots=True, order=True)
class OrderKey:
    """A record's place in the total order: lexicographic, a child path after its prefixes, the trace last.

    Attributes:
        tick: The label, int64.
        front: The source partition's number, int32.
        sequence: The Kafka offset, int64.
        child: The child path's elements, each 1 to 2^32 - 1.
        trace: uint64.
    """

    tick: int
    front: int
    sequence: int
    child: tuple[int, ...] = ()
    trace: int = 0

    def __str__(self) -> str:
        """Write it for people; of a record that no step has multiplied without a path."""
        path = f", path {'.'.join(map(str, self.child))}" if self.child else ""
        return f"tick {self.tick}, {Position(self.front, self.sequence)}{path}, trace {self.trace:016x}"

    def packed(self) -> bytes:
        """The key as bytes."""
        place = _PLACE.pack(self.tick + SIGN_64, self.front + SIGN_32, self.sequence + SIGN_64)
        return place + struct.pack(f">{len(self.child)}I", *self.child) + tail_of(self.trace)

    @classmethod
    def of(cls, at: bytes) -> OrderKey:
        """The inverse of `packed`."""
        tick, front, sequence = _PLACE.unpack_from(at)
        return cls(tick - SIGN_64, front - SIGN_32, sequence - SIGN_64, path_of(at), trace_of(at))


def step_id(job: str, vertex: str, port: int, place: int) -> int:
    """Return what a step folds into the trace of its records: a hash of the names, the same in every life (R4).

    Args:
        job: The flow's name.
        vertex: The step's name.
        port: Which of its inputs.
        place: The hash unit; at level 0 the front.
    """
    return xxhash.xxh3_64_intdigest(b"\0".join((job.encode(), vertex.encode(), b"%d" % port, b"%d" % place)))


def packer(branch: int) -> tuple[Callable[..., bytes], bytes]:
    """Return the packer of a source's keys: with one element in their path, with none for branch 0.

    Returns:
        What packs `(tick + SIGN_64, front + SIGN_32, offset + SIGN_64, rest)`; and what stands before the tail in the
        rest.
    """
    return (_BRANCHED.pack, branch.to_bytes(4, "big")) if branch else (_FLAT.pack, b"")


def tail_of(trace: int) -> bytes:
    """The tail of keys with this trace."""
    return _TAIL.pack(0, trace)


def trace_of(at: bytes) -> int:
    """The trace of a key, or of its tail."""
    return int.from_bytes(at[-8:], "big")


def tick_of(at: bytes) -> int:
    """The tick of a key, or of its first 8 bytes."""
    return int.from_bytes(at[:8], "big") - SIGN_64


def delivered_ms(tick: int, slack_ms: int) -> int:
    """The timestamp of what is delivered for a tick: when it began; 1 for the first, as librdkafka takes 0 for now."""
    return max(1, tick * slack_ms)


def position_of(at: bytes) -> Position:
    """Return the position in the log of a key's record."""
    _, front, sequence = _PLACE.unpack_from(at)
    return Position(front - SIGN_32, sequence - SIGN_64)


def path_of(at: bytes) -> tuple[int, ...]:
    """The child path of a key."""
    return struct.unpack(f">{(len(at) - _FIXED_BYTES - TAIL_BYTES) // 4}I", at[_FIXED_BYTES:-TAIL_BYTES])


def with_child(at: bytes, element: int) -> bytes:
    """The key with one more element at the end of its child path (R4)."""
    return at[:-TAIL_BYTES] + element.to_bytes(4, "big") + at[-TAIL_BYTES:]


def with_trace(at: bytes, id_: int) -> bytes:
    """The key with a step's id folded into its trace (R4)."""
    return at[:-8] + (int.from_bytes(at[-8:], "big") ^ id_).to_bytes(8, "big")


def turns_of(at: bytes, mark: int) -> int:
    """In which turn of a loop with a `key_by` in its body a record is: the entry after the mark in its path."""
    index = _after_mark(at, mark)
    return int.from_bytes(at[index : index + 4], "big")


def with_next_turn(at: bytes, mark: int) -> bytes:
    """The key of a record that goes round such a loop once more (R4): in place, so turn by turn, breadth first."""
    index = _after_mark(at, mark)
    turn = int.from_bytes(at[index : index + 4], "big") + 1
    return at[:index] + turn.to_bytes(4, "big") + at[index + 4 :]


def _after_mark(at: bytes, mark: int) -> int:
    """Return where in a key the element after a loop's mark begins; no other element has a mark's value."""
    wanted = mark.to_bytes(4, "big")
    for index in range(_FIXED_BYTES, len(at) - TAIL_BYTES, 4):
        if at[index : index + 4] == wanted:
            return index + 4
    raise AssertionError("a record that goes round a loop has entered it")


def with_turn(trace: int) -> int:
    """A trace of one more turn through a loop (R4): bijective, and other than what XOR makes of any ids.

    A record that passes the same hash unit in two turns would fold the same id in twice, so as if it had passed none;
    and two versions of it that went through different units would have the same order key, on different ways.
    """
    trace = (trace + _TURN) & _MASK_64
    trace = ((trace ^ (trace >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    trace = ((trace ^ (trace >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return trace ^ (trace >> 31)


def mark_key(tick: int) -> bytes:
    """Return the packed key after all records below a tick, and before all others: the `last` of a mark."""
    return OrderKey(tick, -SIGN_32, -SIGN_64).packed()


def tick_bytes(tick: int) -> bytes:
    """A string that comes before all keys of this tick and later ones, and after those of earlier ones."""
    return (tick + SIGN_64).to_bytes(8, "big")


def ascending(ats: list[bytes]) -> bool:
    """Return whether keys are in order, equal ones side by side."""
    return len(ats) < 2 or sorted(ats) == ats  # What is in order is sorted in one look, in C.


def strictly_ascending(ats: Sequence[bytes]) -> bool:
    """Return whether keys are in order and no two are equal."""
    n = len(ats)
    if n < 3:
        return n < 2 or ats[0] < ats[1]
    return all(map(lt, ats, islice(ats, 1, None)))


def ticks_in(ats: list[bytes]) -> list[int]:
    """The distinct ticks of keys, ascending; O(ticks log n) where the keys are in order, as they mostly are."""
    if len(ats) < 2:
        return [tick_of(at) for at in ats]
    if not ascending(ats):
        return sorted({tick_of(at) for at in ats})
    tick, last = tick_of(ats[0]), tick_of(ats[-1])
    ticks = [tick]
    index = 0
    while tick != last:
        index = bisect_left(ats, tick_bytes(tick + 1), index + 1)
        tick = tick_of(ats[index])
        ticks.append(tick)
    return ticks


def tick_cuts(ats: Sequence[bytes], ticks: Sequence[int]) -> list[int]:
    """Return the end of each tick in ordered keys."""
    cuts = []
    index = 0
    for tick in ticks[1:]:
        index = bisect_left(ats, tick_bytes(tick), index)
        cuts.append(index)
    cuts.append(len(ats))
    return cuts
