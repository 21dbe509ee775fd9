"""A loop's tail: which records go round once more, and which have gone round too often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure
from lowtide.operators.filtering import FilterOperator
from lowtide.operators.keys import key_of
from lowtide.operators.per_record import call_each
from lowtide.plan import Plan, Vertex
from lowtide.steps import Again
from lowtide_snapshots.errors import KeyRefused
from lowtide_snapshots.hashing import hash_unit


@dataclass(frozen=True, slots=True)
class Turned:
    """What a loop's tail made of a batch.

    Attributes:
        again: What goes back to the head.
        leaving: What goes on.
        failures: What failed, or had to go round again and must not.
    """

    again: Batch
    leaving: Batch
    failures: list[Failure]


class Turns:
    """Counts a record's turns by the loop's marks in its child path: state of its own would not survive a repair.

    Args:
        vertex: The tail.
        plan: The plan.
    """

    def __init__(self, vertex: Vertex, plan: Plan) -> None:
        assert isinstance(vertex.step, Again)
        assert vertex.back is not None
        self._filter = FilterOperator(vertex.step.function)
        self._limit = vertex.step.limit_turns
        head = plan.vertices[vertex.back]
        self._mark = np.uint32(head.loop_mark)
        self._columns = plan.key_of(head)
        self._units = plan.units

    def apply(self, batch: Batch) -> Turned:
        """Ask the user's function about every record."""
        rows = batch.rows()
        results, failures = call_each(self._filter.calls, rows)
        failed = {failure.index for failure in failures}
        again = np.zeros(len(rows), np.bool_)
        turns = np.count_nonzero(batch.meta.child == self._mark, axis=1)
        for index, result in zip((i for i in range(len(rows)) if i not in failed), results, strict=True):
            fault = self._filter.fault(result)
            if fault is None and result:
                fault = self._refuse(rows[index], int(turns[index]), batch.meta.unit, index)
            if fault is not None:
                failures.append(Failure(index, rows[index], fault))
            again[index] = result is True and fault is None
        failures.sort(key=lambda failure: failure.index)
        leaving = ~again
        leaving[[failure.index for failure in failures]] = False
        return Turned(batch.take(np.flatnonzero(again)), batch.take(np.flatnonzero(leaving)), failures)

    def _refuse(self, row: Any, turns: int, units: npt.NDArray[np.int32] | None, index: int) -> str | None:
        """Why a record must not go round again, if it must not."""
        if turns >= self._limit:
            return too_many_turns(self._limit)
        assert units is not None, "a loop stands behind an exchange"
        try:
            unit = hash_unit(key_of(self._columns, row), self._units)
        except KeyRefused as refused:
            return key_refused(refused)
        return None if unit == int(units[index]) else key_changed(self._columns)


def too_many_turns(limit: int) -> str:
    """What is wrong with a record that would have to go round once more."""
    return f"has to go round again after {limit} turns, which is the loop's limit_turns"


def key_changed(columns: Sequence[str]) -> str:
    """What is wrong with a record that would leave its hash unit."""
    return f"goes round the loop again with another {', '.join(columns)}; a record keeps its key in a loop"


def key_refused(refused: KeyRefused) -> str:
    """What is wrong with a record that has something for its key that is none."""
    return f"goes round the loop again with something for its key that is none: {refused}"
