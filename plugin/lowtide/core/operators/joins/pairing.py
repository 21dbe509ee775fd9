"""A join's function: what it is called with, and what it has to give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowtide.core.operators.faults.failure import Failure, raised
from lowtide.core.operators.faults.watch import watch_of
from lowtide.core.operators.order.order import Position
from lowtide.core.operators.plain.per_record import said_type
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.steps.steps import Join, JoinTable


class Pairing:
    """Calls the function with a pair, and says what is wrong with its result.

    Args:
        vertex: The join.
        taken: The types of the two records.
    """

    def __init__(self, vertex: Vertex[JoinTable | Join], taken: Sequence[type]) -> None:
        self._function = vertex.step.function
        self._gives = vertex.gives
        self._watch = watch_of(vertex, self._function, taken)

    def __call__(self, came: object, left: object, right: object, position: Position) -> tuple[Any, Failure | None]:
        """Return the function's result for a pair, or its failure.

        Args:
            came: The record that it is called for.
            left: The first record, or None.
            right: The second record, or None.
            position: Position in the log of the record that came.

        Raises:
            UserError: the function changed one of them in place.
        """
        watch, pair = self._watch, (left, right)
        looked = None if watch is None else watch.look(pair)
        out, failure = None, None
        try:
            out = self._function(left, right)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            failure = raised(0, came, error)
        else:
            if type(out) is not self._gives:
                failure = Failure(0, came, f"returned {said_type(out)}, expected {self._gives.__qualname__}")
        if watch is not None and not watch.same(pair, looked):
            raise watch.changed(came, position)
        return out, failure
