"""A loop's tail: which records go round once more, and which have gone round too often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure
from lowtide.operators.filtering import FilterOperator
from lowtide.operators.per_record import call_each
from lowtide.plan import Plan, Vertex
from lowtide.steps import Again


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
        self._mark = np.uint32(plan.vertices[vertex.back].loop_mark)

    def apply(self, batch: Batch) -> Turned:
        """Ask the user's function about every record."""
        rows = batch.rows()
        results, failures = call_each(self._filter.calls, rows)
        failed = {failure.index for failure in failures}
        again = np.zeros(len(rows), np.bool_)
        turns = np.count_nonzero(batch.meta.child == self._mark, axis=1)
        for index, result in zip((i for i in range(len(rows)) if i not in failed), results, strict=True):
            fault = self._filter.fault(result)
            if fault is None and result and turns[index] >= self._limit:
                fault = too_many_turns(self._limit)
            if fault is not None:
                failures.append(Failure(index, rows[index], fault))
            again[index] = result is True and fault is None
        failures.sort(key=lambda failure: failure.index)
        leaving = ~again
        leaving[[failure.index for failure in failures]] = False
        return Turned(batch.take(np.flatnonzero(again)), batch.take(np.flatnonzero(leaving)), failures)


def too_many_turns(limit: int) -> str:
    """What is wrong with a record that would have to go round once more."""
    return f"has to go round again after {limit} turns, which is the loop's limit_turns"
