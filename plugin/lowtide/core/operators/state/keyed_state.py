"""The state of a step by key: pruned and forgotten, captured for a snapshot, looked up, and restored.

A step says what it keeps of one key (`_fold`, `_state`, `_restore`); `ValueState` is for steps that keep one value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from lowtide.core.operators.order.memory import Kept
from lowtide.core.operators.order.order import FIRST_TICK, tick_bytes, tick_of
from lowtide.core.operators.state.changed_keys import ChangedKeys
from lowtide.core.operators.state.cold import Entry
from lowtide.core.operators.state.group import Group, Groups, Key, Touched
from lowtide.core.operators.state.packing import Packing
from lowtide.core.operators.state.shelf import Shelf, Shelves

NOTHING = object()
"""The state of a key that has nothing to save: not a value, as None may be a state."""


class KeyedState(ABC):
    """The keys of one worker's hash units and what a step keeps of them.

    Args:
        ttl: After how many ticks without a record a key has no state any more; None for never.
    """

    def __init__(self, ttl: int | None) -> None:
        self._ttl = ttl
        self._kept = Groups(ttl, self._fold, self._is_none)
        self._groups = self._kept.by_key
        self._touched = Touched()
        self._changed: ChangedKeys | None = None
        """None if nobody asks which keys have changed."""
        self._shelf: Shelf | None = None
        """Where not all groups are in memory: `_kept`."""

    def shelve(self, shelves: Shelves, packing: Packing) -> None:
        """Have groups at rest leave memory; before it has any."""
        assert not self._groups, "a step is shelved before it has state"
        self._kept = self._shelf = Shelf(
            shelves,
            packing,
            self._ttl,
            self._fold,
            self._is_none,
            state=self._state,
            fill=self._restore,
            nothing=NOTHING,
        )
        self._groups = self._kept.by_key

    @abstractmethod
    def _fold(self, group: Group, count: int) -> None:
        """Forget the first `count` elements, which nothing can come before or between any more."""

    @abstractmethod
    def _state(self, group: Group, count: int, tick: int) -> Any:
        """Return what to save at a tick of the first `count` elements, all below it, and those forgotten.

        `NOTHING` if a record of this tick or a later one finds what the key's first record did.
        """

    @abstractmethod
    def _restore(self, group: Group, state: Any, tick: int) -> None:
        """Fill a new group: the inverse of `_state`."""

    def prune(self, tick: int) -> None:
        """Forget what only records below `tick` could need; O(groups touched since), each visited once per record.

        Keys go whose state is none: with their last record, or where a step forgets, once they are old enough.

        Args:
            tick: The global min time, or the T of a snapshot while it is being written (R14).
        """
        self._kept.prune(tick)

    @property
    def kept(self) -> Kept:
        """The number of keys with a state, and about how many bytes they take."""
        return self._kept.kept

    def changed(self, since: int) -> list[int]:
        """The hash units that may have changed at a tick or later."""
        return self._touched.since(since)

    def capture(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, Any]]]:
        """Return the state below a tick, by hash unit: each key with what is to be saved of it; O(keys).

        Args:
            tick: At or above every tick that has been pruned at.
            since: Hash units are left out that have not changed at this tick or later.

        Returns:
            All units that have changed, those without state too.
        """
        parts = self.capture_here(tick, since)
        for unit, keys in parts.items():
            keys.extend(self.away(unit, tick))
        return parts

    def capture_here(
        self, tick: int, since: int = FIRST_TICK, but: Container[int] = ()
    ) -> dict[int, list[tuple[Key, Any]]]:
        """Return what `capture` does, without the keys that are not in memory, and without some hash units."""
        assert tick >= self._kept.pruned, "the state below a pruned tick is gone"
        parts: dict[int, list[tuple[Key, Any]]] = {unit: [] for unit in self.changed(since) if unit not in but}
        if not parts:
            return parts
        for key, group in self._groups.items():
            if group.unit in parts:
                state = self._below(group, tick)
                if state is not NOTHING:
                    parts[group.unit].append((key, state))
        return parts

    def away(self, unit: int, tick: int) -> list[tuple[Key, Any]]:
        """Return the state below a tick of a hash unit's keys that are not in memory: the rest of `capture`."""
        return [] if self._shelf is None else self._shelf.away(unit, tick)

    def has_away(self, unit: int) -> bool:
        """Return whether keys of a hash unit may not be in memory."""
        return self._shelf is not None and self._shelf.has_away(unit)

    # -- what has changed ------------------------------------------------------------------------------------------

    def note_changes(self) -> None:
        """Note from now on which keys change; to be called once, after `shelve`."""
        self._kept.changed = self._changed = ChangedKeys()

    def cut_changes(self, tick: int) -> None:
        """See `ChangedKeys.cut`."""
        if self._changed is not None:
            self._changed.cut(tick)

    def forget_changes(self, tick: int) -> None:
        """See `ChangedKeys.forget`."""
        if self._changed is not None:
            self._changed.forget(tick)

    def changed_keys(self, since: int) -> dict[int, set[Key]] | None:
        """Return by hash unit the keys that may have changed at a tick or later, no others have; None if not known.

        Keys that are forgotten since are not among them for that alone.
        """
        found = None if self._changed is None else self._changed.since(since)
        if found is not None:
            for group in self._kept.recent(since):
                found.setdefault(group.unit, set()).add(group.key)
        return found

    def capture_keys(self, unit: int, keys: Collection[Key], tick: int) -> list[tuple[Key, Any]]:
        """Return keys of a hash unit, each with what is to be saved of it at a tick, or `NOTHING`."""
        assert tick >= self._kept.pruned, "the state below a pruned tick is gone"
        groups, shelf = self._groups, self._shelf
        found = [(key, self._below(groups[key], tick)) for key in keys if key in groups]
        absent = [key for key in keys if key not in groups]
        return found + ([(key, NOTHING) for key in absent] if shelf is None else shelf.look_at(unit, absent, tick))

    def look(self, key: Key, tick: int) -> Any:
        """Return the state of one key below a tick, at or above which nothing was pruned; `NOTHING` if it has none."""
        group = self._groups.get(key)
        if group is None:
            return NOTHING if self._shelf is None else self._shelf.look(key, tick)
        return self._below(group, tick)

    def walk(self, unit: int | None, tick: int) -> Iterator[tuple[Key, Any]]:
        """Go through the keys with a state below a tick, of one hash unit or of all; nothing may change meanwhile."""
        assert tick >= self._kept.pruned, "the state below a pruned tick is gone"
        for key, group in self._groups.items():
            if unit in (None, group.unit):
                state = self._below(group, tick)
                if state is not NOTHING:
                    yield key, state
        for each in self.changed(FIRST_TICK) if unit is None else [unit]:
            yield from self.away(each, tick)

    def restore(self, parts: Mapping[int, Iterable[tuple[Key, Any]]], tick: int) -> None:
        """Take over what `capture(tick)` gave for these hash units: as of `tick`, they have changed before it."""
        self._kept.prune(tick)
        for unit, keys in parts.items():
            self._touched.add([unit], tick - 1)
            if self._shelf is not None:
                self._shelf.restore(unit, keys, tick)
                continue
            for key, state in keys:
                group = self._groups[key] = Group(key, unit, None)
                self._restore(group, state, tick)
                self._kept.rest(group)

    @property
    def packing(self) -> Packing | None:
        """The packing of a snapshot's hash units on disk, if it follows from their parts alone.

        Not so where keys are forgotten, or something is kept beside their states.
        """
        shelf = self._shelf
        return None if shelf is None or shelf.carried is not None or self._ttl is not None else shelf.packing

    def restore_packed(self, unit: int, entries: list[Entry], tick: int) -> None:
        """Do as `restore` would with a hash unit of which `packing` has made these entries, ascending."""
        assert self._shelf is not None
        self._kept.prune(tick)
        self._touched.add([unit], tick - 1)
        self._shelf.take(unit, entries)

    def _below(self, group: Group, tick: int) -> Any:
        return self._state(group, bisect_left(group.elements, (tick_bytes(tick),)), tick)

    def _is_none(self, group: Group, tick: int) -> bool:
        return self._state(group, len(group.elements), tick) is NOTHING


class ValueState(KeyedState):
    """A state that is one value per key: the one after its newest element.

    A step that forgets saves the tick of the key's last record beside it.
    """

    VALUE: ClassVar[int] = 1
    """The place of the value in an element."""

    @abstractmethod
    def _is_initial(self, value: Any) -> bool:
        """Return whether a key with this value is as one that has none."""

    def _fold(self, group: Group, count: int) -> None:
        if count:
            element = group.elements[count - 1]
            group.base = element[self.VALUE]
            if self._ttl is not None:
                group.touched = tick_of(element[0])
            del group.elements[:count]

    def _state(self, group: Group, count: int, tick: int) -> Any:
        value = group.elements[count - 1][self.VALUE] if count else group.base
        if self._ttl is None:
            return NOTHING if self._is_initial(value) else value
        touched = tick_of(group.elements[count - 1][0]) if count else group.touched
        return NOTHING if tick - touched >= self._ttl or self._is_initial(value) else (value, touched)

    def _restore(self, group: Group, state: Any, tick: int) -> None:
        if self._ttl is None:
            group.base = state
            return
        group.base, touched = state
        group.touched = tick - 1 if touched is None else touched
        if touched is None:
            # A step that did not forget did not note when a key was touched: it counts from the snapshot on. A part
            # that says nothing of that would count from the start again for a life that begins with it later.
            self._touched.add([group.unit], tick)
