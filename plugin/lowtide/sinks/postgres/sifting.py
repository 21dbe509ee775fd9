"""Finds the rows of a delivery that a table refuses, and sets them aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from lowtide.core.operators.order.order import position_of
from lowtide.sinks.postgres.columns import Table
from lowtide.sinks.postgres.line import Refused
from lowtide.sinks.postgres.statement import Lane, RefusedRow

LaneRow = tuple[int, tuple[Any, ...]]
"""A lane's number, and a row as the encoder made it."""


def sifted(
    lanes: Mapping[int, Lane], table: Table, fault: Callable[[Sequence[LaneRow]], Refused | None]
) -> dict[int, Lane]:
    """Return the lanes with only such rows as the table takes together; the others are in `refused`.

    Of rows that exclude each other, as by a unique column, the first one stays. An upsert's row that a later one of the
    same delivery replaces is not tried.

    Args:
        lanes: The lanes.
        table: Where their rows go.
        fault: Tries rows, and returns why the table refuses them; O(refused rows * log rows) calls.
    """
    taken: list[LaneRow] = []
    aside = {number: [*lane.refused] for number, lane in lanes.items()}

    def sift(rows: Sequence[LaneRow]) -> None:
        error = fault([*taken, *rows])
        if error is None:
            taken.extend(rows)
        elif len(rows) == 1:
            [(number, row)] = rows
            aside[number].append(RefusedRow(str(position_of(row[0])), _json_of(table, row), error.state, str(error)))
        else:
            middle = len(rows) // 2
            sift(rows[:middle])
            sift(rows[middle:])

    sift([(number, row) for number, lane in lanes.items() for row in lane.rows])
    return {
        number: replace(lane, rows=[row for of, row in taken if of == number], refused=aside[number])
        for number, lane in lanes.items()
    }


def _json_of(table: Table, row: tuple[Any, ...]) -> str:
    """Return a row as JSON; what JSON cannot say, such as half of a character, as Python does."""
    names = [column.name for column in table.columns]
    try:
        return msgspec.json.encode(dict(zip(names, row[1:], strict=True))).decode()
    except (TypeError, ValueError):
        return msgspec.json.encode({name: ascii(value) for name, value in zip(names, row[1:], strict=True)}).decode()
