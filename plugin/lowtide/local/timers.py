"""Timers in a local run: records come in order, and so does the clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lowtide.core.operators.faults.failure import Failure
from lowtide.core.operators.order.keys import plain
from lowtide.core.operators.order.order import CLOCK, Position
from lowtide.core.operators.state.key_dues import KeyDues
from lowtide.core.operators.timers.timing import timing_of
from lowtide.core.operators.windows.folding import Refused
from lowtide.errors import FlowError
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.clocks import ends_at
from lowtide.flow.steps.steps import Clock, Substream, TimedScan
from lowtide.flow.time.moments import moment
from lowtide.local.calls import Failed
from lowtide.local.items import Item, Message, Order
from lowtide.local.state import Scanned
from lowtide_snapshots.keys.canonical import encode_key
from lowtide_snapshots.keys.hashing import hash_unit

BEFORE = -1
"""The tick before all others."""
LIMIT = 100_000
"""The number of times that time may call the keys of one step when no record is left."""


class Endless(FlowError):
    """Give `run_locally` an until=: the timers of a step never end."""


class TimedScanned(Scanned):
    """The state of each key, for one `flat_scan` with a timer, and the times at which keys want to be called."""

    def __init__(self, plan: Plan, vertex: Vertex[TimedScan]) -> None:
        super().__init__(plan, vertex)
        self._vertex = vertex
        self._timing = timing_of(vertex, plan.slack_ms)
        self._first, self._units = vertex.id * plan.units, plan.units
        self._dues = KeyDues()
        self._calls = 0

    @property
    def next(self) -> Order | None:
        """Return the place at which the clock calls it next; None if no key asks for it."""
        tick = self._dues.first
        return None if tick is None else Order(tick, CLOCK, self._first + self._dues.head[1])

    def time_ends(self) -> None:
        """Note that no record is left, and that no until= limits time."""

    def begin(self, key: tuple[Any, ...], state: object) -> None:
        """Do as `Scanned.begin`; the key asks for its call as after a restore."""
        super().begin(key, state)
        asked = self._timing.asks(state, None, Position(CLOCK, 0), None)
        self._ask(key, hash_unit(key, self._units), asked, BEFORE)

    def take(self, item: Item) -> list[Item]:
        """Return the outputs for a record, as for any scan; its key asks for its next call, or for none."""
        key = self._key(item.record)
        over = self._age.is_over(key, item.order.tick)
        if over:
            self._dues.drop(key)
        before = self._states.kept(key)
        outs = super().take(item)
        try:
            asked = self._timing.asks(self._states.kept(key), item.record, item.message.position, item.order.tick)
        except Refused as refused:
            self._states.keep(key, self._initial if over else before)
            raise Failed(item.record, refused.failure) from None
        self._ask(key, item.unit, asked, item.order.tick)
        return outs

    def _ask(self, key: Any, unit: int, asked: int | None, tick: int) -> None:
        if asked is None:
            self._dues.drop(key)
        else:
            self._dues.put(key, unit, self._timing.fires(asked, tick), asked, _key_bytes)

    def fire(self, *, limited: bool) -> Iterator[tuple[Item, Failure | None]]:
        """Yield what the clock brings at the next place: outputs, and failures in their places.

        Args:
            limited: True if no record is left and no until= limits time.

        Raises:
            Endless: this has gone on for too long.
        """
        place = self.next
        assert place is not None, "something is due"
        position = Position(CLOCK, place.sequence)
        number = 0
        while self.next == place:
            tick, unit, asked, _, key = self._dues.pop()
            if self._age.is_over(key, tick):
                self._states.forget(key)
                continue
            later = self._timing.put_off(asked, self._age.touched(key, tick))
            if later is not None:  # A record of it has failed since.
                self._ask(key, unit, later, tick)
                continue
            if limited:
                self._count()
            state, outs, failure = self._initial, (), None  # type: tuple[Any, tuple[Any, ...], Failure | None]
            named = key[0] if len(self._columns) == 1 else key
            try:
                state, outs, again = self._timing.fire(named, self._states.kept(key), asked, position)
            except Refused as refused:
                failure, outs = refused.failure, (refused.failure.record,)
            else:
                self._ask(key, unit, again, tick)
            self._states.keep(key, state)
            self._age.touch(key, tick)
            for out in outs:
                number += 1
                message = Message(position, 0, None, None)
                yield Item(out, place._replace(child=(number,)), message, unit), failure

    def _count(self) -> None:
        self._calls += 1
        if self._calls > LIMIT:
            raise Endless(
                f'step "{self._vertex.name}": timers have called its keys {LIMIT:,} times since the last record',
                where=str(self._vertex.site),
                way_out="limit time: run_locally(..., until=...); in a job time follows the log",
            )


class Substreamed(TimedScanned):
    """The open substream of each key.

    Attributes:
        opened: Whether the newest record has opened one.
    """

    def __init__(self, plan: Plan, vertex: Vertex[Substream]) -> None:
        super().__init__(plan, vertex)
        self._slack_us = plan.slack_ms * 1_000
        self.opened = False

    def take(self, item: Item) -> list[Item]:
        """See `TimedScanned`."""
        before = self.state(item, 0)
        outs = super().take(item)
        self.opened = before is None and (bool(outs) or self.state(item, 0) is not None)
        return outs

    def _seen(self, item: Item) -> tuple[Any, ...]:
        return (moment(item.order.tick * self._slack_us),)


class Struck(TimedScanned):
    """A clock, which stops at the end of the last span that has a record."""

    def __init__(self, plan: Plan, vertex: Vertex[Clock]) -> None:
        super().__init__(plan, vertex)
        assert vertex.step.striking is not None, "a clock has its functions"
        self._name = vertex.step.striking.name
        self._is_over = False

    def time_ends(self) -> None:
        """See `TimedScanned`."""
        self._is_over = True

    @property
    def next(self) -> Order | None:
        """See `TimedScanned`."""
        return None if self._is_over and ends_at(self._states.kept((self._name,))) else super().next


def _key_bytes(key: tuple[Any, ...]) -> bytes:
    """Return the canonical bytes of a key."""
    return encode_key([plain(each) for each in key])
