"""Sessions of which only some are in memory; the others lie packed in a cold store, those of a key together.

A key is *at rest* once no note of an earlier state of its sessions is left: it may leave then, with all of them. It
comes back before a record of it is looked at, or as one of them closes. When the first of them is due is known without
it (`AwayDues`); of one tick's sessions those of one hash unit come back at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappush
from typing import Any

from typing_extensions import override

from lowtide.core.operators.order.clock import Due
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.state.at_rest import AtRest
from lowtide.core.operators.state.away_dues import AwayDues
from lowtide.core.operators.state.cold import Entry
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.packing import Packing
from lowtide.core.operators.state.shelf import SHELF_BYTES, Shelves
from lowtide.core.operators.windows.folding import Folding
from lowtide.core.operators.windows.windows import (
    TAKEN_IN,
    WINDOW_BYTES,
    Arrival,
    OpenSession,
    Saved,
    SessionWindows,
    saved_sessions,
)
from lowtide.flow.steps.steps import WindowBy
from lowtide.flow.steps.windows import Span


class ColdSessions(SessionWindows):
    """Sessions that keep a state; see `SessionWindows`.

    Args:
        step: The step.
        folding: What is made of their records.
        slack_us: The length of a tick.
        several: Whether the key has several columns.
        shelves: Those of its process.
        packing: The packing of its keys.

    Attributes:
        pruned: The prune time.
        at_rest: Which keys may leave, or have come back: none leaves while a tick's sessions close.
    """

    def __init__(
        self, step: WindowBy, folding: Folding, slack_us: int, several: bool, shelves: Shelves, packing: Packing
    ) -> None:
        super().__init__(step, folding, slack_us, several)
        assert not folding.keeps, "sessions that keep their records are in memory"
        self._shelves = shelves
        self._packing = packing
        self._away = AwayDues(shelves, packing.dues(), slack_us // 1_000)
        self._changed: dict[Key, int] = {}
        """By key in memory the tick of its last change."""
        self._closing: dict[int, list[Key]] = {}
        """By hash unit the keys that are not in memory and have sessions which are closing."""
        self.pruned = FIRST_TICK
        self.at_rest = AtRest[Key](shelves.stamp)
        shelves.add(self)

    # -- in and out of memory --------------------------------------------------------------------------------------

    def come_near(self, tick: int) -> None:
        """Know what closes before a tick, in memory or not."""
        self._away.come_near(tick)

    def admit(self, keys: Iterable[Key], units: Iterable[int], _moments: Iterable[int] = ()) -> None:
        """Bring what the store has of these keys into memory: n keys and their hash units."""
        opened, at_rest = self._open, self.at_rest
        absent: dict[Key, int] = {}
        for key, unit in zip(keys, units, strict=True):
            if key in opened:
                at_rest.hits += 1
            else:
                absent[key] = unit
        if not absent:
            return
        at_rest.misses += len(absent)
        values = self._shelves.read([self._packing.place(unit, key) for key, unit in absent.items()])
        for (key, unit), value in zip(absent.items(), values, strict=True):
            if value is not None:
                saved = self._unpacked(key, value)
                for (start, end), state in saved:
                    self._opened(OpenSession(key, unit, start, end, state))
                self._windows_kept += len(saved)
                self._changed[key] = FIRST_TICK
                self._away.came(key, self._closes_first(saved))
                at_rest.came(key)

    @override
    def take(self, arrival: Arrival) -> tuple[list[tuple[Span, Any]] | object, bool]:
        taken = super().take(arrival)
        if isinstance(taken[0], list):
            self._change(arrival.key, arrival.unit, arrival.tick)
        return taken

    @property
    def group_bytes(self) -> float:
        """About how many bytes a key in memory takes."""
        return self.all_bytes / max(1, len(self._open))

    @property
    def all_bytes(self) -> float:
        """About how many bytes all of them take."""
        return (WINDOW_BYTES + self._scale.mean) * self._windows_kept + SHELF_BYTES * len(self._open)

    def evict(self) -> None:
        """Let the key go that has been at rest for longest, of which there is one."""
        key, clean = self.at_rest.leave()
        assert self._changed.pop(key) < self.pruned, "only keys at rest leave"
        mine = self._of(key)
        self._put(key, [])
        unit, saved = mine[0].unit, saved_sessions(mine)
        self._windows_kept -= len(mine)
        for session in mine:
            session.state = TAKEN_IN  # It is due no more as one in memory.
        self._taken_in += len(mine)
        self._bound_dues()
        self._away.left(key, unit, self._closes_first(saved))
        if not clean:
            self._shelves.write(self._packing.place(unit, key), self._packing.pack(key, saved))

    @override
    def prune(self, tick: int) -> None:
        """See `OpenWindows`; then too many keys at rest leave."""
        self.pruned = max(self.pruned, tick)
        before = self._before
        while before and before[0][0] < tick:
            _, key, _, _ = before.popleft()
            if key in self._open and self._changed[key] < tick:
                self.at_rest.rests(key)
        self._shelves.settle()

    @property
    @override
    def first_due(self) -> int | None:
        here, away = super().first_due, self._away.first
        return here if away is None or (here is not None and here < away) else away

    @override
    def close(self, tick: int) -> Iterator[Due]:
        """See `OpenWindows`; `come_near` has been told of the tick."""
        self.at_rest.stays = True
        yield from super().close(tick)
        self.at_rest.stays = False

    @override
    def _due_at(self, tick: int) -> dict[int, list[OpenSession]]:
        if tick not in self._dues:
            self._dues[tick] = []
            heappush(self._ticks, tick)
        parts = super()._due_at(tick)
        self._closing = {}
        for key, unit in self._away.before(tick + 1):
            parts.setdefault(unit, [])
            self._closing.setdefault(unit, []).append(key)
        return parts

    @override
    def _close_unit(self, tick: int, unit: int, sessions: Iterable[OpenSession]) -> Iterator[Due]:
        found = list(sessions)
        keys = self._closing.pop(unit, [])
        self.admit(keys, [unit] * len(keys))
        for key in keys:
            found += [each for each in self._of(key) if self.closes(each.end) == tick]
        for due in super()._close_unit(tick, unit, found):
            self._change(due.key, unit, tick)
            yield due
        self._shelves.settle()

    # -- all there is ----------------------------------------------------------------------------------------------

    def away(self, unit: int) -> list[tuple[Key, Saved]]:
        """The keys of a hash unit with their sessions that are not in memory: none has changed since the prune time."""
        entries = [self._packing.unpack(value) for _, value in self._shelves.walk(*self._packing.bounds(unit))]
        return [(key, saved) for key, saved in entries if key not in self._open]

    def has_away(self, unit: int) -> bool:
        """Return whether a hash unit may have keys that are not in memory."""
        return next(self._shelves.walk(*self._packing.bounds(unit)), None) is not None

    @override
    def of_key(self, key: Key, tick: int) -> Saved:
        """See `OpenWindows`."""
        if key not in self._open:
            (value,) = self._shelves.read([self._packing.place(self._packing.unit_of(key), key)])
            if value is not None:
                return self._in_order(self._unpacked(key, value), tick)
        return super().of_key(key, tick)

    def restore_unit(self, unit: int, keys: Iterable[tuple[Key, Saved]]) -> None:
        """Have what a snapshot has of a hash unit: in the store, as it may be more than fits memory."""
        entries: list[Entry] = []
        for key, saved in keys:
            self._away.left(key, unit, self._closes_first(saved))
            entries.append((self._packing.place(unit, key), self._packing.pack(key, saved)))
        entries.sort()
        self._shelves.take(entries)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _change(self, key: Key, unit: int, tick: int) -> None:
        """Note that a key has changed, or is no more."""
        if key in self._open:
            self._changed[key] = tick
            self.at_rest.changes(key)
            return
        del self._changed[key]
        self._away.gone(key, unit)
        if self.at_rest.gone(key):
            self._shelves.write(self._packing.place(unit, key), None)

    def _closes_first(self, saved: Sequence[tuple[Span, Any]]) -> int:
        return self.closes(min([end for (_, end), _ in saved]))

    def _unpacked(self, key: Key, value: bytes) -> Saved:
        its_key, saved = self._packing.unpack(value)
        if its_key != key:
            raise self._packing.damaged("another key lies in a key's place")
        found: Saved = saved
        return found
