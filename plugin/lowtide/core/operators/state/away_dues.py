"""The ticks at which keys are due that are not in memory: the near ones are known here, all others in the cold store.

In the store there is an entry for each key, under its hash unit by the tick at which it is due. As min time goes on,
those of the next ticks are read at once. So a key whose moment is far away costs no memory.

    dues.left(key, unit, tick)    # with its state it leaves memory
    dues.before(min_time)         # who has to be in memory before that
    dues.came(key, tick)          # it is back

The entry of a key that comes back stands while it is in memory: who is only looked at leaves again as it came.
"""

from __future__ import annotations

from heapq import heappop, heappush

from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.packing import DuePacking
from lowtide.core.operators.state.shelf import Shelves

LAST_TICK = (1 << 63) - 1
"""The highest tick there can be."""
NEAR_BYTES = 250
"""About what a key takes that is due soon, or whose entry stands while it is in memory."""


class AwayDues:
    """The keys of a step that are not in memory and are due, each at one tick.

    Args:
        shelves: Those of its process.
        packing: The packing of the entries.
        slack_ms: How long a tick is.
    """

    def __init__(self, shelves: Shelves, packing: DuePacking, slack_ms: int) -> None:
        self._shelves = shelves
        self._packing = packing
        self._near_ticks = max(1, shelves.near_ms // slack_ms)
        self._until = FIRST_TICK
        """Who is due before this tick lies in `_near`, who is due later has an entry in the store."""
        self._near: dict[int, dict[Key, int]] = {}
        """By tick the keys with their hash units."""
        self._ticks: list[int] = []
        """A heap of the ticks in `_near`."""
        self._standing: dict[Key, int] = {}
        """By key in memory that has an entry in the store all the same: its tick."""
        self._far = 0
        """The number of keys that are not in memory and have an entry in the store."""
        self._far_first = LAST_TICK
        """None of these is due before this tick. It never sinks below what was due before: others rely on that."""
        self._units: set[int] = set()
        """The hash units of which the store has had an entry."""

    def __len__(self) -> int:
        return self._far + sum(map(len, self._near.values()))

    @property
    def bytes(self) -> int:
        """About how much memory they take."""
        return NEAR_BYTES * (len(self) - self._far + len(self._standing))

    @property
    def first(self) -> int | None:
        """No key is due before this tick; None if none is due."""
        ticks, near = self._ticks, self._near
        while ticks:
            if near[ticks[0]]:
                return ticks[0]
            del near[heappop(ticks)]
        return self._far_first if self._far else None

    def left(self, key: Key, unit: int, tick: int | None) -> None:
        """A key leaves memory that is due at a tick; None if it is not due."""
        stood = self._standing.pop(key, None)
        if stood is not None and stood != tick:
            self._shelves.write(self._packing.due(unit, stood, key), None)
        if tick is None:
            return
        if tick < self._until:
            self._put_near(key, unit, tick)
            return
        self._far_first = min(self._far_first, tick) if self._far else tick
        self._far += 1
        if stood != tick:
            self._units.add(unit)
            self._shelves.write(self._packing.due(unit, tick, key), self._packing.pack(key, None))

    def came(self, key: Key, tick: int | None) -> bool:
        """A key has come back to memory, which was due at this tick; return whether it still is."""
        if tick is None:
            return False
        if tick < self._until:
            return self._near.get(tick, {}).pop(key, None) is not None
        self._far -= 1
        self._standing[key] = tick
        return True

    def gone(self, key: Key, unit: int) -> None:
        """A key that is in memory is no more."""
        stood = self._standing.pop(key, None)
        if stood is not None:
            self._shelves.write(self._packing.due(unit, stood, key), None)

    def come_near(self, tick: int) -> None:
        """Know all that is due before a tick without the store."""
        if tick > self._until:
            self._come_near(min(tick + self._near_ticks, LAST_TICK))

    def before(self, tick: int) -> list[tuple[Key, int]]:
        """The keys that are due before a tick, each with its hash unit, in no order."""
        self.come_near(tick)
        near = self._near
        return [each for due in self._ticks if due < tick for each in near[due].items()]

    def check(self) -> None:
        """Invariants, for tests."""
        packing, found = self._packing, dict[Key, int]()
        for unit in sorted(self._units):
            for place, value in self._shelves.walk(*packing.bounds(unit)):
                key, _ = packing.unpack(value)
                assert key not in found, "a key has one entry"
                found[key] = packing.tick_at(place)
                assert found[key] >= self._until, "what is due soon is in memory"
        assert len(found) == self._far + len(self._standing)
        assert self._standing.items() <= found.items()
        near = [(key, tick) for tick, keys in self._near.items() for key in keys]
        assert not found.keys() & dict(near).keys(), "a key is due once"
        assert len(near) == len(dict(near)), "a key is due once"
        assert all(tick < self._until for _, tick in near)
        assert not self._far or self._far_first <= min(tick for key, tick in found.items() if key not in self._standing)

    def _come_near(self, until: int) -> None:
        if self._far or self._standing:
            # Read before anything is deleted: a read goes through what waits to be written.
            packing, walk = self._packing, self._shelves.walk
            found = [
                (unit, list(walk(*packing.bounds_between(unit, self._until, until)))) for unit in sorted(self._units)
            ]
            for unit, entries in found:
                for place, value in entries:
                    key, _ = packing.unpack(value)
                    self._shelves.write(place, None)
                    if self._standing.pop(key, None) is None:
                        self._far -= 1
                        self._put_near(key, unit, packing.tick_at(place))
        self._until = until
        self._far_first = max(self._far_first, until)

    def _put_near(self, key: Key, unit: int, tick: int) -> None:
        keys = self._near.get(tick)
        if keys is None:
            keys = self._near[tick] = {}
            heappush(self._ticks, tick)
        keys[key] = unit
