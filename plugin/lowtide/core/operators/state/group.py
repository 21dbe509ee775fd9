"""A group: the state that a step keeps of one key; the keys whose state can be pruned, and those to be forgotten."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from lowtide.core.operators.order.memory import Kept, Scale
from lowtide.core.operators.order.order import FIRST_TICK, tick_bytes, tick_of

Key = Any
"""A key's value: the column's, or a tuple of several columns'."""

GROUP_BYTES = 400
"""About what a key takes beside itself and its state: its place by key, and what says when it is forgotten."""

SPARE = 64
"""So much that counts no more may always be left in what is tidied when most of it is such."""


class Group:
    """The state of one key.

    Attributes:
        key: The key.
        unit: The key's hash unit.
        base: What the elements before the first one came to (of a scan: the state).
        touched: The tick of the last of those, where the step forgets; `FIRST_TICK` before the first.
        awaited: Whether an `Expiry` has it.
        elements: Ascending by their first field, the packed order key; what follows is the step's own.
    """

    __slots__ = ("awaited", "base", "elements", "key", "touched", "unit")

    def __init__(self, key: Key, unit: int, base: Any) -> None:
        self.key = key
        self.unit = unit
        self.base = base
        self.touched = FIRST_TICK
        self.awaited = False
        self.elements: list[tuple[Any, ...]] = []

    def put(self, at: bytes, state: Any) -> None:
        """Put what it comes to with a record into its elements: of a tick the last one stands for all.

        For steps that run in order: nothing comes before it, and a snapshot asks for what a tick begins with.
        """
        elements = self.elements
        if elements and elements[-1][0][:8] == at[:8]:
            elements[-1] = at, state
        else:
            elements.append((at, state))

    def newest_tick(self) -> int:
        """The tick of the last record; of one that was pruned only where the step forgets."""
        return tick_of(self.elements[-1][0]) if self.elements else self.touched


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

    def since(self, tick: int) -> Iterator[Group]:
        """The groups that may have elements of this tick or a later one; the same may come twice."""
        for last, groups in self._batches:
            if last >= tick:
                yield from groups

    def settle(self, tick: int) -> Iterator[list[Group]]:
        """Let go of the groups that got no element of this tick or a later one, in the portions they came in."""
        batches = self._batches
        while batches and batches[0][0] < tick:
            yield batches.popleft()[1]


class Changed(Protocol):
    """Notes the groups that have changed; see `ChangedKeys`."""

    def add(self, group: Group) -> None:
        """A group had elements that nothing can come before or between any more."""

    def bound(self, keys: int) -> None:
        """The step has so many keys now."""


class Groups:
    """The groups of a step by their keys. Those go whose state is none: with their last record, or when they are old.

    Args:
        ttl: After how many ticks without a record a key's state is none; None for never.
        fold: Takes the first `count` elements out of a group: nothing can come before or between them any more.
        is_none: Whether the state below a tick, of a group without elements from there on, is as good as none.

    Attributes:
        by_key: The groups.
        changed: Told each group whose elements the prune time passes; None if nobody asks for them.
        pruned: The prune time: nothing comes below it any more.
    """

    __slots__ = ("_expiry", "_fold", "_is_none", "_recent", "_scale", "by_key", "changed", "pruned")

    def __init__(
        self, ttl: int | None, fold: Callable[[Group, int], None], is_none: Callable[[Group, int], bool]
    ) -> None:
        self._expiry = None if ttl is None else Expiry(ttl)
        self._fold = fold
        self._is_none = is_none
        self._recent = Recent()
        self._scale = Scale(thrifty=True)
        self.by_key: dict[Key, Group] = {}
        self.changed: Changed | None = None
        self.pruned = FIRST_TICK

    def __len__(self) -> int:
        """The number of groups in memory, with those that have gone but still wait."""
        return len(self.by_key) if self._expiry is None else max(len(self.by_key), len(self._expiry))

    @property
    def kept(self) -> Kept:
        """The number of keys, and about how many bytes they take, with those that have gone but still wait."""
        return Kept("keys", len(self.by_key), round((GROUP_BYTES + self._scale.mean) * len(self)))

    def touch(self, last: int, groups: list[Group]) -> None:
        """Groups got elements, none of them above tick `last`; the same group may stand there twice."""
        self._recent.add(last, groups)

    def prune(self, tick: int) -> None:
        """Forget what only records below `tick` could need; O(groups touched since), each visited once per record."""
        self.pruned = max(self.pruned, tick)
        for groups in self._recent.settle(tick):
            self._settle(groups, tick_bytes(tick))
        if self.changed is not None:
            self.changed.bound(len(self.by_key))
        if self._expiry is not None:
            for group in self._expiry.due(self.pruned):
                if group.newest_tick() < self.pruned:
                    self.rest(group)

    def recent(self, tick: int) -> Iterator[Group]:
        """The groups that may have elements of this tick or a later one; the same may come twice."""
        return self._recent.since(tick)

    def rest(self, group: Group) -> None:
        """Let a group without elements from the prune time on go, if its state is none; else let it wait for that."""
        if self.by_key.get(group.key) is not group:
            return  # It has gone already; the key may have another.
        if self._is_none(group, self.pruned):
            del self.by_key[group.key]
            if self._expiry is not None:
                self._expiry.bound(self.by_key)
            return
        self._scale.weigh((group.key, group.base, group.elements))
        if self._expiry is not None:
            self._expiry.add(group, self.by_key)

    def _settle(self, groups: list[Group], end: bytes) -> None:
        """Fold what lies before `end`; every record passes here, so it is one loop."""
        fold, changed, rest = self._fold, self.changed, self.rest
        for group in groups:
            elements = group.elements
            if not elements or elements[0][0] >= end:
                continue
            if changed is not None:
                changed.add(group)
            if elements[-1][0] < end:
                fold(group, len(elements))
                rest(group)
            else:
                fold(group, bisect_left(elements, (end,)))


class Expiry:
    """Groups that wait to be forgotten, by the tick of their last record; a group waits once, whatever comes for it.

    They lie in buckets of a sixteenth of their time, so that nothing goes through all keys: a group is looked at once
    in that time, and goes at most a sixteenth later than it could. One that has gone before is left there, so that
    there are never more of these than of keys, and `SPARE`.

    Args:
        ttl: How many ticks after its last record a group is to be forgotten.
    """

    __slots__ = ("_buckets", "_count", "_grain", "_ttl")

    def __init__(self, ttl: int) -> None:
        self._ttl = ttl
        self._grain = max(1, ttl // 16)
        self._buckets: dict[int, list[Group]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, group: Group, by_key: Mapping[Key, Group]) -> None:
        """Have a group wait, if it does not already, O(1) on average; `by_key` has those that have not gone."""
        if not group.awaited:
            group.awaited = True
            self._buckets.setdefault(group.newest_tick() // self._grain, []).append(group)
            self._count += 1
            self.bound(by_key)

    def bound(self, by_key: Mapping[Key, Group]) -> None:
        """Leave out the groups that have gone, once they are more than the others; to be called as keys go."""
        if self._count > 2 * len(by_key) + SPARE:
            self._leave_out(by_key)

    def due(self, tick: int) -> Iterator[Group]:
        """The groups that may be forgotten at a tick, unless records have come for them meanwhile; each waits no more.

        O(groups that are given): there are no more buckets than a few.
        """
        while self._buckets:
            first = min(self._buckets)
            if (first + 1) * self._grain > tick - self._ttl + 1:
                return
            due = self._buckets.pop(first)
            self._count -= len(due)
            for group in due:
                group.awaited = False
                yield group

    def _leave_out(self, by_key: Mapping[Key, Group]) -> None:
        """Leave out the groups that have gone."""
        found = {
            bucket: [group for group in groups if by_key.get(group.key) is group]
            for bucket, groups in self._buckets.items()
        }
        self._buckets = {bucket: groups for bucket, groups in found.items() if groups}
        self._count = sum(map(len, self._buckets.values()))
