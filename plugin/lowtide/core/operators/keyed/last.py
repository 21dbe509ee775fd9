"""`last(n)`: every record becomes the window of the last n records of its key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import tick_of
from lowtide.core.operators.state.group import Group
from lowtide.core.operators.state.grouping import Appended, Change, Grouping, Mended, apply_changes
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.steps.steps import Last


class LastGrouping(Grouping):
    """Keeps the elements since the prune time and the n - 1 before it; an element is (order key, record).

    A window stands in the place of its last element. It does not reach back over a time in which a key was forgotten.
    """

    def __init__(self, vertex: Vertex[Last], columns: Sequence[str], ttl: int | None = None) -> None:
        super().__init__(vertex, columns, ttl)
        self._size = vertex.step.count
        self._least = 1 if vertex.step.partial else vertex.step.count

    def _append(self, batch: Batch, appended: Appended) -> None:
        groups, size, least, key_of, ttl = self._groups, self._size, self._least, self._key, self._ttl
        touched, left, outs, changes = appended.touched, appended.left, appended.outs, appended.changes
        units, flags = batch.units, batch.flags
        # As in `ScanGrouping`: said again rather than shared, since a call per record is what both loops avoid.
        for index, (at, row) in enumerate(zip(batch.ats, batch.rows, strict=True)):
            key = key_of(row)
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(key, units[index], None)
            touched.append(group)
            elements = group.elements
            if (elements and at <= elements[-1][0]) or (changes and key in changes):
                left.append(index)
                changes.setdefault(key, []).append(Change(at, row, flags is not None and flags[index]))
                continue
            elements.append((at, row))
            start = -size if ttl is None else self._reach(elements, len(elements), size)
            window = tuple([element[1] for element in elements[start:]])
            if len(window) >= least:
                outs.append(window)
            else:
                left.append(index)

    def _mend(self, group: Group, changes: list[Change], mended: Mended) -> None:
        elements, size, unit = group.elements, self._size, group.unit
        start = bisect_left(elements, (changes[0].at,))
        after = bisect_left(elements, (changes[-1].at,)) + size  # No window from here on holds a changed element.
        context, old = elements[max(0, start - size + 1) : start], elements[start:after]
        new = apply_changes(self._place, ((at, row) for at, row in old), changes)
        elements[start:after] = new
        was, is_ = dict(self._windows(context, old)), dict(self._windows(context, new))
        mended.taken += [(at, unit, window) for at, window in was.items() if not _same(window, is_.get(at))]
        mended.given += [(at, unit, window) for at, window in is_.items() if not _same(window, was.get(at))]

    def _windows(
        self, context: list[tuple[Any, ...]], elements: Sequence[tuple[Any, ...]]
    ) -> list[tuple[bytes, tuple[Any, ...]]]:
        """Return the windows that end at these elements; `context` holds up to n - 1 elements before them."""
        listed = [*context, *elements]
        rows = [element[1] for element in listed]
        ends = range(len(context) + 1, len(rows) + 1)
        windows = [tuple(rows[self._reach(listed, end, self._size) : end]) for end in ends]
        named = zip((element[0] for element in elements), windows, strict=True)
        return [(at, window) for at, window in named if len(window) >= self._least]

    def _reach(self, elements: Sequence[tuple[Any, ...]], end: int, size: int) -> int:
        """Return the start of the window of up to `size` elements that ends before `end`."""
        start = max(0, end - size)
        if self._ttl is not None and end:
            tick = tick_of(elements[end - 1][0])
            for index in range(end - 2, start - 1, -1):
                after, tick = tick, tick_of(elements[index][0])
                if after - tick >= self._ttl:
                    return index + 1
        return start

    def _fold(self, group: Group, count: int) -> None:
        if count >= self._size:
            del group.elements[: count - self._size + 1]

    def _state(self, group: Group, count: int, tick: int) -> Any:
        elements = group.elements
        if self._ttl is not None and count and tick - tick_of(elements[count - 1][0]) >= self._ttl:
            return NOTHING
        return elements[self._reach(elements, count, self._size - 1) : count] or NOTHING

    def _restore(self, group: Group, state: Any, tick: int) -> None:
        group.elements = list(state)


def _same(window: tuple[Any, ...], other: tuple[Any, ...] | None) -> bool:
    """Return whether two windows hold identical records; equal is not enough: 1 == True, but not as JSON."""
    return other is not None and list(map(id, window)) == list(map(id, other))
