"""Makes tuples of columns' values of records that a barrier has released."""

from __future__ import annotations

from typing import Any

from lowtide.core.operators.order.bundle import Piece
from lowtide.sinks.postgres.columns import maker_of


class RowEncoder:
    """Makes the rows of a table, each with its order key before it, by which errors name the record."""

    def __init__(self, record: type) -> None:
        self._make = maker_of(record)

    def encode(self, lane: int, pieces: list[Piece]) -> list[tuple[Any, ...]]:
        """Return the rows of a lane's pieces, in order; one call of generated code per row."""
        if len(pieces) == 1:
            return list(map(self._make, pieces[0].ats, pieces[0].rows))
        return [row for piece in pieces for row in map(self._make, piece.ats, piece.rows)]
