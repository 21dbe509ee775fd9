"""Windows of time in a local run: records come in order, and so does the clock.

A heap holds what is due; a dict holds what a window keeps. It shares with the workers the cutting of moments and the
calls of the user's functions, but not the holding, closing and numbering of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from lowtide.core.operators.faults.failure import Failure
from lowtide.core.operators.order.keys import plain
from lowtide.core.operators.order.order import CLOCK, Position
from lowtide.core.operators.windows.folding import EMPTY, Folding, Refused, window_of
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import WindowBy
from lowtide.flow.steps.windows import Session, Span, spans_of
from lowtide.flow.time.moments import instant_over, micros, micros_of, span_over
from lowtide.local.calls import Failed
from lowtide.local.items import Item, Message, Order
from lowtide_snapshots.keys.canonical import encode_key

OnTime = Callable[[str, int], None]
"""Called with a window step of event time, and a record's lag behind log time in microseconds."""


class _Due(NamedTuple):
    """A window that may close at a tick; those of one tick come in this order."""

    tick: int
    unit: int
    end: int
    start: int
    key_bytes: bytes
    key: tuple[Any, ...]


class TimedWindows:
    """The windows of one step.

    Args:
        plan: The plan.
        vertex: The step.
        looks_ahead: True if a record may be too far ahead; without log times none is.
        on_time: Called with each record if windows use event time.
    """

    def __init__(
        self, plan: Plan, vertex: Vertex[WindowBy], *, looks_ahead: bool = True, on_time: OnTime | None = None
    ) -> None:
        self._step = vertex.step
        self._plan = plan
        self._on_time = on_time if vertex.step.time is not None else None
        self._vertex = vertex
        self._columns = plan.key_of(vertex)
        self._slack_us = plan.slack_ms * 1_000
        self._wait = micros(vertex.step.wait)
        self._ahead = micros(vertex.step.ahead) if looks_ahead else None
        self._folding = Folding(vertex)
        windows = vertex.step.windows
        self._spans = None if isinstance(windows, Session) else spans_of(windows)
        self._gap = micros(windows.gap) if isinstance(windows, Session) else 0
        self._dues: list[_Due] = []
        self._kept: dict[tuple[Any, ...], dict[Span, Any]] = {}

    @property
    def next(self) -> Order | None:
        """Return the place at which the clock calls it next; None if nothing is open."""
        return self._place(self._dues[0].tick, self._dues[0].unit) if self._dues else None

    def _place(self, tick: int, unit: int) -> Order:
        return Order(tick, CLOCK, self._vertex.id * self._plan.units + unit)

    def _closes(self, span: Span) -> int:
        """Return the tick at which a window closes."""
        return span_over(span[1], self._wait, self._slack_us)

    def _is_over(self, tick: int, item: Item) -> bool:
        """Return whether what is due at a tick is over before a record comes."""
        return self._place(tick, item.unit) < item.order[:3]

    def take(self, item: Item) -> tuple[bool, list[Item]]:
        """Put a record into its windows; return whether it is late, and its results at once; raises Failed."""
        began = item.order.tick * self._slack_us
        moment = began if self._step.time is None else micros_of(getattr(item.record, self._step.time))
        if self._on_time is not None:
            self._on_time(self._vertex.name, began - moment)
        if self._ahead is not None and moment > began + self._slack_us - 1 + self._ahead:
            return True, []
        key = tuple(getattr(item.record, column) for column in self._columns) or (item.unit,)
        try:
            if self._spans is None:
                return self._take_in_session(key, moment, item)
            spans = self._spans(moment)
            there = [span for span in spans if not self._is_over(self._closes(span), item)]
            made = []
            for span in there:
                self._folding.check(span, item.record)
                made.append((span, self._added(self._kept.get(key, {}).get(span, EMPTY), item)))
            for span, state in made:
                self._keep(key, item.unit, span, state)
            outs = [out for span, state in made for out in self._updated(key, span, state, item)]
            return len(there) < len(spans), [item.becomes(out).child(number) for number, out in enumerate(outs, 2)]
        except Refused as refused:
            raise Failed(item.record, refused.failure) from None

    def _take_in_session(self, key: tuple[Any, ...], moment: int, item: Item) -> tuple[bool, list[Item]]:
        mine = self._kept.get(key, {})
        inside = any(start <= moment < end for start, end in mine)
        own = instant_over(moment, self._wait, self._slack_us)
        if self._step.time is not None and not inside and self._is_over(own, item):
            return True, []
        self._folding.check((moment, moment + self._gap), item.record)
        touched = sorted((start, end) for start, end in mine if moment < end and start < moment + self._gap)
        state: Any = EMPTY
        for span in touched:
            state = mine[span] if state is EMPTY else self._merged(state, mine[span], item)
        state = self._added(state, item)
        for span in touched:
            del mine[span]
        starts, ends = [moment], [moment + self._gap]
        for start, end in touched:
            starts.append(start)
            ends.append(end)
        self._keep(key, item.unit, (min(starts), max(ends)), state)
        return False, []

    def _merged(self, one: Any, other: Any, item: Item) -> Any:
        if self._folding.keeps:
            return tuple(sorted([*one, *other], key=lambda pair: pair[0]))
        return self._folding.merge(one, other, item.record, item.message.position)

    def _added(self, state: Any, item: Item) -> Any:
        if self._folding.keeps:
            return (*(() if state is EMPTY else state), (item.order, item.record))
        return self._folding.add(state, item.record, item.message.position)

    def _keep(self, key: tuple[Any, ...], unit: int, span: Span, state: Any) -> None:
        mine = self._kept.setdefault(key, {})
        if span not in mine:
            start, end = span
            key_bytes = encode_key([plain(each) for each in key])
            heappush(self._dues, _Due(self._closes(span), unit, end, start, key_bytes, key))
        mine[span] = state

    def _updated(self, key: tuple[Any, ...], span: Span, state: Any, item: Item) -> list[Any]:
        return self._finished(key, span, state, item.message.position) if self._step.emit == "update" else []

    def _finished(self, key: tuple[Any, ...], span: Span, state: Any, position: Position) -> list[Any]:
        rows = [record for _, record in state] if self._folding.keeps else state
        return self._folding.finish(window_of(key, True, span), rows, position)

    def fire(self) -> Iterator[tuple[Item, Failure | None]]:
        """Yield what the clock brings at the next place: results, and failures in their places."""
        place = self.next
        assert place is not None, "something is due"
        message = Message(Position(CLOCK, place.sequence), 0, None, None)
        number = 0
        for due in self._closing():
            span = due.start, due.end
            mine = self._kept.get(due.key, {})
            if span not in mine:
                continue  # The session has grown, or become part of another.
            state = mine.pop(span)
            if not mine:
                del self._kept[due.key]
            outs: Sequence[Any] = ()
            failure = None
            if self._step.emit == "close":
                try:
                    outs = self._finished(due.key, span, state, message.position)
                except Refused as refused:
                    outs, failure = (refused.failure.record,), refused.failure
            for out in outs:
                number += 1
                yield Item(out, place._replace(child=(number,)), message, due.unit), failure

    def _closing(self) -> list[_Due]:
        first = self._dues[0]
        found = []
        while self._dues and self._dues[0][:2] == first[:2]:
            found.append(heappop(self._dues))
        return found
