"""One side of a join of which only some records are in memory; the others lie packed in a cold store, key by key.

A key is *at rest* once none of its records has come, or has found its first partner, at the prune time or later: it may
leave then, with all of them. It comes back before a record of either side with its key is looked at, or as one of its
own comes out alone: when the first of them does is known without it (`AwayDues`). When the records of a hash unit end
is known too; what has ended in the store is left out where it is read, and deleted in turn.

Keys that meet nothing stay in memory: their records wait for no one, and soon go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from typing_extensions import override

from lowtide.core.operators.joins.join_side import HELD_BYTES, Dues, Held, JoinSide, SavedRecord
from lowtide.core.operators.joins.nearness import Nearness
from lowtide.core.operators.order.keys import meets_nothing
from lowtide.core.operators.order.order import FIRST_TICK, tick_of
from lowtide.core.operators.state.at_rest import AtRest
from lowtide.core.operators.state.away_dues import AwayDues
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.core.operators.state.packing import Packing
from lowtide.core.operators.state.shelf import SHELF_BYTES, Shelves, Sweep


class ColdSide(JoinSide):
    """The records of one port; see `JoinSide`.

    Args:
        name: What it is called in snapshots.
        port: The port.
        nearness: What the join says of time.
        dues: Where unpaired records in memory come out; None where they do not.
        shelves: Those of its process.
        packing: The packing of its keys.

    Attributes:
        port: The port.
        at_rest: Which keys may leave, or have come back.
    """

    def __init__(
        self, name: str, port: int, nearness: Nearness, dues: Dues | None, shelves: Shelves, packing: Packing
    ) -> None:
        super().__init__(name, port, nearness, dues)
        self.port = port
        self._away = AwayDues(shelves, packing.dues(), nearness.slack_us // 1_000)
        self._over = FIRST_TICK
        """What was due before this tick has come out."""
        self._shelves = shelves
        self._packing = packing
        self._changed: dict[Key, int] = {}
        """By key in memory the tick of its last change."""
        self._recent: deque[tuple[int, Key]] = deque()
        """Changes since the prune time; ticks ascend."""
        self._here: dict[int, dict[bytes, Held]] = {}
        """By the tick at which they end the records in memory."""
        self._here_ticks: list[int] = []
        """A heap of the ticks in `_here`."""
        self._ends: dict[int, set[int]] = {}
        """By tick the hash units of which records end there, in memory or not."""
        self._longest = 0
        """The most ticks from a record's own to its end."""
        self._units: set[int] = set()
        """The hash units of which the store has had something."""
        self._sweep = Sweep(shelves, packing)
        self.at_rest = AtRest[Key](shelves.stamp)
        shelves.add(self)

    @property
    def pruned(self) -> int:
        """The prune time."""
        return self._pruned

    # -- in and out of memory --------------------------------------------------------------------------------------

    def admit(self, keys: Sequence[Key], units: Sequence[int]) -> None:
        """Bring what the store has of these keys into memory; n keys and their hash units."""
        kept = self._kept
        absent = {key: unit for key, unit in zip(keys, units, strict=True) if key not in kept}
        self.at_rest.hits += len(keys) - len(absent)
        if not absent:
            return
        self.at_rest.misses += len(absent)
        places = [self._packing.place(unit, key) for key, unit in absent.items()]
        values = self._shelves.read(places)
        for (key, unit), place, value in zip(absent.items(), places, values, strict=True):
            if value is None:
                continue
            found = [held for held in self._unpacked(unit, value, key) if held.ends >= self._pruned]
            if not found:
                self._shelves.write(place, None)
                continue
            for held in found:
                self._place(held)
                self._wait(held)
            self._away.came(key, self._due(found))
            self._changed[key] = FIRST_TICK
            self.at_rest.came(key)

    @property
    def first_away(self) -> int | None:
        """No record that is not in memory comes out alone before this tick; None if none does."""
        return self._away.first

    def away_before(self, tick: int) -> list[tuple[Key, int]]:
        """The keys not in memory of which a record comes out alone before a tick, each with its hash unit."""
        return [] if self._dues is None else self._away.before(tick)

    @override
    def put(self, held: Held) -> None:
        self._place(held)
        self._wait(held)
        self._touched.add([held.unit], held.tick)
        self._note_end(held)
        self._change(held.key, held.tick)

    @override
    def paired(self, held: Held, tick: int) -> None:
        if held.paired is None:
            super().paired(held, tick)
            self._change(held.key, tick)

    @override
    def close(self, tick: int) -> None:
        self._over = max(self._over, tick)
        while self._ticks and self._ticks[0] < tick:
            ends = heappop(self._ticks)
            self._touched.add(self._ends.pop(ends), ends)

    @override
    def prune(self, tick: int) -> None:
        """See `JoinSide`; then too many keys at rest leave."""
        self._pruned = max(self._pruned, tick)
        while self._here_ticks and self._here_ticks[0] < tick:
            for held in self._here.pop(heappop(self._here_ticks)).values():
                self.forget(held)
        while self._recent and self._recent[0][0] < tick:
            _, key = self._recent.popleft()
            if key in self._kept and self._changed[key] < tick:
                self.at_rest.rests(key)
        self._shelves.settle()
        self._forget_ended()

    @override
    def forget(self, held: Held) -> None:
        super().forget(held)
        key = held.key
        if key not in self._kept:
            del self._changed[key]
            self._away.gone(key, held.unit)
            if self.at_rest.gone(key):
                self._shelves.write(self._packing.place(held.unit, key), None)

    @property
    def group_bytes(self) -> float:
        """About how many bytes a key in memory takes."""
        return self._bytes / max(1, len(self._kept)) + SHELF_BYTES

    @property
    def all_bytes(self) -> float:
        """About how many bytes all of them take."""
        return self._bytes + SHELF_BYTES * len(self._kept)

    def evict(self) -> None:
        """Let the key go that has been at rest for longest, of which there is one."""
        key, clean = self.at_rest.leave()
        assert self._changed.pop(key) < self._pruned, "only keys at rest leave"
        records = self._leaves(key)
        unit = records[0].unit
        self._away.left(key, unit, self._due(records))
        if not clean:
            saved = [(held.at, held.row, held.paired is not None) for held in records]
            self._units.add(unit)
            self._shelves.write(self._packing.place(unit, key), self._packing.pack(key, saved))
        if self._dues is not None:
            for held in records:
                self._dues.leave(held)

    def _leaves(self, key: Key) -> list[Held]:
        """Let go of the records of a key, and return them."""
        records = list(self._kept.pop(key).values())
        for held in records:
            del self._here[held.ends][held.at]
            self._count -= 1
            self._bytes -= held.bytes
        return records

    # -- all there is ----------------------------------------------------------------------------------------------

    @override
    def capture(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, list[SavedRecord]]]]:
        parts = self.capture_here(tick, since)
        for unit, part in parts.items():
            part.extend(self.away(unit, tick))
        return parts

    def capture_here(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, list[SavedRecord]]]]:
        """Return what `capture` does, without the keys that are not in memory."""
        return super().capture(tick, since)

    def walk(self, unit: int | None, tick: int) -> Iterator[tuple[Key, list[SavedRecord]]]:
        """Go through the keys with records below a tick, of one hash unit or of all; nothing may change meanwhile."""
        for each, part in self.capture_here(tick).items():
            if unit in (None, each):
                yield from part
                yield from self.away(each, tick)

    def away(self, unit: int, tick: int) -> list[tuple[Key, list[SavedRecord]]]:
        """Return the records below a tick of a hash unit's keys that are not in memory: the rest of `capture`."""
        found = []
        for _, value in self._shelves.walk(*self._packing.bounds(unit)):
            key, saved = self._packing.unpack(value)
            if key not in self._kept and (left := self._below(unit, key, saved, tick)):
                found.append((key, left))
        return found

    def has_away(self, unit: int) -> bool:
        """Return whether keys of a hash unit may not be in memory."""
        return next(self._shelves.walk(*self._packing.bounds(unit)), None) is not None

    @override
    def look(self, key: Key, tick: int) -> Any:
        if key in self._kept:
            return super().look(key, tick)
        unit = self._packing.unit_of(key)
        (value,) = self._shelves.read([self._packing.place(unit, key)])
        if value is None:
            return NOTHING
        its_key, saved = self._packing.unpack(value)
        return self._below(unit, key, saved, tick) or NOTHING if its_key == key else NOTHING

    @override
    def restore(self, parts: Mapping[int, Iterable[tuple[Key, list[SavedRecord]]]], tick: int) -> None:
        """See `JoinSide`; it goes to the store, as it may be more than fits memory."""
        self.prune(tick)
        self._over = max(self._over, tick)
        self._away.come_near(tick)
        for unit, keys in parts.items():
            listed = []
            for key, saved in keys:
                records = list(self._held(unit, key, saved))
                if meets_nothing(key):
                    for held in records:
                        self.put(held)
                    continue
                listed.append((key, saved))
                self._away.left(key, unit, self._due(records))
                for held in records:
                    self._note_end(held)
            self._units.add(unit)
            self._shelves.take(self._packing.packed(unit, listed))
            self._touched.add([unit], tick - 1)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _place(self, held: Held) -> None:
        """Have a record in memory, after those of its key that are there."""
        self._kept.setdefault(held.key, {})[held.at] = held
        held.bytes = HELD_BYTES + self._scale.weigh(held.row)
        self._count += 1
        self._bytes += held.bytes
        here = self._here.get(held.ends)
        if here is None:
            here = self._here[held.ends] = {}
            heappush(self._here_ticks, held.ends)
        here[held.at] = held

    def _note_end(self, held: Held) -> None:
        units = self._ends.get(held.ends)
        if units is None:
            units = self._ends[held.ends] = set()
            heappush(self._ticks, held.ends)
        units.add(held.unit)
        self._longest = max(self._longest, held.ends - held.tick)

    def _change(self, key: Key, tick: int) -> None:
        self._changed[key] = tick
        if not meets_nothing(key):
            self._recent.append((tick, key))
            self.at_rest.changes(key)

    def _waits(self, held: Held) -> bool:
        """Return whether a record will come out alone, as far as is known."""
        return self._dues is not None and held.paired is None and held.ends >= self._over

    def _wait(self, held: Held) -> None:
        if self._dues is not None and self._waits(held):
            self._dues.add(held)

    def _due(self, records: Iterable[Held]) -> int | None:
        """The tick at which the first of a key's records comes out alone; None if none does."""
        return min([held.ends for held in records if self._waits(held)], default=None)

    def _held(self, unit: int, key: Key, saved: Iterable[SavedRecord]) -> Iterator[Held]:
        for at, row, is_paired in saved:
            held = Held(at, key, unit, row, self._port, self._nearness)
            held.paired = held.tick if is_paired else None
            yield held

    def _unpacked(self, unit: int, value: bytes, key: Key) -> list[Held]:
        its_key, saved = self._packing.unpack(value)
        if its_key != key:
            raise self._packing.damaged("another key lies in a key's place")
        return list(self._held(unit, key, saved))

    def _below(self, unit: int, key: Key, saved: Iterable[SavedRecord], tick: int) -> list[SavedRecord]:
        """The records that wait at a tick of those that a key was saved with."""
        return [
            (held.at, held.row, held.paired is not None)
            for held in self._held(unit, key, saved)
            if tick_of(held.at) < tick <= held.ends
        ]

    def _forget_ended(self) -> None:
        """Delete keys from the store whose records have all ended: `SWEEP` at a time, in a sixteenth of their time."""
        for place, value in self._sweep.due(self._pruned, self._longest, self._units):
            key, saved = self._packing.unpack(value)
            if key not in self._kept and all(held.ends < self._pruned for held in self._held(0, key, saved)):
                self._shelves.write(place, None)
