"""`deduplicate`: the first record of each key goes on, the next one a while after it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK, tick_of
from lowtide.core.operators.state.group import Group
from lowtide.core.operators.state.grouping import Appended, Change, Grouping, Mended, apply_changes
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.flow.plan.plan import Vertex


class DeduplicateGrouping(Grouping):
    """Keeps of each key the tick of the last record that went on, and what came since the prune time.

    An element is (order key, record, the tick of the last record that went on up to and with it, whether it did). Of a
    group, `touched` is that tick.

    Args:
        vertex: The step.
        columns: The key's columns.
        within: After how many ticks a key is forgotten.
    """

    def __init__(self, vertex: Vertex, columns: Sequence[str], within: int) -> None:
        super().__init__(vertex, columns, within)
        self._within = within

    def _append(self, batch: Batch, appended: Appended) -> None:
        groups, within, key_of = self._groups, self._within, self._key
        touched, left, outs, changes = appended.touched, appended.left, appended.outs, appended.changes
        units, flags = batch.units, batch.flags
        # As in `ScanGrouping`: said again rather than shared, since a call per record is what these loops avoid.
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
            tick, last = tick_of(at), elements[-1][2] if elements else group.touched
            goes = tick - last >= within
            elements.append((at, row, tick if goes else last, goes))
            if goes:
                outs.append(row)
            else:
                left.append(index)

    def _mend(self, group: Group, changes: list[Change], mended: Mended) -> None:
        elements, unit = group.elements, group.unit
        start = bisect_left(elements, (changes[0].at,))
        last = elements[start - 1][2] if start else group.touched
        old = elements[start:]
        del elements[start:]
        for at, row in apply_changes(self._place, ((at, row) for at, row, _, _ in old), changes):
            tick = tick_of(at)
            goes = tick - last >= self._within
            last = tick if goes else last
            elements.append((at, row, last, goes))
        was = {at: row for at, row, _, goes in old if goes}
        is_ = {at: row for at, row, _, goes in elements[start:] if goes}
        mended.taken += [(at, unit, row) for at, row in was.items() if is_.get(at) is not row]
        mended.given += [(at, unit, row) for at, row in is_.items() if was.get(at) is not row]

    def _fold(self, group: Group, count: int) -> None:
        if count:
            group.touched = group.elements[count - 1][2]
            del group.elements[:count]

    def _state(self, group: Group, count: int, tick: int) -> Any:
        last = group.elements[count - 1][2] if count else group.touched
        return NOTHING if last == FIRST_TICK or tick - last >= self._within else last

    def _restore(self, group: Group, state: Any, tick: int) -> None:
        group.touched = state
