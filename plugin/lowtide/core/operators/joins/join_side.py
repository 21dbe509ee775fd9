"""One side of a join: the records whose partners may still come, now and at any tick since the prune time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any

from lowtide.core.operators.joins.nearness import Nearness
from lowtide.core.operators.order.memory import Kept, Scale
from lowtide.core.operators.order.order import FIRST_TICK, tick_of
from lowtide.core.operators.state.group import SPARE, Key, Touched
from lowtide.core.operators.state.keyed_state import NOTHING

HELD_BYTES = 500
"""About what a record takes beside itself: its place by key, by the tick at which it ends, and among the dues."""

SavedRecord = tuple[bytes, Any, bool]
"""Order key, record, and whether it has found a partner."""


class Held:
    """One record.

    Attributes:
        at: Its order key.
        key: Its key.
        unit: Its hash unit.
        row: The record.
        port: Its side.
        tick: Its tick.
        moment: Its time, in microseconds.
        ends: The tick at which no partner can come any more.
        last: The moment of the last partner, with its wait.
        paired: The tick at which it found its first partner; None so far.
        bytes: An estimate of its memory, made when it was put aside.
    """

    __slots__ = ("at", "bytes", "ends", "key", "last", "moment", "paired", "port", "row", "tick", "unit")

    def __init__(self, at: bytes, key: Key, unit: int, row: Any, port: int, nearness: Nearness) -> None:
        self.at = at
        self.key = key
        self.unit = unit
        self.row = row
        self.port = port
        self.tick = tick_of(at)
        self.moment = nearness.moment(port, self.tick, row)
        self.ends, self.last = nearness.ends(port, self.moment, self.tick)
        self.paired: int | None = None
        self.bytes = 0

    def __lt__(self, other: Held) -> bool:
        """Any of two entries for one record may come first: one of them counts no more."""
        return False


class Dues:
    """The records that come out alone unless they find a partner; of one tick by unit, moment, port and order key."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, bytes, Held]] = []
        self._left = 0
        """No more entries than these are of records that have left memory since the last look."""

    @property
    def first(self) -> int | None:
        """The first tick of one that is unpaired so far."""
        heap = self._heap
        while heap and heap[0][-1].paired is not None:
            heappop(heap)
        return heap[0][0] if heap else None

    def add(self, held: Held) -> None:
        """Have a record come out alone at its end."""
        heappush(self._heap, (held.ends, held.unit, held.last, held.port, held.at, held))

    def leave(self, held: Held) -> None:
        """Have a record not be due here: it leaves memory; O(1) on average."""
        held.paired = held.tick
        self._left += 1
        if 2 * self._left > len(self._heap) + SPARE:
            self._heap = [entry for entry in self._heap if entry[-1].paired is None]
            heapify(self._heap)
            self._left = 0

    def of(self, tick: int) -> list[Held]:
        """Take those of a tick, the first there is, in their order."""
        found = []
        while self.first == tick:
            found.append(heappop(self._heap)[-1])
        return found


class JoinSide:
    """The records of one port, by key; those of a key stand in order.

    Args:
        name: What it is called in snapshots.
        port: The port.
        nearness: What the join says of time.
        dues: Where unpaired records come out; None where they do not.
    """

    def __init__(self, name: str, port: int, nearness: Nearness, dues: Dues | None) -> None:
        self.name = name
        self._port = port
        self._nearness = nearness
        self._dues = dues
        self._kept: dict[Key, dict[bytes, Held]] = {}
        self._ending: dict[int, list[Held]] = {}
        """By tick what ends there."""
        self._ticks: list[int] = []
        """A heap of the ticks in `_ending`."""
        self._ended: deque[tuple[int, list[Held]]] = deque()
        """Ended records that may still be asked for, by ascending ticks."""
        self._touched = Touched()
        self._pruned = FIRST_TICK
        self._scale = Scale()
        self._count = 0
        self._bytes = 0

    @property
    def kept(self) -> Kept:
        """Return the number of records and their approximate memory."""
        return Kept("records", self._count, self._bytes)

    @property
    def comes_alone(self) -> bool:
        """True if records of this side come out by the clock, with or without a partner."""
        return self._dues is not None

    def of(self, key: Key) -> Iterable[Held]:
        """The records of a key in order; some may have ended, whose partners have all come."""
        found = self._kept.get(key)
        return () if found is None else found.values()

    def put(self, held: Held) -> None:
        """Add a record, after those already there."""
        self._kept.setdefault(held.key, {})[held.at] = held
        held.bytes = HELD_BYTES + self._scale.weigh(held.row)
        self._count += 1
        self._bytes += held.bytes
        self._touched.add([held.unit], held.tick)
        ending = self._ending.get(held.ends)
        if ending is None:
            ending = self._ending[held.ends] = []
            heappush(self._ticks, held.ends)
        ending.append(held)
        if self._dues is not None and held.paired is None:
            self._dues.add(held)

    def paired(self, held: Held, tick: int) -> None:
        """A record of a tick has come for one of these."""
        if held.paired is None:
            held.paired = tick
            self._touched.add([held.unit], tick)

    def close(self, tick: int) -> None:
        """All before a tick has come."""
        while self._ticks and self._ticks[0] < tick:
            ends = heappop(self._ticks)
            ending = self._ending.pop(ends)
            self._touched.add([held.unit for held in ending], ends)
            self._ended.append((ends, ending))

    # -- state -----------------------------------------------------------------------------------------------------

    def prune(self, tick: int) -> None:
        """Forget what has ended before a tick; O(that)."""
        self._pruned = max(self._pruned, tick)
        while self._ended and self._ended[0][0] < tick:
            for held in self._ended.popleft()[1]:
                self.forget(held)

    def forget(self, held: Held) -> None:
        """Let a record go that no one will ask for."""
        kept = self._kept[held.key]
        del kept[held.at]
        self._count -= 1
        self._bytes -= held.bytes
        if not kept:
            del self._kept[held.key]

    def changed(self, since: int) -> list[int]:
        """The hash units that may have changed at a tick or later."""
        return self._touched.since(since)

    def capture(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, list[SavedRecord]]]]:
        """The records that wait for partners below a tick, by unit and key, of units that may have changed since."""
        assert tick >= self._pruned, "the state below a pruned tick is gone"
        parts: dict[int, list[tuple[Key, list[SavedRecord]]]] = {unit: [] for unit in self.changed(since)}
        for key, kept in self._kept.items():
            part = parts.get(next(iter(kept.values())).unit)
            saved = [] if part is None else _below(kept, tick)
            if part is not None and saved:
                part.append((key, saved))
        return parts

    def look(self, key: Key, tick: int) -> Any:
        """The records of one key below a tick; `NOTHING` if there are none."""
        return _below(self._kept.get(key, {}), tick) or NOTHING

    def restore(self, parts: Mapping[int, Iterable[tuple[Key, list[SavedRecord]]]], tick: int) -> None:
        """Take over what `capture(tick)` gave for these hash units; when records end is known from them."""
        self._pruned = max(self._pruned, tick)
        for unit, keys in parts.items():
            for key, saved in keys:
                for at, row, is_paired in saved:
                    held = Held(at, key, unit, row, self._port, self._nearness)
                    held.paired = held.tick if is_paired else None
                    self.put(held)
            self._touched.add([unit], tick - 1)


def _below(kept: Mapping[bytes, Held], tick: int) -> list[SavedRecord]:
    return [
        (held.at, held.row, held.paired is not None and held.paired < tick)
        for held in kept.values()
        if held.tick < tick <= held.ends
    ]
