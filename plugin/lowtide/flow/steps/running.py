"""Running results as functions of scans, for `reduce` and `aggregate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowtide.flow.steps.aggregation import Aggregation


class Reducing:
    """The function of a `reduce`: its state is the last result, None before the first record."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function
        self.__qualname__ = str(getattr(function, "__qualname__", None) or repr(function))

    def __call__(self, state: Any, record: Any) -> tuple[Any, Any]:
        """Return the result, as the new state and as the output."""
        result = record if state is None else self.function(state, record)
        return result, result


class Aggregating:
    """The function of an `aggregate`: its state holds those of the aggregates.

    Args:
        aggregation: The aggregates.
        key: The key's columns.
    """

    def __init__(self, aggregation: Aggregation, key: Sequence[str]) -> None:
        self.aggregation = aggregation
        self._key = tuple(key)
        self.__qualname__ = "aggregate"

    def __call__(self, state: Any, record: Any) -> tuple[Any, Any]:
        """Return the state with the record added, and its result."""
        after = self.aggregation.add(state, record)
        return after, self.aggregation.finish(after, [getattr(record, column) for column in self._key])
