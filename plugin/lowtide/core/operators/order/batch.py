"""A batch: n records with what travels beside them, as plain lists."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain, compress
from typing import Any

from lowtide.core.operators.order.order import ascending, tick_bytes, ticks_in


class Batch:
    """n records, n >= 1 unless said; its lists are never changed once it is made.

    A job's batches are small, 1 to 10 records mostly, so nothing here costs a call into numpy or Arrow.

    Attributes:
        ats: The packed order keys.
        units: The hash units; empty before the first exchange.
        rows: The records; not to be changed.
        flags: Of each whether it is a tombstone, which takes an earlier record with the same order key back; None where
            none is.
    """

    __slots__ = ("_ticks", "ats", "flags", "rows", "units")

    def __init__(
        self,
        ats: list[bytes],
        units: list[int],
        rows: list[Any],
        flags: list[bool] | None = None,
        ticks: list[int] | None = None,
    ) -> None:
        self.ats = ats
        self.units = units
        self.rows = rows
        self.flags = flags
        self._ticks = ticks

    @property
    def ticks(self) -> list[int]:
        """The distinct ticks, ascending; made once."""
        ticks = self._ticks
        if ticks is None:
            ticks = self._ticks = ticks_in(self.ats)
        return ticks

    def __len__(self) -> int:
        return len(self.ats)

    @classmethod
    def concat(cls, batches: Sequence[Batch]) -> Batch:
        """Batches one after the other; all with hash units, or none."""
        if len(batches) == 1:
            return batches[0]
        ats = list(chain.from_iterable([batch.ats for batch in batches]))
        units = list(chain.from_iterable([batch.units for batch in batches]))
        rows = list(chain.from_iterable([batch.rows for batch in batches]))
        flags: list[bool] | None = None
        if any([batch.flags is not None for batch in batches]):
            flags = []
            for batch in batches:
                flags += [False] * len(batch.ats) if batch.flags is None else batch.flags
        return cls(ats, units, rows, flags, sorted(set(chain.from_iterable([batch.ticks for batch in batches]))))

    def with_rows(self, rows: list[Any]) -> Batch:
        """Other records in the places of these."""
        return Batch(self.ats, self.units, rows, self.flags, self._ticks)

    def with_ats(self, ats: list[bytes]) -> Batch:
        """The same records with other order keys of the same ticks."""
        return Batch(ats, self.units, self.rows, self.flags, self._ticks)

    def slice(self, start: int, stop: int, ticks: list[int] | None = None) -> Batch:
        """Records `start` to `stop`, without the latter; `ticks` are theirs, if they are known."""
        flags = None if self.flags is None else _some(self.flags[start:stop])
        ats, units, rows = self.ats[start:stop], self.units[start:stop], self.rows[start:stop]
        return Batch(ats, units, rows, flags, ticks or self._shared())

    def pick(self, chosen: Sequence[int]) -> Batch:
        """The records at these indices."""
        ats, units, rows, flags = self.ats, self.units, self.rows, self.flags
        return Batch(
            [ats[index] for index in chosen],
            [units[index] for index in chosen] if units else units,
            [rows[index] for index in chosen],
            None if flags is None else _some([flags[index] for index in chosen]),
            self._shared(),
        )

    def where(self, kept: Sequence[bool]) -> Batch:
        """The records with True."""
        flags = None if self.flags is None else _some(list(compress(self.flags, kept)))
        return Batch(
            list(compress(self.ats, kept)),
            list(compress(self.units, kept)),
            list(compress(self.rows, kept)),
            flags,
            self._shared(),
        )

    def without(self, left_out: Iterable[int]) -> Batch:
        """The records but those at these indices; perhaps none."""
        missing = set(left_out)
        return self.pick([index for index in range(len(self.ats)) if index not in missing])

    def cut(self, tick: int) -> tuple[Batch, Batch]:
        """The records below a tick, and those from there on; each part as it came."""
        ats, end = self.ats, tick_bytes(tick)
        if ascending(ats):
            stop = bisect_left(ats, end)
            return self.slice(0, stop), self.slice(stop, len(ats))
        below = [at < end for at in ats]
        return self.where(below), self.where([not each for each in below])

    def in_order(self) -> Batch:
        """The records by order key; equal ones as they came."""
        ats = self.ats
        return self if ascending(ats) else self.pick(sorted(range(len(ats)), key=ats.__getitem__))

    def _shared(self) -> list[int] | None:
        """The ticks of any part of it, if all of it has one."""
        ticks = self._ticks
        return ticks if ticks is not None and len(ticks) == 1 else None


def _some(flags: list[bool]) -> list[bool] | None:
    return flags if True in flags else None
