"""The keys of a step that have changed since a commit: a snapshot that has the others from there writes no more.

    changed.add(group)           # as a group's elements come below the prune time, so a late record costs nothing more
    changed.cut(T)               # a snapshot is taken: what changes from T on is noted apart
    changed.since(T)             # of the commit that a later snapshot rests on
    changed.forget(T)            # it is committed; until then nothing is forgotten, so a snapshot may be given up

A key may be said to have changed that has not, never the other way round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.state.group import Group, Key

LEAST_KEYS = 1 << 16
"""So many keys are remembered of a step however few it has: some 10 MB."""
SHARE = 4
"""Of more than one key in so many, none: then parts are written whole."""
LEAST_LOOK = 1_000
"""The keys are counted once in so many that are added, at least."""
MOST_SPANS = 8
"""Snapshots that may still be committed are told apart up to so many; of more the oldest ones count as one."""

Keys = defaultdict[int, set[Key]]
"""By hash unit."""


class _Span:
    """The keys that changed from one snapshot's T on, up to that of the next one.

    Attributes:
        first: That T.
        keys: None if they were too many.
    """

    __slots__ = ("first", "keys")

    def __init__(self, first: int) -> None:
        self.first = first
        self.keys: Keys | None = defaultdict(set)


class ChangedKeys:
    """The keys of a step that have changed, and from which snapshot on; bounded, whatever comes (R8)."""

    __slots__ = ("_added", "_spans")

    def __init__(self) -> None:
        self._spans = [_Span(FIRST_TICK)]
        """Ascending, never empty: the last one is added to."""
        self._added = 0
        """How many were added since they were counted."""

    def __len__(self) -> int:
        """The number of keys that are remembered; those that changed in several spans count in each."""
        return sum([len(keys) for span in self._spans if span.keys is not None for keys in span.keys.values()])

    def add(self, group: Group) -> None:
        """A group has changed: it had elements that nothing can come before or between any more."""
        keys = self._spans[-1].keys
        if keys is not None:
            keys[group.unit].add(group.key)
            self._added += 1

    def bound(self, keys: int) -> None:
        """Remember nothing more of what changed so far if that is too much for a step with so many keys."""
        most = max(keys // SHARE, LEAST_KEYS)
        if self._added > max(LEAST_LOOK, most // SHARE):
            self._added = 0
            if len(self) > most:
                for span in self._spans:
                    span.keys = None

    def cut(self, tick: int) -> None:
        """A snapshot is taken at a tick, at or above every prune time so far: it may be what later ones rest on."""
        newest = self._spans[-1]
        if newest.keys is not None and not newest.keys:
            newest.first = tick
            return
        self._spans.append(_Span(tick))
        if len(self._spans) > MOST_SPANS:
            first, second = self._spans[:2]
            if first.keys is None or second.keys is None:
                first.keys = None
            else:
                for unit, keys in second.keys.items():
                    first.keys[unit] |= keys
            del self._spans[1]

    def since(self, tick: int) -> dict[int, set[Key]] | None:
        """The keys by hash unit that were added and may have changed at a tick or later; None if they were too many."""
        found: dict[int, set[Key]] = {}
        for span in self._after(tick):
            if span.keys is None:
                return None
            _add(found, span.keys)
        return found

    def forget(self, tick: int) -> None:
        """A snapshot at a tick is committed: nobody asks for what changed before any more."""
        self._spans = self._after(tick)

    def _after(self, tick: int) -> list[_Span]:
        """The spans that go on at a tick or later."""
        ends = [span.first for span in self._spans[1:]]
        return [span for span, end in zip(self._spans, ends, strict=False) if end > tick] + self._spans[-1:]


def _add(found: dict[int, set[Key]], more: Mapping[int, set[Key]]) -> None:
    for unit, keys in more.items():
        found.setdefault(unit, set()).update(keys)
