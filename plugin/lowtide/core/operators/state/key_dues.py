"""Keys and the moment at which each is due: one a key, however often it is put off."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace

from lowtide.core.operators.order.memory import Kept, Scale
from lowtide.core.operators.state.group import SPARE, Key

DUE_BYTES = 500
"""About what a key that is due takes beside itself: its entry, its moment and its bytes, its places in two dicts."""

Entry = tuple[int, int, int, bytes, Key]
"""Tick, hash unit, moment, canonical key, key."""


class KeyDues:
    """The keys that are due, by tick; of one tick by hash unit, moment and canonical key.

    One entry stands for each key, no later than the key is due: a key that is put off keeps its entry, which is put
    back when it comes up. Entries that count no more are left where they are: of keys that are due no more, or earlier
    than the entry that stood for them. There are never more of them than of keys, and `SPARE`.
    """

    def __init__(self) -> None:
        self._due: dict[Key, tuple[int, int]] = {}
        """By key its tick and moment."""
        self._entries: dict[Key, Entry] = {}
        """By key the entry that stands for it, also of keys that are due no more."""
        self._heap: list[Entry] = []
        self._scale = Scale()

    def __len__(self) -> int:
        return len(self._due)

    @property
    def kept(self) -> Kept:
        """The number of keys that are due, and about how many bytes they take, with entries that no longer count."""
        return Kept("timers", len(self._due), round((DUE_BYTES + self._scale.mean) * len(self._heap)))

    @property
    def first(self) -> int | None:
        """The smallest tick at which a key is due; None if none is."""
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            key = entry[4]
            if entries.get(key) is not entry:
                heappop(heap)
                continue
            due = self._due.get(key)
            if due is None:
                del entries[key]
                heappop(heap)
            elif due == (entry[0], entry[2]):
                return entry[0]
            else:
                entries[key] = later = (due[0], entry[1], due[1], entry[3], key)
                heapreplace(heap, later)
        return None

    @property
    def head(self) -> Entry:
        """The entry of the first key, of which there is one at `first`."""
        return self._heap[0]

    def before(self, tick: int) -> list[tuple[Key, int]]:
        """The keys that are due before a tick, each with its hash unit, in no order; O(entries before the tick)."""
        heap, due, entries = self._heap, self._due, self._entries
        found, places = list[tuple[Key, int]](), [0]
        while places:
            place = places.pop()
            if place < len(heap) and heap[place][0] < tick:
                places += (2 * place + 1, 2 * place + 2)
                entry = heap[place]
                key = entry[4]
                if entries.get(key) is entry and key in due and due[key][0] < tick:
                    found.append((key, entry[1]))
        return found

    def put(self, key: Key, unit: int, tick: int, moment: int, key_bytes: Callable[[Key], bytes]) -> None:
        """Have a key be due at a tick, and at no other.

        Args:
            key: The key.
            unit: Its hash unit.
            tick: The tick.
            moment: The moment that it is due for.
            key_bytes: Gives its canonical bytes; asked only where it needs an entry.
        """
        self._due[key] = tick, moment
        entry = self._entries.get(key)
        if entry is not None and (entry[0], entry[2]) <= (tick, moment):
            return
        made = entry[3] if entry is not None else key_bytes(key)
        if entry is None:
            self._scale.weigh(key)
        entry = self._entries[key] = (tick, unit, moment, made, key)
        heappush(self._heap, entry)
        self._bound()

    def drop(self, key: Key) -> None:
        """Have a key be due no more, if it is."""
        if self._due.pop(key, None) is not None:
            self._bound()

    def pop(self) -> Entry:
        """Take the first key, of which there is one at `first`, and return its entry."""
        entry = heappop(self._heap)
        del self._due[entry[4]], self._entries[entry[4]]
        self._bound()
        return entry

    def check(self) -> None:
        """Invariants, for tests."""
        assert len(self._heap) <= 2 * len(self._due) + SPARE, "what counts no more is bounded by what does"
        assert len(self._entries) <= len(self._heap)
        for key, due in self._due.items():
            tick, _, moment, _, _ = self._entries[key]
            assert (tick, moment) <= due, "an entry is never later than its key"

    def _bound(self) -> None:
        """Leave out the entries that count no more, once they are more than those that do; O(1) for each on average."""
        if len(self._heap) > 2 * len(self._due) + SPARE:
            self._entries = {key: entry for key, entry in self._entries.items() if key in self._due}
            self._heap = list(self._entries.values())
            heapify(self._heap)
