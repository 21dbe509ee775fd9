"""The groups of a step of which only some are in memory; the others lie packed in a cold store.

Operators go on working on a dict of groups. It has all groups with elements from the prune time on, so late records,
repairs and holds never meet the store; what is at rest may leave it, and comes back before a record of its key is
looked at. Leaving and coming back is a snapshot and restore of one key: it changes no output.

    shelf.admit(keys, units)    # before a batch: what its keys have in the store is in memory now
    shelf.prune(tick)           # what has come to rest may be written and leave

What leaves collects in a buffer, as the store takes many keys at once for much less. An entry stays in the buffer until
it has been written, deletions too: whoever found one there and took it out would find the old state in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from lowtide.core.operators.order.memory import Kept
from lowtide.core.operators.order.order import FIRST_TICK, tick_bytes
from lowtide.core.operators.state.at_rest import AtRest
from lowtide.core.operators.state.cold import ColdStore, Entry
from lowtide.core.operators.state.group import GROUP_BYTES, Group, Groups, Key
from lowtide.core.operators.state.packing import Packing

WRITE_AT = 256
"""So many entries may wait in the buffer."""
PORTIONS = 16
"""Beyond that, such a share of them is put in one commit: a larger one holds its process for longer."""
NEAR_MS = 60_000
"""Keys that are due within so much of log time are known without the store."""
SHELF_BYTES = 250
"""About what a key in memory takes for its place in the order in which keys leave."""
PAGE = 500
"""So many entries of the store are read at once where all are."""
SWEEP = 32
"""So many entries of the store are looked at in one turn for what is to be forgotten."""


class Shelved(Protocol):
    """The state of a step of which some may leave memory; see `Shelf`."""

    at_rest: AtRest[Any]

    @property
    def group_bytes(self) -> float:
        """About how many bytes one takes in memory."""

    @property
    def all_bytes(self) -> float:
        """About how many bytes all of them take."""

    def evict(self) -> None:
        """Let the one go that has been at rest for longest, of which there is one."""


class Carried(Protocol):
    """A few bytes that a step keeps of a key beside its state, and that leave memory with it."""

    def leaves(self, key: Key, unit: int) -> bytes:
        """Let go of a key that leaves memory, and return what is to be kept of it."""
        ...

    def came(self, key: Key, unit: int, kept: bytes) -> None:
        """Take back what was kept of a key that has come back to memory."""
        ...

    def gone(self, key: Key, unit: int, kept: bytes | None) -> None:
        """A key is no more, of which this was kept; None if it was in memory."""
        ...

    def restored(self, key: Key, unit: int, state: Any, tick: int) -> bytes:
        """Return what is to be kept of a key that a snapshot at a tick has with a state."""
        ...


class Shelves:
    """The shelves of one process: they share a store, its buffer, and the memory for groups at rest.

    Args:
        store: The cold store.
        limit_bytes: About how much memory the groups of all shelves may take; those not at rest stay anyway.
        write_at: So many entries may wait in the buffer; beyond that the oldest are written, a portion at a time.
        near_ms: When keys are due is in memory for so much of log time ahead, and in the store beyond.

    Attributes:
        near_ms: As given.
        held: Whether nothing may be written to the store, which is then as it was; for as long as a snapshot takes to
            pin it.
        written: The number of entries written so far, deletions too.
    """

    def __init__(self, store: ColdStore, limit_bytes: int, *, write_at: int = WRITE_AT, near_ms: int = NEAR_MS) -> None:
        self._store = store
        self.near_ms = near_ms
        self._write_at = write_at
        self._limit_bytes = limit_bytes
        self._late: dict[bytes, bytes | None] = {}
        """What the store does not have yet: values by their places, None where one is to be deleted."""
        self._shelves: list[Shelved] = []
        self._rested = 0
        self._next: list[bytes] = []
        """The places that are written next: the store has been told, so it may have read what it has to change."""
        self.held = False
        self.written = 0

    def add(self, shelf: Shelved) -> None:
        """Take one more shelf in."""
        self._shelves.append(shelf)

    @property
    def hits(self) -> int:
        """The number of keys of batches that were in memory."""
        return sum([shelf.at_rest.hits for shelf in self._shelves])

    @property
    def misses(self) -> int:
        """Of those that were not."""
        return sum([shelf.at_rest.misses for shelf in self._shelves])

    @property
    def evicted(self) -> int:
        """The number of groups that have left memory."""
        return sum([shelf.at_rest.evicted for shelf in self._shelves])

    def read_from(self, store: ColdStore) -> None:
        """Read from another store with the same content: in a copy of the process that cannot use its own."""
        self._store = store

    def stamp(self) -> int:
        """The number of a group that comes to rest: of two the smaller one has been there for longer."""
        self._rested += 1
        return self._rested

    def read(self, places: Sequence[bytes]) -> list[bytes | None]:
        """The value at each place, None where there is none; one call to the store at most."""
        late = self._late
        if not late:
            return self._store.get(places)
        there = [place for place in places if place not in late]
        found = dict(zip(there, self._store.get(there), strict=True)) if there else {}
        return [late[place] if place in late else found[place] for place in places]

    def write(self, place: bytes, value: bytes | None) -> None:
        """Put a value at a place, soon; None to delete it."""
        self._late[place] = value

    def take(self, entries: Sequence[Entry]) -> None:
        """Take over entries that nothing has been written of yet: into the store, if it can be written."""
        if self.held:
            self._late.update(entries)
            return
        if self._late:  # All of them in order: what is put behind all that is there costs least.
            entries = sorted([*self._late.items(), *entries])
            self._late.clear()
            self._next.clear()
        if entries:
            self._store.put(entries)
            self.written += len(entries)

    def flush(self) -> None:
        """Write what is in the buffer."""
        assert not self.held, "a snapshot pins the store"
        if self._late:
            self._put(list(self._late))
            self._next.clear()

    def settle(self) -> None:
        """Let the groups go that have been at rest for longest while there is too little memory, and write them."""
        over = sum([shelf.all_bytes for shelf in self._shelves]) - self._limit_bytes
        while over > 0:
            resting = [(stamp, index) for index, shelf in enumerate(self._shelves) if (stamp := shelf.at_rest.oldest)]
            if not resting:
                break
            shelf = self._shelves[min(resting)[1]]
            over -= shelf.group_bytes
            shelf.evict()
        if self.held:
            return
        if self._next:
            self._put(self._next)
            self._next = []
        if (beyond := len(self._late) - self._write_at) >= 0:
            self._next = list(islice(self._late, max(beyond, self._write_at // PORTIONS, 1)))
            self._store.soon(self._next)

    def _put(self, places: Sequence[bytes]) -> None:
        """Write what the buffer has for some places."""
        late = self._late
        self._store.put([(place, late[place]) for place in sorted(places)])
        self.written += len(places)
        for place in places:
            del late[place]

    def walk(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All places with their values from `first` on and below `end`, as the buffer has them."""
        late = self._late
        for place, value in self.stored(first, end):
            if place not in late:
                yield place, value
        for place, waiting in list(late.items()):
            if waiting is not None and first <= place < end:
                yield place, waiting

    def stored(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The same of the store alone."""
        while page := self._store.range(first, end, PAGE):
            yield from page
            first = page[-1][0] + b"\0"

    def page(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The first ones of the store, up to `limit`."""
        return self._store.range(first, end, limit)

    def waits(self, place: bytes) -> bool:
        """True if the buffer has an entry for a place."""
        return place in self._late


class Sweep:
    """Goes through the entries of a shelf in the store again and again, some at a time, for what is to be forgotten.

    Args:
        shelves: Those of its process.
        packing: The packing of the shelf's entries.
    """

    def __init__(self, shelves: Shelves, packing: Packing) -> None:
        self._shelves = shelves
        self._packing = packing
        self._left: list[tuple[bytes, bytes]] = []
        """The ranges of places that are still to be looked at."""
        self._began = FIRST_TICK
        """The prune time at which that began."""

    def due(self, pruned: int, lasts: int, units: Iterable[int]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the next entries, `SWEEP` at most, without those that the buffer has; all in a sixteenth of their time.

        Args:
            pruned: The prune time.
            lasts: How many ticks an entry lasts.
            units: The hash units of which the store has had something.
        """
        if not self._left:
            if pruned - self._began < max(1, lasts // 16):
                return
            self._began = pruned
            self._left = [self._packing.bounds(unit) for unit in sorted(units, reverse=True)]
            if not self._left:
                return
        first, end = self._left.pop()
        page = self._shelves.page(first, end, SWEEP)
        if len(page) == SWEEP:
            self._left.append((page[-1][0] + b"\0", end))
        for place, value in page:
            if not self._shelves.waits(place):
                yield place, value


class Shelf(Groups):
    """The groups of a step, see `Groups`.

    Args:
        shelves: Those of its process.
        packing: The packing of its groups.
        ttl: See `Groups`.
        fold: See `Groups`.
        is_none: See `Groups`.
        state: What to save of a group's first `count` elements at a tick; `nothing` if there is nothing.
        fill: Its inverse, for a new group, at a tick.
        nothing: What `state` gives for nothing.

    Attributes:
        at_rest: Which groups may leave, or have come back.
        carried: What else leaves memory with a group; None for nothing.
    """

    __slots__ = (
        "_fill",
        "_nothing",
        "_packing",
        "_shelves",
        "_state",
        "_sweep",
        "_ttl",
        "_units",
        "at_rest",
        "carried",
    )

    def __init__(
        self,
        shelves: Shelves,
        packing: Packing,
        ttl: int | None,
        fold: Callable[[Group, int], None],
        is_none: Callable[[Group, int], bool],
        *,
        state: Callable[[Group, int, int], Any],
        fill: Callable[[Group, Any, int], None],
        nothing: object,
    ) -> None:
        super().__init__(ttl, fold, is_none)
        self._shelves = shelves
        self._packing = packing
        self._ttl = ttl
        self._state = state
        self._fill = fill
        self._nothing = nothing
        self._units: set[int] = set()
        """The hash units of which the store has had something."""
        self._sweep = Sweep(shelves, packing)
        self.at_rest = AtRest[Key](shelves.stamp)
        self.carried: Carried | None = None
        shelves.add(self)

    # -- in and out of memory --------------------------------------------------------------------------------------

    def admit(self, keys: Sequence[Key], units: Sequence[int]) -> None:
        """Bring what the store has of these keys into memory; n keys and their hash units."""
        by_key = self.by_key
        absent = {key: unit for key, unit in zip(keys, units, strict=True) if key not in by_key}
        self.at_rest.hits += len(keys) - len(absent)
        if not absent:
            return
        self.at_rest.misses += len(absent)
        place = self._packing.place
        values = self._shelves.read([place(unit, key) for key, unit in absent.items()])
        for (key, unit), value in zip(absent.items(), values, strict=True):
            if value is not None:
                by_key[key] = self._loaded(key, unit, value)
                self.at_rest.came(key)
                if self.carried is not None:
                    self.carried.came(key, unit, self._packing.carried(value))

    def touch(self, last: int, groups: list[Group]) -> None:
        """See `Groups`; such a group is not at rest, and not clean any more."""
        super().touch(last, groups)
        changes = self.at_rest.changes
        for group in groups:
            changes(group.key)

    def rest(self, group: Group) -> None:
        """See `Groups`; it may leave memory from now on."""
        key = group.key
        if self.by_key.get(key) is not group:
            return  # It has left already.
        super().rest(group)
        if key in self.by_key:
            self.at_rest.rests(key)
        else:
            if self.at_rest.gone(key):
                self._shelves.write(self._packing.place(group.unit, key), None)
            self._tell_gone(key, group.unit)

    @property
    def group_bytes(self) -> float:
        """About how many bytes a group in memory takes."""
        return GROUP_BYTES + SHELF_BYTES + self._scale.mean

    @property
    def all_bytes(self) -> float:
        """About how many bytes all of them take."""
        return self.group_bytes * len(self.by_key)

    def evict(self) -> None:
        """Let the group go that has been at rest for longest, of which there is one."""
        key, clean = self.at_rest.leave()
        group = self.by_key[key]
        assert not group.elements or group.elements[-1][0] < tick_bytes(self.pruned), "only groups at rest leave"
        if clean:
            if self.carried is not None:
                self.carried.leaves(key, group.unit)
        else:
            state = self._state(group, len(group.elements), self.pruned)
            if state is not self._nothing:
                self.put(group.unit, key, state)
            else:
                self._tell_gone(key, group.unit)
                if clean is not None:
                    self._shelves.write(self._packing.place(group.unit, key), None)
        del self.by_key[key]
        if self._expiry is not None:
            self._expiry.bound(self.by_key)

    def prune(self, tick: int) -> None:
        """See `Groups`; then too many groups at rest leave."""
        super().prune(tick)
        self._shelves.settle()
        if self._ttl is not None:
            self._forget(self._ttl)

    @property
    def kept(self) -> Kept:
        """See `Groups`: what is in memory."""
        return Kept("keys", len(self.by_key), round(self.group_bytes * len(self)))

    # -- all there is ----------------------------------------------------------------------------------------------

    def away(self, unit: int, tick: int) -> list[tuple[Key, Any]]:
        """The keys of a hash unit that are not in memory, each with what is to be saved of it at a tick."""
        found = []
        for _, value in self._shelves.walk(*self._packing.bounds(unit)):
            key, state = self._packing.unpack(value)
            if key not in self.by_key:
                if self._ttl is not None:
                    state = self.now(key, unit, state, tick)
                if state is not self._nothing:
                    found.append((key, state))
        return found

    def has_away(self, unit: int) -> bool:
        """Return whether a hash unit may have keys that are not in memory."""
        return next(self._shelves.walk(*self._packing.bounds(unit)), None) is not None

    def look(self, key: Key, tick: int) -> Any:
        """The state at a tick of a key that is not in memory; `nothing` if there is nothing."""
        unit = self._packing.unit_of(key)
        (value,) = self._shelves.read([self._packing.place(unit, key)])
        if value is None:
            return self._nothing
        return self.now(key, unit, self._unpacked(key, value), tick)

    def look_at(self, unit: int, keys: Sequence[Key], tick: int) -> list[tuple[Key, Any]]:
        """The states at a tick of keys of a hash unit that are not in memory; `nothing` where there is nothing."""
        found = []
        for start in range(0, len(keys), PAGE):
            page = keys[start : start + PAGE]
            values = self._shelves.read([self._packing.place(unit, key) for key in page])
            for key, value in zip(page, values, strict=True):
                state = self._nothing if value is None else self._unpacked(key, value)
                found.append((key, state if state is self._nothing else self.now(key, unit, state, tick)))
        return found

    def now(self, key: Key, unit: int, state: Any, tick: int) -> Any:
        """The state at a tick of a key that was saved with a state; `nothing` if it is too old by then."""
        group = Group(key, unit, None)
        self._fill(group, state, tick)
        return self._state(group, len(group.elements), tick)

    def restore(self, unit: int, keys: Iterable[tuple[Key, Any]], tick: int) -> None:
        """Have what a snapshot at a tick has of a hash unit: in the store, as it may be more than fits memory."""
        now, nothing = self.now, self._nothing
        # Without a time to live it is as it was saved.
        current = (
            keys
            if self._ttl is None
            else [(key, state) for key, saved in keys if (state := now(key, unit, saved, tick)) is not nothing]
        )
        self._units.add(unit)
        packing, carried = self._packing, self.carried
        if carried is None:
            self._shelves.take(packing.packed(unit, current))
            return
        entries: list[Entry] = [
            (packing.place(unit, key), packing.pack(key, state, carried.restored(key, unit, state, tick)))
            for key, state in current
        ]
        entries.sort()
        self._shelves.take(entries)

    @property
    def packing(self) -> Packing:
        """The packing of its groups."""
        return self._packing

    def take(self, unit: int, entries: Sequence[Entry]) -> None:
        """Have the store have these entries of a hash unit, ascending."""
        self._units.add(unit)
        self._shelves.take(entries)

    def put(self, unit: int, key: Key, state: Any) -> None:
        """Have the store have what is saved of a key that leaves memory."""
        self._units.add(unit)
        kept = b"" if self.carried is None else self.carried.leaves(key, unit)
        self._shelves.write(self._packing.place(unit, key), self._packing.pack(key, state, kept))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _unpacked(self, key: Key, value: bytes) -> Any:
        its_key, state = self._packing.unpack(value)
        if its_key != key:
            raise self._packing.damaged("another key lies in a key's place")
        return state

    def _loaded(self, key: Key, unit: int, value: bytes) -> Group:
        group = Group(key, unit, None)
        self._fill(group, self._unpacked(key, value), self.pruned)
        return group

    def _tell_gone(self, key: Key, unit: int) -> None:
        """A key in memory is no more."""
        if self.carried is not None:
            self.carried.gone(key, unit, None)

    def _forget(self, ttl: int) -> None:
        """Delete from the store what is too old: `SWEEP` entries at a time, once in a sixteenth of `ttl`."""
        for place, value in self._sweep.due(self.pruned, ttl, self._units):
            key, state = self._packing.unpack(value)
            if key not in self.by_key and self.now(key, 0, state, self.pruned) is self._nothing:
                self._shelves.write(place, None)
                if self.carried is not None:
                    self.carried.gone(key, self._packing.unit_at(place), self._packing.carried(value))
