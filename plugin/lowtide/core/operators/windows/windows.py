"""The open windows of a step: which there are, what they keep, when they close, and what they were at an earlier tick.

Pure, and in order: records come by their order keys, ticks ascend. What changes is noted until it is pruned, so that a
snapshot can have the windows as they were below its T, those that have closed since among them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import Any, NamedTuple

from lowtide.core.operators.order.clock import Due
from lowtide.core.operators.order.keys import plain
from lowtide.core.operators.order.memory import Kept, Scale
from lowtide.core.operators.order.order import FIRST_TICK, Position, tick_bytes
from lowtide.core.operators.state.group import SPARE, Key
from lowtide.core.operators.windows.folding import EMPTY, Folding
from lowtide.flow.steps.steps import WindowBy
from lowtide.flow.steps.windows import Session, Span, longest_us, spans_of
from lowtide.flow.time.moments import instant_over, micros, span_over
from lowtide_snapshots.keys.canonical import encode_key, encode_value

Saved = list[tuple[Span, Any]]
"""The saved state of a key: its open windows by their starts, each with its state, or its (order key, record)s."""

Parts = dict[int, list[tuple[Key, Saved]]]
"""By hash unit the keys that have open windows, with these."""

WINDOW_BYTES = 200
"""About what an open window takes beside its state, its key among it."""

Records = list[Any]
"""A window's records, in Lowtide's order: an order key, its record, the next order key, and so on.

A list of pairs would cost 56 bytes more for each record.
"""

RECORD_BYTES = 90
"""About what a record takes that a window keeps, beside itself: its order key, and two places in a list."""

LATE = object()
"""The fate of a record that no window takes."""

TAKEN_IN = object()
"""Marks a session that another one has taken in; an object of its own, as None may be a state."""


class Arrival(NamedTuple):
    """A record as windows take it.

    Attributes:
        key: Its key.
        unit: Its hash unit.
        moment: Its time, in microseconds.
        at: Its packed order key.
        row: The record.
        tick: Its tick.
        first: Windows that close at a tick before this one have closed.
        position: Its position, if the functions need it.
    """

    key: Key
    unit: int
    moment: int
    at: bytes
    row: Any
    tick: int
    first: int
    position: Position | None


class OpenWindows(ABC):
    """The common part of windows with either kind of bounds.

    Args:
        step: The step.
        folding: What is made of their records.
        slack_us: The length of a tick.
        several: Whether the key has several columns.
    """

    def __init__(self, step: WindowBy, folding: Folding, slack_us: int, several: bool) -> None:
        self._folding = folding
        self._keeps = folding.keeps
        self._wait = micros(step.wait)
        self._slack_us = slack_us
        self._several = several
        self._scale = Scale(thrifty=True)
        self._windows_kept = 0
        self._records_kept = 0
        """Number of all records that windows keep; 0 where they keep none."""

    @property
    def kept(self) -> Kept:
        """Return the number of open windows and their approximate memory."""
        weighed = self._records_kept if self._keeps else self._windows_kept
        size = WINDOW_BYTES * self._windows_kept + RECORD_BYTES * self._records_kept
        size += round(self._scale.mean * weighed)
        return Kept("windows", self._windows_kept, size)

    def closes(self, end: int) -> int:
        """The tick at which a window closes."""
        return span_over(end, self._wait, self._slack_us)

    def key_bytes(self, key: Key) -> bytes:
        """The canonical bytes of a key."""
        return encode_key([plain(each) for each in key]) if self._several else encode_value(plain(key))

    @property
    @abstractmethod
    def first_due(self) -> int | None:
        """No window closes before this tick; None if none is open."""

    @abstractmethod
    def take(self, arrival: Arrival) -> tuple[list[tuple[Span, Any]] | object, bool]:
        """Put a record into its windows.

        Returns:
            The windows that took it, each with its state, or `LATE`; and whether it came too late for any.

        Raises:
            Refused: a function failed, and no window has taken the record.
        """

    @abstractmethod
    def close(self, tick: int) -> Iterator[Due]:
        """Close what is due at a tick, in order, each window when it is given.

        Until all have been given, `first_due` stays at the tick, and no record may be put into a window. It does what a
        hash unit takes at a time, besides one look at each window that is due.
        """

    @abstractmethod
    def below(self, tick: int, parts: Parts) -> None:
        """Add to the parts of hash units their keys' open windows at a tick that is not pruned; O(keys).

        Args:
            tick: The tick.
            parts: The parts of the requested hash units.
        """

    @abstractmethod
    def of_key(self, key: Key, tick: int) -> Saved:
        """Return the open windows of one key at a tick that is not pruned."""

    @abstractmethod
    def prune(self, tick: int) -> None:
        """Forget the state before a tick."""

    @abstractmethod
    def restore(self, unit: int, key: Key, saved: Saved) -> None:
        """Open a key's windows as they were saved."""

    def _shut(self, state: Any) -> None:
        """Note that a window has closed."""
        self._windows_kept -= 1
        self._records_kept -= len(state) // 2 if self._keeps else 0

    def _restored(self, state: Any) -> None:
        """Note that a saved window was opened."""
        self._windows_kept += 1
        self._records_kept += len(state) // 2 if self._keeps else 0
        for value in rows_of(state) if self._keeps else [state]:
            self._scale.weigh(value)

    def _opened_state(self, saved: Any) -> Any:
        """Return a window's state from its saved form."""
        return list(chain.from_iterable(saved)) if self._keeps else saved

    def _in_order(self, saved: Saved, tick: int) -> Saved:
        """Return windows at a tick, sorted by their starts."""
        saved.sort(key=by_start)
        return self._as_of(saved, tick)

    def _as_of(self, saved: Saved, tick: int) -> Saved:
        """Return windows at a tick: records are only ever added, so leave out those of later ticks."""
        if not self._keeps:
            return saved
        end = tick_bytes(tick)
        return [(span, [element for element in elements_of(state) if element[0] < end]) for span, state in saved]


class Open:
    """One open window of one key; `changed` is the tick of which the state before is noted."""

    __slots__ = ("changed", "state", "unit")

    def __init__(self, unit: int, state: Any, changed: int = FIRST_TICK) -> None:
        self.unit = unit
        self.state = state
        self.changed = changed


class FixedWindows(OpenWindows):
    """Windows whose bounds do not hang on records: all keys share them, and so they close together.

    By span there is a dict of keys, so that a window costs an entry and two words besides its state.
    """

    def __init__(self, step: WindowBy, folding: Folding, slack_us: int, several: bool) -> None:
        super().__init__(step, folding, slack_us, several)
        assert not isinstance(step.windows, Session), "sessions have bounds of their own"
        self._spans = spans_of(step.windows)
        self._longest = longest_us(step.windows)
        self._open: dict[Span, dict[Key, Open]] = {}
        self._dues: list[tuple[int, Span]] = []
        """A heap of the spans that are open, by the tick at which they close."""
        self._before: deque[tuple[int, Span, Key, int, Any]] = deque()
        """Tick, window and hash unit of the first change at each tick, with the state before it, `EMPTY` for none, and
        of each close; ticks ascend."""

    @property
    def first_due(self) -> int | None:
        """No window closes before this tick; None if none is open."""
        return self._dues[0][0] if self._dues else None

    def take(self, arrival: Arrival) -> tuple[list[tuple[Span, Any]] | object, bool]:
        """See `OpenWindows`; all of its windows take a record, or none where a function fails."""
        if self.closes(arrival.moment + self._longest) < arrival.first:
            return LATE, True
        taken: list[tuple[Span, Any]] = []
        missed = False
        opened = self._open
        for span in self._spans(arrival.moment):
            keys = opened.get(span)
            if keys is None:
                if self.closes(span[1]) < arrival.first:
                    missed = True
                    continue
                self._folding.check(span, arrival.row)
            found = None if keys is None else keys.get(arrival.key)
            taken.append((span, self._added(EMPTY if found is None else found.state, arrival)))
        if not taken:
            return LATE, True
        for span, state in taken:
            self._put(span, arrival, state)
        if self._keeps:
            taken = [(span, opened[span][arrival.key].state) for span, _ in taken]
        return taken, missed

    def _added(self, state: Any, arrival: Arrival) -> Any:
        return None if self._keeps else self._folding.add(state, arrival.row, arrival.position)

    def _put(self, span: Span, arrival: Arrival, state: Any) -> None:
        keys = self._open.get(span)
        if keys is None:
            keys = self._opened(span)
        key, unit = arrival.key, arrival.unit
        found = keys.get(key)
        self._scale.weigh(arrival.row if self._keeps else state)
        self._records_kept += int(self._keeps)
        if found is None:
            self._windows_kept += 1
            keys[key] = Open(unit, [arrival.at, arrival.row] if self._keeps else state, arrival.tick)
            self._before.append((arrival.tick, span, key, unit, EMPTY))
        elif self._keeps:
            found.state += arrival.at, arrival.row
        else:
            if found.changed != arrival.tick:
                self._before.append((arrival.tick, span, key, unit, found.state))
                found.changed = arrival.tick
            found.state = state

    def _opened(self, span: Span) -> dict[Key, Open]:
        keys = self._open[span] = {}
        heappush(self._dues, (self.closes(span[1]), span))
        return keys

    def close(self, tick: int) -> Iterator[Due]:
        """See `OpenWindows`."""
        opened, before, key_bytes = self._open, self._before, self.key_bytes
        parts: dict[int, list[tuple[Span, Key, Any]]] = {}
        for span in [span for due, span in self._dues if due == tick]:
            for key, each in opened[span].items():
                parts.setdefault(each.unit, []).append((span, key, each.state))
        for unit in sorted(parts):
            found = [
                (Due(unit, span[1], span[0], key_bytes(key), key, state), span) for span, key, state in parts.pop(unit)
            ]
            found.sort(key=_due)
            for due, span in found:
                _, _, _, _, key, state = due
                del opened[span][key]
                self._shut(state)
                before.append((tick, span, key, unit, state))
                yield due
        while self._dues and self._dues[0][0] == tick:
            self._close_first()

    def _close_first(self) -> None:
        """Leave out the span that is due first: all its windows have closed."""
        del self._open[heappop(self._dues)[1]]

    def below(self, tick: int, parts: Parts) -> None:
        """See `OpenWindows`."""
        changed = {(span, key): (unit, state) for span, key, unit, state in self._changed_since(tick)}
        if len(self._open) == 1 and not changed:
            # Most often: nothing has to be put together by key.
            ((span, keys),) = self._open.items()
            for key, each in keys.items():
                if each.unit in parts:
                    parts[each.unit].append((key, [(span, each.state)]))
        else:
            self._by_key(changed, parts)
        if self._keeps:
            for part in parts.values():
                part[:] = [(key, self._as_of(saved, tick)) for key, saved in part]

    def _by_key(self, changed: dict[tuple[Span, Key], tuple[int, Any]], parts: Parts) -> None:
        """Each key's open windows, by their starts; those in `changed` as they are there."""
        found: dict[Key, Saved] = {}
        for span, keys in self._open.items():
            for key, each in keys.items():
                if each.unit in parts and (span, key) not in changed:
                    found[key] = saved = found.get(key) or _new(parts[each.unit], key)
                    saved.append((span, each.state))
        for (span, key), (unit, state) in changed.items():
            if unit in parts and state is not EMPTY:
                found[key] = saved = found.get(key) or _new(parts[unit], key)
                saved.append((span, state))
        for saved in found.values():
            if len(saved) > 1:
                saved.sort(key=by_start)

    def _changed_since(self, tick: int) -> Iterator[tuple[Span, Key, int, Any]]:
        """The changes at a tick and later, the newest first: of each window the last one says what it was before."""
        for when, span, key, unit, state in reversed(self._before):
            if when < tick:
                return
            yield span, key, unit, state

    def of_key(self, key: Key, tick: int) -> Saved:
        """See `OpenWindows`."""
        states = {span: keys[key].state for span, keys in self._open.items() if key in keys}
        states |= {span: state for span, other, _, state in self._changed_since(tick) if other == key}
        return self._in_order([(span, state) for span, state in states.items() if state is not EMPTY], tick)

    def prune(self, tick: int) -> None:
        """See `OpenWindows`; O(changes since)."""
        before = self._before
        while before and before[0][0] < tick:
            before.popleft()

    def restore(self, unit: int, key: Key, saved: Saved) -> None:
        """See `OpenWindows`."""
        for span, state in saved:
            keys = self._open.get(span)
            if keys is None:
                keys = self._opened(span)
            keys[key] = Open(unit, self._opened_state(state))
            self._restored(keys[key].state)


class OpenSession:
    """One open session of one key; its state is `TAKEN_IN` once another session has it, `changed` as in `Open`."""

    __slots__ = ("changed", "end", "key", "start", "state", "unit")

    def __init__(self, key: Key, unit: int, start: int, end: int, state: Any, changed: int = FIRST_TICK) -> None:
        self.key = key
        self.unit = unit
        self.start = start
        self.end = end
        self.state = state
        self.changed = changed


class SessionWindows(OpenWindows):
    """Sessions: per key those that are open, ordered by start, at least a gap apart.

    A session stands among the dues once, at a tick at which it would have closed; if it has grown by then, it is put at
    a later one. One that another has taken in is left there, so that there are never more of these than of open ones,
    and `SPARE`.
    """

    def __init__(self, step: WindowBy, folding: Folding, slack_us: int, several: bool) -> None:
        super().__init__(step, folding, slack_us, several)
        assert isinstance(step.windows, Session), "all others share their bounds"
        self._gap = micros(step.windows.gap)
        self._lates = step.time is not None
        self._open: dict[Key, OpenSession | list[OpenSession]] = {}
        """Most keys have one that is open, and a list for it would take 88 bytes."""
        self._dues: dict[int, list[OpenSession]] = {}
        self._ticks: list[int] = []
        """A heap of the ticks in `_dues`."""
        self._taken_in = 0
        """The number of entries in `_dues` whose session another one has taken in."""
        self._before: deque[tuple[int, Key, int, Saved]] = deque()
        """Tick, key and hash unit of the first change at each tick, with the key's sessions before it, and of each
        close; ticks ascend."""

    @property
    def first_due(self) -> int | None:
        """No window closes before this tick; None if none is open."""
        return self._ticks[0] if self._ticks else None

    def take(self, arrival: Arrival) -> tuple[list[tuple[Span, Any]] | object, bool]:
        """See `OpenWindows`: a record joins all sessions it touches, so that none are within the gap of each other."""
        moment, key = arrival.moment, arrival.key
        mine = self._of(key)
        inside = any([each.start <= moment < each.end for each in mine])
        if self._lates and not inside and instant_over(moment, self._wait, self._slack_us) < arrival.first:
            return LATE, True
        self._folding.check((moment, moment + self._gap), arrival.row)
        touched = [each for each in mine if moment < each.end and each.start < moment + self._gap]
        tick = arrival.tick
        noted = any([each.changed == tick for each in mine])
        before = [] if noted else saved_sessions(mine)
        state = self._joined(touched, arrival)
        if not noted:
            self._before.append((tick, key, arrival.unit, before))
        self._scale.weigh(arrival.row if self._keeps else state)
        self._records_kept += int(self._keeps)
        start = min([moment, *(each.start for each in touched)])
        end = max([moment + self._gap, *(each.end for each in touched)])
        if touched:
            session, *others = touched
            session.start, session.end, session.state, session.changed = start, end, state, tick
            for other in others:
                other.state = TAKEN_IN
                mine.remove(other)
                self._windows_kept -= 1
            if others:
                self._put(key, mine)
                self._taken_in += len(others)
                self._bound_dues()
        else:
            self._windows_kept += 1
            self._opened(OpenSession(key, arrival.unit, start, end, state, tick))
        return [((start, end), state)], False

    def _joined(self, touched: Sequence[OpenSession], arrival: Arrival) -> Any:
        """Return the states of sessions in the order of their starts, and the record."""
        if self._keeps:
            # The note of the earlier state may be this very list: it is read at its tick, without later records.
            if not touched:
                return [arrival.at, arrival.row]
            kept: Records = touched[0].state if len(touched) == 1 else _put_together([each.state for each in touched])
            kept += arrival.at, arrival.row
            return kept
        state = EMPTY
        for each in touched:
            state = (
                each.state if state is EMPTY else self._folding.merge(state, each.state, arrival.row, arrival.position)
            )
        return self._folding.add(state, arrival.row, arrival.position)

    def _of(self, key: Key) -> list[OpenSession]:
        """A key's open sessions, ordered by start; a change of the list is to be `_put`."""
        found = self._open.get(key)
        if found is None:
            return []
        return [found] if isinstance(found, OpenSession) else found

    def _put(self, key: Key, mine: list[OpenSession]) -> None:
        if mine:
            self._open[key] = mine[0] if len(mine) == 1 else mine
        else:
            del self._open[key]

    def _opened(self, session: OpenSession) -> None:
        mine = self._of(session.key)
        insort(mine, session, key=_start)
        self._put(session.key, mine)
        self._put_due(session)

    def _put_due(self, session: OpenSession) -> None:
        tick = self.closes(session.end)
        if tick in self._dues:
            self._dues[tick].append(session)
        else:
            self._dues[tick] = [session]
            heappush(self._ticks, tick)

    def _bound_dues(self) -> None:
        """Leave out what has been taken in, once it is more than what is open; O(1) for each on average."""
        if self._taken_in <= self._windows_kept + SPARE:
            return
        dues = {tick: [each for each in listed if each.state is not TAKEN_IN] for tick, listed in self._dues.items()}
        self._dues = {tick: listed for tick, listed in dues.items() if listed}
        self._ticks = sorted(self._dues)
        self._taken_in = 0

    def close(self, tick: int) -> Iterator[Due]:
        """See `OpenWindows`."""
        if self.first_due != tick:
            return
        parts = self._due_at(tick)
        for unit in sorted(parts):
            yield from self._close_unit(tick, unit, parts.pop(unit))
        self._closed(tick)

    def _due_at(self, tick: int) -> dict[int, list[OpenSession]]:
        """The sessions that close at a tick, by hash unit; those that have grown are put at a later one."""
        parts: dict[int, list[OpenSession]] = {}
        for session in self._dues[tick]:
            if session.state is TAKEN_IN:
                self._taken_in -= 1
                continue
            if self.closes(session.end) > tick:
                self._put_due(session)
            else:
                parts.setdefault(session.unit, []).append(session)
        return parts

    def _close_unit(self, tick: int, unit: int, sessions: Iterable[OpenSession]) -> Iterator[Due]:
        """Close sessions of one hash unit, in order, each when it is given."""
        found = [(self._due(session), session) for session in sessions]
        for due, session in sorted(found, key=_due):
            mine = self._of(session.key)
            self._before.append((tick, session.key, unit, saved_sessions(mine)))
            mine.remove(session)
            self._put(session.key, mine)
            self._shut(session.state)
            yield due

    def _closed(self, tick: int) -> None:
        """All that closes at a tick has been given."""
        heappop(self._ticks)
        del self._dues[tick]
        self._bound_dues()

    def _due(self, session: OpenSession) -> Due:
        key = session.key
        return Due(session.unit, session.end, session.start, self.key_bytes(key), key, session.state)

    def below(self, tick: int, parts: Parts) -> None:
        """See `OpenWindows`."""
        changed = {key: (unit, saved) for key, unit, saved in self._changed_since(tick)}
        for key in self._open:
            mine = self._of(key)
            if mine[0].unit in parts and key not in changed:
                parts[mine[0].unit].append((key, self._as_of(saved_sessions(mine), tick)))
        for key, (unit, saved) in changed.items():
            if saved and unit in parts:
                parts[unit].append((key, self._as_of(saved, tick)))

    def _changed_since(self, tick: int) -> Iterator[tuple[Key, int, Saved]]:
        for when, key, unit, saved in reversed(self._before):
            if when < tick:
                return
            yield key, unit, saved

    def of_key(self, key: Key, tick: int) -> Saved:
        """See `OpenWindows`."""
        found = saved_sessions(self._of(key))
        for other, _, saved in self._changed_since(tick):
            if other == key:
                found = saved
        return self._in_order(found, tick)

    def prune(self, tick: int) -> None:
        """See `OpenWindows`; O(changes since)."""
        before = self._before
        while before and before[0][0] < tick:
            before.popleft()

    def restore(self, unit: int, key: Key, saved: Saved) -> None:
        """See `OpenWindows`."""
        for (start, end), kept in saved:
            state = self._opened_state(kept)
            self._opened(OpenSession(key, unit, start, end, state))
            self._restored(state)


def open_windows(step: WindowBy, folding: Folding, slack_us: int, several: bool) -> OpenWindows:
    """The windows of a step, of which none is open yet."""
    return (SessionWindows if isinstance(step.windows, Session) else FixedWindows)(step, folding, slack_us, several)


def rows_of(state: Records) -> list[Any]:
    """The records of a window that keeps them, in order."""
    return state[1::2]


def elements_of(state: Records) -> Iterator[tuple[bytes, Any]]:
    """Order keys and records."""
    return zip(state[::2], state[1::2], strict=True)


def _put_together(states: Iterable[Records]) -> Records:
    """The records of several windows, in order."""
    elements = [element for state in states for element in elements_of(state)]
    elements.sort(key=_at)
    return list(chain.from_iterable(elements))


def _new(part: list[tuple[Key, Saved]], key: Key) -> Saved:
    """A key in a part, without windows so far."""
    saved: Saved = []
    part.append((key, saved))
    return saved


def saved_sessions(sessions: Iterable[OpenSession]) -> Saved:
    """Sessions as they are saved."""
    return [((each.start, each.end), each.state) for each in sessions]


def merged(entries: Iterable[tuple[Key, Saved]]) -> list[tuple[Key, Saved]]:
    """Return keys with their windows by their starts, each key once."""
    found: dict[Key, Saved] = {}
    for key, saved in entries:
        found[key] = _put_in_one([*found[key], *saved]) if key in found else saved
    return list(found.items())


def _put_in_one(saved: Saved) -> Saved:
    """A key's windows by their starts, each once: of one that keeps its records some may lie elsewhere."""
    found: Saved = []
    for span, state in sorted(saved, key=by_start):
        if found and found[-1][0] == span:
            found[-1] = span, sorted([*found[-1][1], *state], key=_at)
        else:
            found.append((span, state))
    return found


def by_start(saved: tuple[Span, Any]) -> Span:
    """A key's windows are sorted by their bounds."""
    return saved[0]


def _at(element: tuple[bytes, Any]) -> bytes:
    return element[0]


def _start(session: OpenSession) -> int:
    return session.start


def _due(entry: tuple[Due, Any]) -> Due:
    return entry[0]
