"""Grouping: per key a list ordered by order key; a record that comes late is inserted at its place and the rest mended.

What a late record changes is taken back by tombstones (same payload, same order key) and sent again (papers:
*Ordering model*; rules R4, R14). The same code serves both modes: in ordered mode `Ordered` lets records in only when
nothing before them can come any more, so that there is nothing to mend.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from lowtide.core.operators.faults.failure import Fault
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.unmatched import unmatched
from lowtide.core.operators.state.group import Group, Key
from lowtide.core.operators.state.keyed_state import KeyedState
from lowtide.core.operators.state.unchanged import changed_only
from lowtide.errors import TimeWentBack
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.fields import key_of


class Change:
    """One record that is not simply the newest of its key: an item to be inserted, or a tombstone to remove one."""

    __slots__ = ("at", "row", "tombstone")

    def __init__(self, at: bytes, row: Any, tombstone: bool) -> None:
        self.at = at
        self.row = row
        self.tombstone = tombstone


class Appended:
    """The results of a batch's records that are the newest of their keys.

    Attributes:
        touched: The groups.
        left: The indices of the records that gave nothing, or nothing yet; ascending, mostly none.
        outs: What the others gave.
        changes: By key, what has to be mended; from the start there for keys of which something is taken back.
    """

    __slots__ = ("changes", "left", "outs", "touched")

    def __init__(self) -> None:
        self.touched: list[Group] = []
        self.left: list[int] = []
        self.outs: list[Any] = []
        self.changes: dict[Key, list[Change]] = {}


class Mended:
    """The results of repairs: outputs that are taken back, and outputs in their place."""

    __slots__ = ("given", "taken")

    def __init__(self) -> None:
        self.taken: list[tuple[bytes, int, Any]] = []
        """Order key, hash unit and output of each."""
        self.given: list[tuple[bytes, int, Any]] = []


class Grouping(KeyedState):
    """One stateful step of one worker, of its hash units' keys.

    Args:
        vertex: The step.
        columns: The key's columns.
        ttl: After how many ticks without a record a key has no state any more; None for never.

    Attributes:
        repairs: How many outputs have been taken back so far.
        settles: Whether an output that a repair leaves as it was stays where it is, instead of being taken back and
            sent again; see `unchanged.py`.
    """

    def __init__(self, vertex: Vertex, columns: Sequence[str], ttl: int | None = None) -> None:
        super().__init__(ttl)
        self._place = f'step "{vertex.name}"'
        self._key = key_of(tuple(columns))
        self._gives = vertex.gives
        self.settles = False
        self.repairs = 0

    def key_by_type(self, columns: Mapping[type, tuple[str, ...]]) -> None:
        """Key records by the columns of their type, as connected streams are."""
        self._key = key_by_type(columns)

    def insert(self, batch: Batch) -> tuple[Batch | None, Batch | None]:
        """Take records and tombstones, in the order they came; return what becomes of them.

        Costs one step of Python per record that is the newest of its key, and for one that is not as many as there are
        elements after it.

        Returns:
            Outputs of the step, if any; `Fault`s, if any. In each, tombstones stand first, so that none overtakes its
            item.

        Raises:
            TimeWentBack: a record is below the prune time.
            UnmatchedTombstone: a tombstone without its item, or a second item with the same order key.
        """
        ticks = batch.ticks
        first, last = ticks[0], ticks[-1]
        if first < self._kept.pruned:
            raise TimeWentBack(self._place, first, self._kept.pruned)
        batch = batch.in_order()
        self._touched.add(batch.units, last)
        appended = Appended()
        if batch.flags is not None:
            appended.changes = {self._key(row): [] for row, flag in zip(batch.rows, batch.flags, strict=True) if flag}
        if self._shelf is not None:
            self._shelf.admit(list(map(self._key, batch.rows)), batch.units)
        self._append(batch, appended)
        self._kept.touch(last, appended.touched)
        if not appended.changes:
            kept = batch.without(appended.left) if appended.left else batch
            return _parted(kept.with_rows(appended.outs)) if appended.outs else (None, None)
        return self._repaired(batch, appended)

    def _repaired(self, batch: Batch, appended: Appended) -> tuple[Batch | None, Batch | None]:
        """Mend, and put what that changes before the outputs."""
        mended = Mended()
        for key, listed in appended.changes.items():
            group = self._groups[key]
            self._mend(group, listed, mended)
            if not group.elements:
                self._kept.rest(group)  # All its records since the prune time have been taken back.
        if self.settles and mended.taken:
            mended.taken, mended.given = changed_only(mended.taken, mended.given, self._gives)
        self.repairs += len(mended.taken)
        kept = batch.without(appended.left)
        changed = [*mended.taken, *mended.given]
        ats, units, rows = map(list, zip(*changed, strict=True)) if changed else ([], [], [])
        if not ats and not kept.ats:
            return None, None
        flags = [True] * len(mended.taken) + [False] * (len(mended.given) + len(kept)) if mended.taken else None
        return _parted(Batch(ats + kept.ats, units + kept.units, rows + appended.outs, flags))

    @abstractmethod
    def _append(self, batch: Batch, appended: Appended) -> None:
        """Take the records that are the newest of their keys; leave the others, and all after them, to be mended."""

    @abstractmethod
    def _mend(self, group: Group, changes: list[Change], mended: Mended) -> None:
        """Insert and remove elements, and say what that changes."""


def key_by_type(columns: Mapping[type, tuple[str, ...]]) -> Callable[[Any], Key]:
    """Return the function that gives a record's key, by the columns of its type."""
    keys = {record: key_of(each) for record, each in columns.items()}
    return lambda row: keys[type(row)](row)


def apply_changes(owner: str, old: Iterable[tuple[bytes, Any]], changes: Iterable[Change]) -> list[tuple[bytes, Any]]:
    """Insert and remove elements of an ordered list of (packed order key, row).

    Raises:
        UnmatchedTombstone: a tombstone without its item, or a second item with the same order key.
    """
    rows = dict(old)
    for change in changes:
        if change.tombstone != (change.at in rows):
            raise unmatched(owner, change.at, change.tombstone)
        if change.tombstone:
            del rows[change.at]
        else:
            rows[change.at] = change.row
    return sorted(rows.items(), key=_first)


_first: Callable[[tuple[bytes, Any]], bytes] = lambda element: element[0]  # noqa: E731


def _parted(batch: Batch) -> tuple[Batch | None, Batch | None]:
    """Outputs and faults apart."""
    if Fault not in set(map(type, batch.rows)):
        return batch, None
    failed = [type(row) is Fault for row in batch.rows]
    good = None if all(failed) else batch.where([not each for each in failed])
    return good, batch.where(failed)


class GroupingNode(Node):
    """A step with state in optimistic mode: what comes is inserted at once."""

    def __init__(self, vertex: Vertex, grouping: Grouping) -> None:
        super().__init__(vertex)
        self.grouping = grouping
        self.states = {vertex.name: grouping}

    @property
    @override
    def repairs(self) -> int:
        return self.grouping.repairs

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Insert, and pass on what comes of it."""
        self.emit(*self.grouping.insert(batch), feed)

    def emit(self, outputs: Batch | None, faults: Batch | None, feed: Feed) -> None:
        """Pass outputs on, and put faults aside."""
        if outputs is not None:
            self.pass_on(outputs, feed)
        if faults is not None:
            feed.fail(faults)
