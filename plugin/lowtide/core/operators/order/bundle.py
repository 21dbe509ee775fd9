"""A bundle: the records that a barrier hands to a sink in one atomic step (R13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowtide.core.operators.order.order import OrderKey
from lowtide_tracker import Floor

NO_KEY = b""
"""Before every record's packed order key: the `last` of a lane that nothing was delivered to."""


class Piece:
    """Records of one lane, or strand, and one tick.

    Attributes:
        tick: Theirs.
        ats: Their packed order keys, ascending.
        rows: The records, all items.
        units: Their hash units; empty if nobody asks.
    """

    __slots__ = ("ats", "rows", "tick", "units")

    def __init__(self, tick: int, ats: list[bytes], rows: list[Any], units: Sequence[int] = ()) -> None:
        self.tick = tick
        self.ats = ats
        self.rows = rows
        self.units = units

    def __len__(self) -> int:
        return len(self.ats)


class Bundle:
    """Records of one lane, or of one strand, with what has to become durable together with them.

    Attributes:
        lane: The lane; a strand's first one.
        number: Counts the lane's bundles in this life, from 1.
        pieces: The records in order; none in a bundle that only carries floors or a mark.
        last: The packed order key of the lane's last record, this bundle's or, if it has none, an earlier one's, or
            that of its mark (`mark_key`); `NO_KEY` if there is none.
        floors: What the min time rests on that released these records, as far as it is not durable already and the
            lane has not been given it; the sink keeps them beside those it has.
        covered: Floors that the sink may have and does not need beside these.
        mark: The tick below which nothing of the lane follows this bundle; None if the sink needs no mark.
        width: Of a strand the number of its lanes, from `lane` on; 0 for a bundle of one lane.
    """

    __slots__ = ("_size", "covered", "floors", "lane", "last", "mark", "number", "pieces", "width")

    def __init__(
        self,
        lane: int,
        number: int,
        pieces: list[Piece],
        last: bytes,
        floors: tuple[Floor, ...],
        covered: tuple[Floor, ...] = (),
        mark: int | None = None,
        width: int = 0,
    ) -> None:
        self.lane = lane
        self.number = number
        self.pieces = pieces
        self.last = last
        self.floors = floors
        self.covered = covered
        self.mark = mark
        self.width = width
        self._size = sum([len(piece.ats) for piece in pieces])

    def __len__(self) -> int:
        return self._size

    @property
    def last_key(self) -> OrderKey | None:
        """`last` as a value; None if there is none."""
        return OrderKey.of(self.last) if self.last else None

    @property
    def rows(self) -> list[Any]:
        """All its records, in order."""
        return [row for piece in self.pieces for row in piece.rows]
