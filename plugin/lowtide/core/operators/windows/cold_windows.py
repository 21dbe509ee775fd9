"""Windows of which only some are in memory; the others lie packed in a cold store, in the order in which they close.

A window is *at rest* once its last record lies below the prune time: no note of an earlier state of it is left, and it
may leave. It comes back before a record of its key and span is looked at, or as it closes. When it closes is known
without it, as all keys share their spans; of one tick's windows those of one hash unit come back at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from typing_extensions import override

from lowtide.core.operators.order.clock import Due
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.state.at_rest import AtRest
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.packing import Packing, WindowPacking
from lowtide.core.operators.state.shelf import SHELF_BYTES, Shelves
from lowtide.core.operators.windows.folding import Folding
from lowtide.core.operators.windows.stored import Stored
from lowtide.core.operators.windows.windows import WINDOW_BYTES, Arrival, FixedWindows, Open, Saved, by_start, merged
from lowtide.flow.steps.steps import WindowBy
from lowtide.flow.steps.windows import Span

Place = tuple[Span, Key]
"""A window."""
P = TypeVar("P", bound=Packing)


class ShelvedWindows(FixedWindows, Generic[P]):
    """Windows with bounds that all keys share, of which some lie in a cold store; see `FixedWindows`.

    Args:
        step: The step.
        folding: What is made of their records.
        slack_us: The length of a tick.
        several: Whether the key has several columns.
        shelves: Those of its process.
        packing: The packing of what leaves memory.

    Attributes:
        pruned: The prune time.
        at_rest: Of which windows something may leave, or has come back: none leaves while a tick's windows close.
    """

    def __init__(
        self, step: WindowBy, folding: Folding, slack_us: int, several: bool, shelves: Shelves, packing: P
    ) -> None:
        super().__init__(step, folding, slack_us, several)
        self._shelves = shelves
        self._packing = packing
        self._there = Stored()
        """How many entries the store has."""
        self.pruned = FIRST_TICK
        self.at_rest = AtRest[Place](shelves.stamp)

    def come_near(self, tick: int) -> None:
        """Know what closes before a tick: all spans are known as it is."""

    def has_away(self, unit: int) -> bool:
        """Return whether a hash unit may have something that is not in memory."""
        return bool(self._there.spans(unit))


class ColdWindows(ShelvedWindows[WindowPacking]):
    """Those that keep a state, which leaves as a whole; see `ShelvedWindows`."""

    def __init__(
        self, step: WindowBy, folding: Folding, slack_us: int, several: bool, shelves: Shelves, packing: WindowPacking
    ) -> None:
        super().__init__(step, folding, slack_us, several, shelves, packing)
        assert not folding.keeps, "there is a state"
        shelves.add(self)

    # -- in and out of memory --------------------------------------------------------------------------------------

    def admit(self, keys: Iterable[Key], units: Sequence[int], moments: Iterable[int]) -> None:
        """Bring the windows into memory that the store has of records: n keys, hash units and times."""
        absent: dict[Place, int] = {}
        for key, unit, moment in zip(keys, units, moments, strict=True):
            for span in self._spans(moment):
                opened = self._open.get(span)
                if opened is not None and key in opened:
                    self.at_rest.hits += 1
                elif unit in self._there.units(span):
                    absent[span, key] = unit
        if not absent:
            return
        self.at_rest.misses += len(absent)
        at = self._packing.window
        values = self._shelves.read([at(unit, span, key) for (span, key), unit in absent.items()])
        for (place, unit), value in zip(absent.items(), values, strict=True):
            if value is not None:
                span, key = place
                self._open[span][key] = Open(unit, self._unpacked(place, value))
                self._windows_kept += 1
                self.at_rest.came(place)

    @override
    def _put(self, span: Span, arrival: Arrival, state: Any) -> None:
        super()._put(span, arrival, state)
        self.at_rest.changes((span, arrival.key))

    @property
    def group_bytes(self) -> float:
        """About how many bytes a window in memory takes."""
        return WINDOW_BYTES + SHELF_BYTES + self._scale.mean

    @property
    def all_bytes(self) -> float:
        """About how many bytes all of them take."""
        return self.group_bytes * self._windows_kept

    def evict(self) -> None:
        """Let the window go that has been at rest for longest, of which there is one."""
        (span, key), clean = self.at_rest.leave()
        found = self._open[span].pop(key)
        assert found.changed < self.pruned, "only windows at rest leave"
        self._windows_kept -= 1
        if not clean:
            self._shelves.write(
                self._packing.window(found.unit, span, key), self._packing.pack(key, (span, found.state))
            )
        if clean is None:
            self._there.add(span, found.unit, 1)

    @override
    def prune(self, tick: int) -> None:
        """See `OpenWindows`; then too many windows at rest leave."""
        self.pruned = max(self.pruned, tick)
        before = self._before
        while before and before[0][0] < tick:
            _, span, key, _, _ = before.popleft()
            found = self._open.get(span, {}).get(key)
            if found is not None and found.changed < tick:
                self.at_rest.rests((span, key))
        self._shelves.settle()

    @override
    def close(self, tick: int) -> Iterator[Due]:
        """See `OpenWindows`."""
        opened, there = self._open, self._there
        self.at_rest.stays = True
        spans = [span for due, span in self._dues if due == tick]
        here: dict[int, list[tuple[Span, Key, Any]]] = {}
        for span in spans:
            for key, each in opened[span].items():
                here.setdefault(each.unit, []).append((span, key, each.state))
        for unit in sorted({*here, *(unit for span in spans for unit in there.units(span))}):
            found = here.pop(unit, [])
            for span in spans:
                if unit in there.units(span):
                    found += [(span, key, state) for key, state in self._away(unit, span)]
            dues = [Due(unit, span[1], span[0], self.key_bytes(key), key, state) for span, key, state in found]
            for due in sorted(dues, key=by_place):
                self._gone((due.start, due.end), due.key, unit)
                self._before.append((tick, (due.start, due.end), due.key, unit, due.state))
                yield due
            self._shelves.settle()  # Or the next unit's walk would go through all that this one has deleted.
        while self._dues and self._dues[0][0] == tick:
            self._close_first()
        self.at_rest.stays = False

    def _gone(self, span: Span, key: Key, unit: int) -> None:
        """Let a window go that closes."""
        stored = True
        found = self._open[span].pop(key, None)
        if found is not None:
            self._shut(found.state)
            stored = self.at_rest.gone((span, key))
        if stored:
            self._shelves.write(self._packing.window(unit, span, key), None)
            self._there.add(span, unit, -1)

    # -- all there is ----------------------------------------------------------------------------------------------

    def away(self, unit: int) -> list[tuple[Key, Saved]]:
        """The keys of a hash unit with their windows that are not in memory: none has changed since the prune time."""
        found: dict[Key, Saved] = {}
        for key, window in self._walk(*self._packing.bounds(unit)):
            found.setdefault(key, []).append(window)
        for saved in found.values():
            saved.sort(key=by_start)
        return list(found.items())

    @override
    def of_key(self, key: Key, tick: int) -> Saved:
        """See `OpenWindows`."""
        unit = self._packing.unit_of(key)
        spans = [span for span in self._there.spans(unit) if key not in self._open[span]]
        values = self._shelves.read([self._packing.window(unit, span, key) for span in spans]) if spans else []
        found = [
            (span, self._unpacked((span, key), value))
            for span, value in zip(spans, values, strict=True)
            if value is not None
        ]
        return merged([(key, super().of_key(key, tick)), (key, found)])[0][1]

    def restore_unit(self, unit: int, keys: Iterable[tuple[Key, Saved]]) -> None:
        """Have what a snapshot has of a hash unit: in the store, as it may be more than fits memory."""
        entries: list[tuple[bytes, bytes | None]] = []
        for key, saved in keys:
            for span, state in saved:
                if span not in self._open:
                    self._opened(span)
                entries.append((self._packing.window(unit, span, key), self._packing.pack(key, (span, state))))
                self._there.add(span, unit, 1)
        entries.sort()
        self._shelves.take(entries)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _away(self, unit: int, span: Span) -> list[tuple[Key, Any]]:
        """The keys of a hash unit whose windows of a span are not in memory, with their states."""
        return [(key, state) for key, (_, state) in self._walk(*self._packing.bounds_of(unit, span))]

    def _walk(self, first: bytes, end: bytes) -> Iterator[tuple[Key, tuple[Span, Any]]]:
        for _, value in self._shelves.walk(first, end):
            key, (span, state) = self._packing.unpack(value)
            assert span in self._open, "what has closed is not in the store any more"
            if key not in self._open[span]:
                yield key, (span, state)

    def _unpacked(self, place: Place, value: bytes) -> Any:
        key, (span, state) = self._packing.unpack(value)
        if (span, key) != place:
            raise self._packing.damaged("another window lies in a window's place")
        return state


def by_place(due: Due) -> tuple[int, int, bytes]:
    """The order in which windows of a hash unit close at a tick."""
    return due.end, due.start, due.key_bytes
