"""Windows that keep their records, of which only the newest are in memory; the others lie in a cold store, one by one.

A record may leave once it lies below the prune time. None comes back before its window closes: a window is appended to
without being read, and what it has in the store is never written again. When it closes is known without it, as all keys
share their spans; of one tick's windows those of one hash unit come back at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from typing_extensions import override

from lowtide.core.operators.order.clock import Due
from lowtide.core.operators.order.order import tick_bytes
from lowtide.core.operators.state.cold import Entry
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.packing import RecordPacking
from lowtide.core.operators.state.shelf import SHELF_BYTES, Shelves
from lowtide.core.operators.windows.cold_windows import Place, ShelvedWindows, by_place
from lowtide.core.operators.windows.folding import Folding
from lowtide.core.operators.windows.windows import (
    RECORD_BYTES,
    WINDOW_BYTES,
    Arrival,
    Open,
    Parts,
    Records,
    Saved,
    elements_of,
    merged,
)
from lowtide.flow.steps.steps import WindowBy
from lowtide.flow.steps.windows import Span


class ColdRecords(ShelvedWindows[RecordPacking]):
    """Those that keep their records, which leave one by one; see `ShelvedWindows`."""

    def __init__(
        self, step: WindowBy, folding: Folding, slack_us: int, several: bool, shelves: Shelves, packing: RecordPacking
    ) -> None:
        super().__init__(step, folding, slack_us, several, shelves, packing)
        assert folding.keeps, "there are records"
        self._recent: deque[tuple[int, Place]] = deque()
        """The windows that got a record since the prune time; ticks ascend."""
        self._number = 0
        """So many records have been put into the store: the next one's number there, as a window's stand in order."""
        shelves.add(self)

    # -- in and out of memory --------------------------------------------------------------------------------------

    def admit(self, keys: Iterable[Key], units: Sequence[int], moments: Iterable[int]) -> None:
        """Bring in what records need, which is nothing."""

    @override
    def _put(self, span: Span, arrival: Arrival, state: Any) -> None:
        """See `FixedWindows`; no note says that a window begins here: it may have records in the store."""
        keys = self._open.get(span)
        if keys is None:
            keys = self._opened(span)
        found = keys.get(arrival.key)
        if found is None:
            keys[arrival.key] = Open(arrival.unit, [arrival.at, arrival.row])
            self._windows_kept += 1
        else:
            found.state += arrival.at, arrival.row
        self._records_kept += 1
        self._scale.weigh(arrival.row)
        self._recent.append((arrival.tick, (span, arrival.key)))

    @property
    def group_bytes(self) -> float:
        """About how many bytes a window in memory takes, with its records."""
        return self.all_bytes / max(1, self._windows_kept)

    @property
    def all_bytes(self) -> float:
        """About how many bytes all of them take."""
        return (WINDOW_BYTES + SHELF_BYTES) * self._windows_kept + (
            RECORD_BYTES + self._scale.mean
        ) * self._records_kept

    def evict(self) -> None:
        """Let the records go, of the window that has been at rest for longest, which lie below the prune time."""
        (span, key), _ = self.at_rest.leave()
        found = self._open[span][key]
        records: Records = found.state
        ats = records[::2]
        count = bisect_left(ats, tick_bytes(self.pruned))
        assert count, "only records below the prune time leave"
        for at, row in elements_of(records[: 2 * count]):
            self._shelves.write(*self._entry(found.unit, span, key, at, row))
        self._there.add(span, found.unit, count)
        self._records_kept -= count
        if count < len(ats):
            found.state = records[2 * count :]
        else:
            del self._open[span][key]
            self._windows_kept -= 1

    @override
    def prune(self, tick: int) -> None:
        """See `OpenWindows`; then records leave, if there are too many."""
        self.pruned = max(self.pruned, tick)
        super().prune(tick)
        recent = self._recent
        while recent and recent[0][0] < tick:
            _, (span, key) = recent.popleft()
            if key in self._open.get(span, ()) and self._open[span][key].state[0] < tick_bytes(tick):
                self.at_rest.rests((span, key))
        self._shelves.settle()

    @override
    def close(self, tick: int) -> Iterator[Due]:
        """See `OpenWindows`."""
        self.at_rest.stays = True
        spans = [span for due, span in self._dues if due == tick]
        here: dict[int, dict[Place, Records]] = {}
        for span in spans:
            for key, each in self._open[span].items():
                here.setdefault(each.unit, {})[span, key] = each.state
        for unit in sorted({*here, *(unit for span in spans for unit in self._there.units(span))}):
            found, places = self._away(unit, [span for span in spans if unit in self._there.units(span)])
            for place, records in here.pop(unit, {}).items():
                found[place] = found.get(place, []) + records
            dues = [
                Due(unit, span[1], span[0], self.key_bytes(key), key, state) for (span, key), state in found.items()
            ]
            for due in sorted(dues, key=by_place):
                span = due.start, due.end
                self._gone(span, due.key, unit, places.get((span, due.key), []))
                self._before.append((tick, span, due.key, unit, due.state))
                yield due
            self._shelves.settle()  # Or the next unit's walk would go through all that this one has deleted.
        while self._dues and self._dues[0][0] == tick:
            self._close_first()
        self.at_rest.stays = False

    def _gone(self, span: Span, key: Key, unit: int, places: Sequence[bytes]) -> None:
        """Let a window go that closes, with what lies at these places of the store."""
        found = self._open[span].pop(key, None)
        if found is not None:
            self._shut(found.state)
            self.at_rest.gone((span, key))
        for place in places:
            self._shelves.write(place, None)
        if places:
            self._there.add(span, unit, -len(places))

    # -- all there is ----------------------------------------------------------------------------------------------

    def away(self, unit: int) -> list[tuple[Key, Saved]]:
        """The keys of a hash unit with their windows, as far as these are not in memory: all below the prune time."""
        found, _ = self._away(unit, self._there.spans(unit))
        return merged([(key, [(span, list(elements_of(records)))]) for (span, key), records in found.items()])

    @override
    def below(self, tick: int, parts: Parts) -> None:
        """See `OpenWindows`."""
        super().below(tick, parts)
        for part in parts.values():
            part[:] = [(key, begun) for key, saved in part if (begun := _begun(saved))]

    @override
    def of_key(self, key: Key, tick: int) -> Saved:
        """See `OpenWindows`."""
        unit = self._packing.unit_of(key)
        found: Saved = []
        for span in self._there.spans(unit):
            entries = self._shelves.walk(*self._packing.bounds_of_key(unit, span, key))
            records = [(at, row) for its_key, (_, at, row) in self._ordered(entries) if its_key == key]
            if records:
                found.append((span, records))
        return merged([(key, found), (key, _begun(super().of_key(key, tick)))])[0][1]

    def restore_unit(self, unit: int, keys: Iterable[tuple[Key, Saved]]) -> None:
        """Have what a snapshot has of a hash unit: in the store, as it may be more than fits memory."""
        entries: list[Entry] = []
        for key, saved in keys:
            for span, records in saved:
                if span not in self._open:
                    self._opened(span)
                entries += [self._entry(unit, span, key, at, row) for at, row in records]
                self._there.add(span, unit, len(records))
        entries.sort()
        self._shelves.take(entries)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _entry(self, unit: int, span: Span, key: Key, at: bytes, row: Any) -> tuple[bytes, bytes]:
        self._number += 1
        packing = self._packing
        return packing.record(unit, span, key, self._number), packing.pack(key, (span, at, row))

    def _away(self, unit: int, spans: Iterable[Span]) -> tuple[dict[Place, Records], dict[Place, list[bytes]]]:
        """The records of spans of a hash unit in the store, by window, and their places there."""
        found: dict[Place, Records] = {}
        places: dict[Place, list[bytes]] = {}
        for span in spans:
            entries = sorted(self._shelves.walk(*self._packing.bounds_of(unit, span)))
            for (place, _), (key, (_, at, row)) in zip(entries, self._ordered(entries), strict=True):
                found.setdefault((span, key), []).extend((at, row))
                places.setdefault((span, key), []).append(place)
        return found, places

    def _ordered(self, entries: Iterable[tuple[bytes, bytes]]) -> list[tuple[Key, tuple[Span, bytes, Any]]]:
        """Unpack entries in the order of their places: what still waits to be written comes last in a walk."""
        return [self._packing.unpack(value) for _, value in sorted(entries)]


def _begun(saved: Saved) -> Saved:
    """Leave out windows that have no record so far."""
    return [(span, records) for span, records in saved if records]
