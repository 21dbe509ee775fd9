"""A group: the state that a step keeps of one key, and the keys whose state can be pruned."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from lowtide.core.operators.order import FIRST_TICK, tick_bytes

Key = Any
"""A key's value: the column's, or a tuple of several columns'."""


class Group:
    """What is kept of one key.

    Attributes:
        unit: The key's hash unit.
        base: What the elements before the first one came to (of a scan: the state).
        elements: Ascending by their first field, the packed order key; what follows is the step's own.
    """

    __slots__ = ("base", "elements", "unit")

    def __init__(self, unit: int, base: Any) -> None:
        self.unit = unit
        self.base = base
        self.elements: list[tuple[Any, ...]] = []


class Touched:
    """Up to which tick the records went that each hash unit got: whether it has changed since a snapshot.

    A batch counts with its last tick for all its units: a unit may be said to have changed that has not, never the
    other way round.
    """

    __slots__ = ("_ticks",)

    def __init__(self) -> None:
        self._ticks: dict[int, int] = {}

    def add(self, units: Iterable[int], last: int) -> None:
        """Records of these hash units came, none above tick `last`."""
        ticks = self._ticks
        for unit in units:
            if ticks.get(unit, FIRST_TICK) < last:
                ticks[unit] = last

    def since(self, tick: int) -> list[int]:
        """The hash units that may have got records of this tick or a later one, ascending."""
        return sorted([unit for unit, last in self._ticks.items() if last >= tick])


class Recent:
    """The groups with elements that have not been pruned, in the order they got them."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: deque[tuple[int, list[Group]]] = deque()

    def add(self, last: int, groups: list[Group]) -> None:
        """Groups that got elements, none of them above tick `last`; the same group may stand there twice."""
        self._batches.append((last, groups))

    def settle(self, tick: int, fold: Callable[[Group, int], None]) -> None:
        """Let `fold` take the elements below `tick` out of each group that has any; it is told how many they are.

        O(groups touched since), each visited once per element.
        """
        batches = self._batches
        if not batches or batches[0][0] >= tick:
            return
        end = tick_bytes(tick)
        while batches and batches[0][0] < tick:
            for group in batches.popleft()[1]:
                elements = group.elements
                if elements and elements[0][0] < end:
                    whole = elements[-1][0] < end
                    fold(group, len(elements) if whole else bisect_left(elements, (end,)))
