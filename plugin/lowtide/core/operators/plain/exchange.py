"""Exchanges: which hash unit a record goes to, what that adds to its order key, and the bytes it travels as."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.node import Feed, Node, Parcel
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.keys import plain
from lowtide.core.operators.order.order import SIGN_32, TAIL_BYTES, step_id, tail_of, trace_of, with_child, with_turn
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.fields import encode_rows, key_of
from lowtide_snapshots.keys.hashing import hash_unit

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
MAX_KEYS = 1 << 16
"""Keys whose hash units are remembered."""
MAX_TAILS = 1 << 10
"""Tails of order keys that are remembered with what they become."""


class ExchangeNode(Node):
    """Parts records by the worker that has their hash unit, and folds the exchange's id for it into their trace (R4).

    The unit is that of the key columns (`key_by`); the one the record has, before the first exchange its front's
    (`Relay`); or every unit, for one copy each (`Broadcast`). On the way back to a
    loop's head the turn is folded in too.

    Args:
        vertex: The exchange.
        plan: The plan.
        limits: How large records and frames may be; None for no limits.
    """

    def __init__(self, vertex: Vertex, plan: Plan, limits: Limits | None) -> None:
        super().__init__(vertex)
        self._units = plan.units
        self._targets: list[int] = plan.worker_of_unit().tolist()
        self._limits = limits
        self._ids = _ids(plan.name, vertex.name, plan.units)
        self._tails: dict[bytes, list[bytes]] = {}
        self._broadcasts = vertex.step.to_all
        self._turns = vertex.back is not None
        columns = vertex.step.by
        self._key: Callable[[Any], Any] | None = key_of(columns) if columns else None
        self._several = len(columns) > 1
        self._unit_of_key: dict[Any, int] = {}

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Part records, each part in order; targets ascend. O(n), of a broadcast O(n units).

        What is too large fails as it came, at the hash unit it had: the level that sends has its lane.
        """
        parcels, limits = self._parcels(batch), self._limits
        if limits is not None and not all([limits.has_room(parcel.payload, parcel.batch) for parcel in parcels]):
            fitting, large = limits.records(batch, self.vertex)
            if large is not None:
                feed.fail(large)
                parcels = self._parcels(fitting) if fitting.ats else []
            parts = [(parcel.target, piece) for parcel in parcels for piece in limits.pieces(parcel.batch)]
            parcels = [Parcel(self.vertex.id, target, *piece) for target, piece in parts]
        feed.parcels += parcels

    def _parcels(self, batch: Batch) -> list[Parcel]:
        """The records for each target, however large they are."""
        if self._broadcasts:
            batch = self._copies(batch)
            units = batch.units
        else:
            units = self._units_of(batch)
        targets = self._targets
        ats = self._traced(batch.ats, units)
        batch = Batch(ats, units, batch.rows, batch.flags, batch.ticks)
        first = targets[units[0]]
        if len(units) == 1 or all([targets[unit] == first for unit in units]):
            return [self._parcel(first, batch)]
        parts: dict[int, list[int]] = {}
        for index, unit in enumerate(units):
            target = targets[unit]
            if target in parts:
                parts[target].append(index)
            else:
                parts[target] = [index]
        return [self._parcel(target, batch.pick(parts[target])) for target in sorted(parts)]

    def _parcel(self, target: int, batch: Batch) -> Parcel:
        return Parcel(self.vertex.id, target, batch, encode_rows(batch.rows))

    def _units_of(self, batch: Batch) -> list[int]:
        key_of_row = self._key
        if key_of_row is None:
            fronts = [int.from_bytes(at[8:12], "big") - SIGN_32 for at in batch.ats]
            return batch.units or [front_unit(front, self._units) for front in fronts]
        keys = list(map(key_of_row, batch.rows))
        try:
            return list(map(self._unit_of_key.__getitem__, keys))
        except KeyError:
            known = self._unit_of_key
            return [known[key] if key in known else self._hashed(key) for key in keys]

    def _hashed(self, key: Any) -> int:
        """The hash unit of a key; the types of its columns are fixed, so equal values are the same key."""
        if len(self._unit_of_key) >= MAX_KEYS:
            self._unit_of_key.clear()
        values = [plain(value) for value in key] if self._several else [plain(key)]
        unit = self._unit_of_key[key] = hash_unit(values, self._units)
        return unit

    def _traced(self, ats: list[bytes], units: list[int]) -> list[bytes]:
        """The order keys with the exchange's id in their traces: a table of tails, as most records share a few."""
        traced = []
        before, after = b"", [b""]
        for at, unit in zip(ats, units, strict=True):
            tail = at[-TAIL_BYTES:]
            if tail != before:
                before, after = tail, self._tails_of(tail)
            traced.append(at[:-TAIL_BYTES] + (after[unit] or self._tail(tail, after, unit)))
        return traced

    def _tails_of(self, tail: bytes) -> list[bytes]:
        """By unit what a tail becomes; empty where no record has asked yet."""
        after = self._tails.get(tail)
        if after is None:
            if len(self._tails) >= MAX_TAILS:
                self._tails.clear()
            after = self._tails[tail] = [b""] * self._units
        return after

    def _tail(self, tail: bytes, after: list[bytes], unit: int) -> bytes:
        trace = with_turn(trace_of(tail)) if self._turns else trace_of(tail)
        made = after[unit] = tail_of(trace ^ self._ids[unit])
        return made

    def _copies(self, batch: Batch) -> Batch:
        """One copy for every hash unit, numbered in the child path."""
        units = range(self._units)
        flags = batch.flags
        return Batch(
            [with_child(at, unit + 1) for at in batch.ats for unit in units],
            list(units) * len(batch),
            [row for row in batch.rows for _ in units],
            None if flags is None else [flag for flag in flags for _ in units],
            batch.ticks,
        )


class EntryNode(Node):
    """An exchange on the side that receives: its records were looked at on the other."""

    sound = True

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Pass records on."""
        self.pass_on(batch, feed)


@cache
def _ids(job: str, name: str, units: int) -> list[int]:
    return [step_id(job, name, 0, unit) for unit in range(units)]


def front_unit(front: int, units: int) -> int:
    """The hash unit of records that are keyed by their front.

    Multiples of the golden ratio, modulo 1: any number of neighbouring fronts is spread evenly over the units, and so
    over lanes and workers, where a hash would put two of three into one.
    """
    fraction = (front * _GOLDEN & _MASK) >> 32
    return fraction * units >> 32
