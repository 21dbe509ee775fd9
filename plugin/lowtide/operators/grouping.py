"""Grouping: per key a list ordered by order key; a record that comes late is inserted at its place and the rest mended.

What a late record changes is taken back by tombstones (same payload, same order key) and given anew (papers:
*Ordering model*; rules R4, R14). The same code serves both modes: in ordered mode `Ordered` lets records in only when
nothing before them can come any more, so that there is nothing to mend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide.errors import TimeWentBack
from lowtide.operators.batch import Batch
from lowtide.operators.fault import Fault
from lowtide.operators.group import Group, Key, Recent, Touched
from lowtide.operators.meta import Meta
from lowtide.operators.order import FIRST_TICK, OrderKey, in_order, pack, tick_bytes, unpack
from lowtide.operators.pending import unmatched
from lowtide.plan import Vertex
from lowtide.schema import Schema

NOTHING = object()
"""Of a key that has nothing to be saved: no value, as None may be a state."""


@dataclass(frozen=True, slots=True)
class Change:
    """One record that is not simply the newest of its key: an item to be inserted, or a tombstone to remove one."""

    at: bytes
    row: Any
    tombstone: bool


@dataclass(frozen=True, slots=True)
class Arrivals:
    """n records in order, as Python's values: what a grouping's loop over them needs.

    Attributes:
        keys: The keys.
        ats: The packed order keys, ascending.
        rows: The records.
        units: The hash units.
        tombstones: bool[n].
    """

    keys: list[Key]
    ats: list[bytes]
    rows: list[Any]
    units: list[int]
    tombstones: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of arrivals.

    Attributes:
        touched: The groups.
        left: The indices of the records that gave nothing, or nothing yet; ascending, mostly none.
        outs: What the others gave.
        changes: By key, what has to be mended; from the start there for keys of which something is taken back.
    """

    touched: list[Group]
    left: list[int]
    outs: list[Any]
    changes: dict[Key, list[Change]]


class Result:
    """What an insertion gives, collected column by column: tombstones first, so that none overtakes its item."""

    __slots__ = ("ats", "outs", "tombstones", "units")

    def __init__(self) -> None:
        self.ats: list[bytes] = []
        self.units: list[int] = []
        self.outs: list[Any] = []
        self.tombstones: list[bool] = []

    def add(self, at: bytes, unit: int, out: Any, tombstone: bool) -> None:
        """One output with its order key."""
        self.ats.append(at)
        self.units.append(unit)
        self.outs.append(out)
        self.tombstones.append(tombstone)


class Grouping(ABC):
    """One stateful step of one worker, of its hash units' keys.

    Args:
        vertex: The step.
        columns: The key's columns.
        schema: Of the records that come out; None for windows.

    Attributes:
        repairs: How many outputs have been taken back so far.
    """

    def __init__(self, vertex: Vertex, columns: Sequence[str], schema: Schema | None) -> None:
        self._vertex = vertex
        self._place = f'step "{vertex.name}"'
        self._key = attrgetter(*columns)
        self._depth = vertex.depth
        self._schema = schema
        self._groups: dict[Key, Group] = {}
        self._recent = Recent()
        self._touched = Touched()
        self._pruned = FIRST_TICK
        self.repairs = 0

    def insert(self, batch: Batch) -> list[Batch]:
        """Take records and tombstones, in the order they came; return what becomes of them.

        Costs O(n log n) in numpy to sort them, then one step of Python per record that is the newest of its key, and
        for one that is not as many as there are elements behind it.

        Returns:
            Outputs of the step, if any; then `Fault`s, if any. In each, tombstones stand first.

        Raises:
            TimeWentBack: a record is below the prune time.
            UnmatchedTombstone: a tombstone without its item, or a second item with the same order key.
        """
        meta, rows = batch.meta, batch.rows()
        packed = pack(meta, self._depth)
        order = in_order(packed)
        if order is not None:
            # Not `batch.take`: that would put the columns in order too, which nobody looks at from here on.
            meta, packed, rows = meta.take(order), packed[order], [rows[index] for index in order.tolist()]
        ats = packed.tolist()
        first, last = int(meta.tick[0]), int(meta.tick[-1])
        if first < self._pruned:
            raise TimeWentBack(self._place, first, self._pruned)
        assert meta.unit is not None, "a grouping stands behind an exchange"
        self._touched.add(meta.unit, last)
        keys = list(map(self._key, rows))
        changes: dict[Key, list[Change]] = {}
        if meta.tombstone.any():
            changes = {keys[index]: [] for index in np.flatnonzero(meta.tombstone).tolist()}
        arrivals = Arrivals(keys, ats, rows, meta.unit.tolist(), meta.tombstone)
        appended = Appended([], [], [], changes)
        self._append(arrivals, appended)
        self._recent.add(last, appended.touched)
        mended = Result()
        for key, listed in changes.items():
            group = self._groups[key]
            self._mend(group, listed, mended)
            if not group.elements and self._state(group, 0) is NOTHING:
                del self._groups[key]  # The key never was: all its records have been taken back.
        return self._collect(meta, appended, mended)

    @abstractmethod
    def _append(self, arrivals: Arrivals, appended: Appended) -> None:
        """Take the records that are the newest of their keys; leave the others, and all behind them, to be mended."""

    @abstractmethod
    def _mend(self, group: Group, changes: list[Change], result: Result) -> None:
        """Insert and remove elements, and say what that changes."""

    @abstractmethod
    def _fold(self, group: Group, count: int) -> None:
        """Forget the first `count` elements, which nothing can come before or between any more."""

    @abstractmethod
    def _state(self, group: Group, count: int) -> Any:
        """What has to be saved of the first `count` elements and those forgotten; `NOTHING` if there is nothing."""

    @abstractmethod
    def _restored(self, unit: int, state: Any) -> Group:
        """The inverse of `_state`."""

    def prune(self, tick: int) -> None:
        """Forget what only records below `tick` could need; O(groups touched since), each visited once per record.

        Args:
            tick: The global min time, or the T of a snapshot while it is being written (R14).
        """
        self._pruned = max(self._pruned, tick)
        self._recent.settle(tick, self._fold)

    def changed(self, since: int) -> list[int]:
        """The hash units that may have changed at a tick or later."""
        return self._touched.since(since)

    def capture(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, Any]]]:
        """The state below a tick, by hash unit: each key with what is to be saved of it; O(keys).

        Args:
            tick: At or above every tick that has been pruned at.
            since: Hash units are left out that have not changed at this tick or later.

        Returns:
            All units that have changed, those without state too.
        """
        assert tick >= self._pruned, "the state below a pruned tick is gone"
        end = tick_bytes(tick)
        parts: dict[int, list[tuple[Key, Any]]] = {unit: [] for unit in self.changed(since)}
        for key, group in self._groups.items():
            if group.unit in parts:
                state = self._state(group, bisect_left(group.elements, (end,)))
                if state is not NOTHING:
                    parts[group.unit].append((key, state))
        return parts

    def look(self, key: Key, tick: int) -> Any:
        """The state of one key below a tick, at or above which nothing was pruned; `NOTHING` if it has none."""
        group = self._groups.get(key)
        return NOTHING if group is None else self._state(group, bisect_left(group.elements, (tick_bytes(tick),)))

    def restore(self, parts: Mapping[int, Iterable[tuple[Key, Any]]], tick: int) -> None:
        """Take over what `capture(tick)` gave for these hash units: as of `tick`, they have changed before it."""
        self._pruned = max(self._pruned, tick)
        for unit, keys in parts.items():
            self._touched.add(np.array([unit]), tick - 1)
            for key, state in keys:
                self._groups[key] = self._restored(unit, state)

    def _collect(self, meta: Meta, appended: Appended, mended: Result) -> list[Batch]:
        metas, rows = [], []
        if mended.outs:
            flags = np.array(mended.tombstones, np.bool_)
            order = np.argsort(~flags, kind="stable")
            units = np.array(mended.units, np.int32)[order]
            found = unpack([mended.ats[index] for index in order.tolist()], self._depth)
            metas.append(found.with_unit(units).with_tombstone(flags[order]))
            rows.append([mended.outs[index] for index in order.tolist()])
            self.repairs += int(flags.sum())
        if appended.outs:
            kept = np.delete(np.arange(len(meta)), appended.left) if appended.left else None
            metas.append(meta if kept is None else meta.take(kept))
            rows.append(appended.outs)
        if not metas:
            return []
        return _parted(self._schema, Meta.concat(metas), rows[0] if len(rows) == 1 else [*rows[0], *rows[1]])


def apply_changes(
    place: str, depth: int, old: Iterable[tuple[bytes, Any]], changes: Iterable[Change]
) -> list[tuple[bytes, Any]]:
    """Insert and remove elements of an ordered list of (packed order key, row).

    Raises:
        UnmatchedTombstone: a tombstone without its item, or a second item with the same order key.
    """
    rows = dict(old)
    for change in changes:
        if change.tombstone != (change.at in rows):
            raise unmatched(place, OrderKey.at(unpack([change.at], depth), 0), change.tombstone)
        if change.tombstone:
            del rows[change.at]
        else:
            rows[change.at] = change.row
    return sorted(rows.items(), key=_first)


_first: Callable[[tuple[bytes, Any]], bytes] = lambda element: element[0]  # noqa: E731


def _parted(schema: Schema | None, meta: Meta, rows: list[Any]) -> list[Batch]:
    """Outputs and faults apart."""
    failed = [index for index, row in enumerate(rows) if type(row) is Fault] if Fault in set(map(type, rows)) else []
    if not failed:
        return [Batch(schema, meta, rows=rows)]
    both = Batch(schema, meta, rows=rows)
    good = np.delete(np.arange(len(rows)), failed)
    faults = Batch(None, meta.take(np.array(failed, np.int64)), rows=[rows[index] for index in failed])
    return [both.take(good), faults] if len(good) else [faults]
