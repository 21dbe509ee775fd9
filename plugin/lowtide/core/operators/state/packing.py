"""The bytes of one key's state in a cold store, and the key's place there."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any
from zlib import crc32

import msgspec

from lowtide.core.operators.order.keys import plain
from lowtide.core.operators.order.order import tick_bytes, tick_of
from lowtide.core.operators.state.cold import LONGEST_KEY_BYTES, Entry
from lowtide.core.operators.state.group import Key
from lowtide.errors import LifeEnded
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.fields import encode_rows, is_made_by_code
from lowtide.flow.schema.schema import hints_of, kind_of
from lowtide.flow.steps.step import Saved, Step
from lowtide.flow.steps.steps import (
    Aggregated,
    Deduplicate,
    FlatScan,
    Join,
    JoinAsof,
    JoinTable,
    Last,
    Reduce,
    Scan,
    Substream,
    TimedScan,
    WindowBy,
)
from lowtide.flow.steps.windows import Session, Span
from lowtide_snapshots.keys.canonical import encode_key, encode_value
from lowtide_snapshots.keys.hashing import hash_unit

GROUP_KIND, WINDOW_KIND, SIDE_KIND = 1, 2, 3
"""What lies at a place: a key's state, that of one of its windows, or its records of the left side of a join; with the
next number those of the right side."""
DUES = 16
"""So much above the kind of what lies at a key's place is that of the entry that says when the key is due."""
HEAD = struct.Struct(">HHB")
"""Hash unit, vertex and kind before each key: a hash unit's keys of a step are one range."""
WHOLE_BYTES, DIGEST_BYTES = 384, 16
"""Of a longer key so much is at its place, and so much of the whole key's SHA-256; the value has all of it."""

SHELVED: frozenset[type[Step]] = frozenset(
    {Scan, FlatScan, TimedScan, Substream, Reduce, Aggregated, Last, Deduplicate, JoinTable, WindowBy, Join, JoinAsof}
)
"""The steps whose groups need not be in memory: they bring those into it that they need."""

TICK_BYTES = 8
DUE = struct.Struct(">qq")
"""What a key with a timer carries along: the tick at which it is due, and the moment that it asked for."""
PACKING = 1
"""The version of how places and values are made; to be raised where that changes."""

_CHECK = struct.Struct(">I")
_SPAN = struct.Struct(">QQ")
"""End and start of a window, each so much above the lowest there is: by these windows close."""
_NUMBER = struct.Struct(">Q")
_LOWEST = -(1 << 63)


class ColdDamaged(LifeEnded):
    """Start the job again, on another disk if it happens again: a cold store gave other bytes than it was given."""


class Packing:
    """The packing of one step's groups.

    A packed state is what a snapshot has of it, after a checksum: the store has none, and a wrong page must not become
    output.

    Args:
        owner: The step, for errors.
        number: The step's number in the store.
        units: The number of hash units.
        several: Whether a key is a tuple of several columns' values.
        key: The type of a key.
        state: The type of what is saved of it.
        kind: What lies at its places.
        carried: How many bytes lie before what is saved of a key, of something that leaves memory with it.
    """

    def __init__(
        self,
        owner: str,
        number: int,
        units: int,
        *,
        several: bool,
        key: Any,
        state: Any,
        kind: int = GROUP_KIND,
        carried: int = 0,
    ) -> None:
        self._owner = owner
        self._number = number
        self._units = units
        self._several = several
        self._kind = kind
        self._heads = [HEAD.pack(unit, number, self._kind) for unit in range(units)]
        self._key = key
        self._type: Any = tuple[key, state]
        self._begins = _CHECK.size + carried
        self._decode: Callable[[bytes | memoryview], tuple[Key, Any]] | None = None
        """Made when it is needed: it leaves a mark on the user's classes with which no plan can be pickled."""

    def place(self, unit: int, key: Key) -> bytes:
        """The key in the store of a step's key."""
        return self._heads[unit] + self._placed(key, LONGEST_KEY_BYTES - HEAD.size)

    @staticmethod
    def unit_at(place: bytes) -> int:
        """The hash unit of what lies at a place."""
        unit: int = HEAD.unpack_from(place)[0]
        return unit

    def unit_of(self, key: Key) -> int:
        """A key's hash unit."""
        return hash_unit(self._columns(key), self._units)

    def bounds(self, unit: int) -> tuple[bytes, bytes]:
        """The first place of a hash unit, and the first after it."""
        return HEAD.pack(unit, self._number, self._kind), HEAD.pack(unit, self._number, self._kind + 1)

    def pack(self, key: Key, state: Any, carried: bytes = b"") -> bytes:
        """The value of a key in the store, after what is carried along."""
        packed = carried + encode_rows([key, state])
        return _CHECK.pack(crc32(packed)) + packed

    def packed(self, unit: int, keys: Iterable[tuple[Key, Any]]) -> list[Entry]:
        """The entries of keys of one hash unit, as the store takes them."""
        place, pack = self.place, self.pack
        return sorted([(place(unit, key), pack(key, state)) for key, state in keys])

    def unpack(self, value: bytes | bytearray) -> tuple[Key, Any]:
        """The inverse of `pack`.

        Raises:
            ColdDamaged: the value is not what was packed.
        """
        packed = memoryview(value)[_CHECK.size :]
        if len(value) <= self._begins or crc32(packed) != _CHECK.unpack_from(value)[0]:
            raise self.damaged("a checksum does not match")
        decode = self._decode
        if decode is None:
            decode = self._decode = msgspec.msgpack.Decoder(self._type).decode
        return decode(memoryview(value)[self._begins :])

    def carried(self, value: bytes) -> bytes:
        """Return what was carried along with a value that `unpack` has taken."""
        return value[_CHECK.size : self._begins]

    def dues(self) -> DuePacking:
        """The packing of when its keys are due."""
        several, kind = self._several, self._kind + DUES
        return DuePacking(self._owner, self._number, self._units, several=several, key=self._key, state=None, kind=kind)

    @property
    def described(self) -> str:
        """A text that is the same as long as places and values are, but for the types, which a snapshot's shape has."""
        return f"{PACKING} {self._number} {self._units} {self._several} {self._kind}"

    def damaged(self, what: str) -> ColdDamaged:
        """The error for a store that is not as it was left."""
        return ColdDamaged(
            f"the state on disk is damaged: {what}",
            where=self._owner,
            way_out="the next life begins from the last commit and makes its state anew; if it happens again, check "
            "the disk and the memory of this machine",
        )

    def _placed(self, key: Key, room: int) -> bytes:
        packed = encode_key(self._columns(key)) if self._several else encode_value(plain(key))
        return packed if len(packed) <= room else packed[:WHOLE_BYTES] + sha256(packed).digest()[:DIGEST_BYTES]

    def _columns(self, key: Key) -> list[Any]:
        return [plain(each) for each in key] if self._several else [plain(key)]


class WindowPacking(Packing):
    """The packing of one step's windows, in the order in which they close: what is saved is their span and state."""

    def window(self, unit: int, span: Span, key: Key) -> bytes:
        """The key in the store of a window of a step's key."""
        return self._heads[unit] + self._span(span) + self._placed(key, LONGEST_KEY_BYTES - HEAD.size - _SPAN.size)

    def bounds_of(self, unit: int, span: Span) -> tuple[bytes, bytes]:
        """The first place of a hash unit's windows of a span, and the first after it."""
        start, end = span
        return self._heads[unit] + self._span(span), self._heads[unit] + self._span((start + 1, end))

    @staticmethod
    def _span(span: Span) -> bytes:
        return _SPAN.pack(span[1] - _LOWEST, span[0] - _LOWEST)


class RecordPacking(WindowPacking):
    """The packing of the records of one step's windows: what is saved is the span, the order key, and the record.

    They lie in the order in which their windows close, and those of a window in the order of their numbers.
    """

    def record(self, unit: int, span: Span, key: Key, number: int) -> bytes:
        """The key in the store of a record of a window of a step's key."""
        return self._before_number(unit, span, key) + _NUMBER.pack(number)

    def bounds_of_key(self, unit: int, span: Span, key: Key) -> tuple[bytes, bytes]:
        """The first place of a window's records, and the last there can be."""
        before = self._before_number(unit, span, key)
        return before, before + b"\xff" * _NUMBER.size

    def _before_number(self, unit: int, span: Span, key: Key) -> bytes:
        room = LONGEST_KEY_BYTES - HEAD.size - _SPAN.size - _NUMBER.size
        return self._heads[unit] + self._span(span) + self._placed(key, room)


class DuePacking(Packing):
    """The packing of when one step's keys are due, in this order within each hash unit; a value is but the key."""

    def due(self, unit: int, tick: int, key: Key) -> bytes:
        """The key in the store of a step's key that is due at a tick."""
        return self._heads[unit] + tick_bytes(tick) + self._placed(key, LONGEST_KEY_BYTES - HEAD.size - TICK_BYTES)

    def tick_at(self, place: bytes) -> int:
        """The tick of what lies at a place."""
        return tick_of(place[HEAD.size :])

    def bounds_between(self, unit: int, first: int, end: int) -> tuple[bytes, bytes]:
        """The first place of a hash unit's keys that are due from a tick on, and of those due at another one."""
        return self._heads[unit] + tick_bytes(first), self._heads[unit] + tick_bytes(end)


def packs(plan: Plan, vertex: Vertex) -> bool:
    """Return whether a step's groups need not be in memory; it leaves the plan as it is.

    Not so of steps other than `SHELVED`; of sessions that keep their records, and of other windows that do and give
    results with each; and where a dataclass of the state is made by code of the user's, which may leave more in it than
    its fields.
    """
    if type(vertex.step) not in SHELVED:
        return False
    step, saved = vertex.step, [_saved(plan, vertex, port) for port in range(vertex.step.sides)]
    if isinstance(step, WindowBy) and (step.by_unit or (saved[0].kind != "window" and not _appends(step))):
        return False
    if saved[0].kind == "deduplicate":
        return True
    return not any(is_made_by_code(kind_of(each.content, f"the state of {vertex.name}")) for each in saved)


def _appends(step: WindowBy) -> bool:
    """Return whether windows that keep their records need not look at these before they close."""
    return not isinstance(step.windows, Session) and step.emit == "close"


def packing_of(plan: Plan, vertex: Vertex, port: int = 0) -> Packing:
    """Return the packing of the groups of a step of which `packs` is true, of a join of one of its sides."""
    assert packs(plan, vertex), f"the groups of {vertex.name} are in memory"
    saved = _saved(plan, vertex, port)
    hints = hints_of(plan.keyed(vertex, saved.port).gives)
    keys = [hints[column] for column in plan.key_of(vertex, saved.port)]
    state: Any = saved.content
    kind = GROUP_KIND
    in_spans = isinstance(vertex.step, WindowBy) and not isinstance(vertex.step.windows, Session)
    if saved.kind == "last":
        state = list[tuple[bytes, saved.content]]  # type: ignore[name-defined]  # a type made here
    elif saved.kind == "deduplicate":
        state = int
    elif saved.kind == "window_records":
        state, kind = tuple[Span, bytes, saved.content], WINDOW_KIND  # type: ignore[name-defined]
    elif saved.kind == "window" and in_spans:
        state, kind = tuple[Span, saved.content], WINDOW_KIND  # type: ignore[name-defined]
    elif saved.kind == "window":
        state = list[tuple[Span, saved.content]]  # type: ignore[name-defined]
    elif saved.kind == "join":
        state, kind = list[tuple[bytes, saved.content, bool]], SIDE_KIND + port  # type: ignore[name-defined]
    elif saved.ttl is not None:
        state = tuple[saved.content, int]  # type: ignore[name-defined]
    carried = DUE.size if isinstance(vertex.step, TimedScan) else 0
    several = len(keys) > 1
    key = tuple[tuple(keys)] if several else keys[0]  # type: ignore[misc]
    made = RecordPacking if saved.kind == "window_records" else WindowPacking if in_spans else Packing
    owner = f'step "{vertex.name}"'
    return made(owner, vertex.id, plan.units, several=several, key=key, state=state, kind=kind, carried=carried)


def _saved(plan: Plan, vertex: Vertex, port: int) -> Saved:
    saved = vertex.step.saved([plan.vertices[parent].gives for parent in vertex.parents], port)
    assert saved is not None, f"{vertex.name} keeps no state"
    return saved
