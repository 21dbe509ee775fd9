"""A scan with a timer: a key is called when log time has come to the moment that its state asks for.

A timer is a function of the state, so none is saved: after a restore each is asked for again. What has been due before
T has been called before T, and a moment that is over by then was asked for in the tick before, or it would have been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lowtide.core.operators.faults.failure import Fault, UserError
from lowtide.core.operators.held.ports import in_turn
from lowtide.core.operators.keyed.beside import BESIDE, KEYED, BesideNode, newest
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.clock import ClockKeys, before_clock
from lowtide.core.operators.order.keys import plain
from lowtide.core.operators.order.memory import Kept
from lowtide.core.operators.order.order import position_of, tick_of, with_child
from lowtide.core.operators.state.away_dues import AwayDues
from lowtide.core.operators.state.cold_key_dues import ColdKeyDues
from lowtide.core.operators.state.group import Group, Key
from lowtide.core.operators.state.key_dues import KeyDues
from lowtide.core.operators.state.packing import Packing
from lowtide.core.operators.state.shelf import Shelf, Shelves
from lowtide.core.operators.timers.timing import timing_of
from lowtide.core.operators.windows.folding import Refused
from lowtide.core.operators.windows.window_node import Made
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Broadcast, TimedScan
from lowtide_snapshots.keys.canonical import encode_key


class TimedScanNode(BesideNode):
    """One scan with a timer, of one worker's hash units; see `BesideNode`. A call of time is an element, too.

    Args:
        vertex: The scan.
        beside: The broadcast; None for none.
        plan: The plan.
        ttl: After how many ticks without a record or a call a key has no state any more; None for never.
    """

    def __init__(
        self, vertex: Vertex[TimedScan], beside: Vertex[Broadcast] | None, plan: Plan, ttl: int | None = None
    ) -> None:
        columns = plan.key_of(vertex)
        super().__init__(vertex, beside, columns, None if ttl is None else ttl + vertex.step.longer)
        self._several = len(columns) > 1
        self._timing = timing_of(vertex, plan.slack_ms)
        self._clock = ClockKeys(plan, vertex)
        self._slack_ms = plan.slack_ms
        self._dues = KeyDues()

    @property
    def due_tick(self) -> int | None:
        """The smallest tick at which a key is called; None if none is.

        Of a key whose `ttl` is over by then nothing will come.
        """
        return self._dues.first

    @property
    def timers(self) -> Kept:
        """The number of keys with a timer, and about how many bytes the timers take."""
        return self._dues.kept

    def advance(self, min_time: int, feed: Feed) -> None:
        """Let records and the clock have their turns, in order, below the level's min time."""
        batches = self._released(min_time)
        if self._shelf is not None:
            self._admit(self._shelf, batches[KEYED], min_time)
        made, last = Made(), min_time - 1
        for at, port, index in in_turn(batches):
            tick = tick_of(at)
            self._call_before(tick if before_clock(at) else tick + 1, made)
            batch = batches[port]
            assert batch is not None
            unit, row = batch.units[index], batch.rows[index]
            if port == BESIDE:
                out = self._broadcast(unit, at, row)
                if out is not None:
                    made.fail(at, unit, out)
                continue
            out = self._keyed(unit, at, row)
            if type(out) is Fault:
                made.fail(at, unit, out)
                continue
            for number, each in enumerate(out, 1):
                made.give(with_child(at, number), unit, each)
        self._call_before(min_time, made)
        if self._put:
            self._kept.touch(last, self._put)
            self._put = []
        made.pass_on(self, feed)

    def _admit(self, shelf: Shelf, batch: Batch | None, min_time: int) -> None:
        """Bring the groups into memory that records ask for, or time calls: who is due is known without them."""
        keys, units = list[Key](), list[int]()
        if batch is not None:
            keys, units = list(map(self._key, batch.rows)), list(batch.units)
        for key, unit in self._dues.before(min_time):
            keys.append(key)
            units.append(unit)
        shelf.admit(keys, units)

    def _called(self, group: Group, at: bytes, state: Any, row: Any) -> tuple[Any, Any]:
        """See `BesideNode`; what a key asks for with its new state takes the place of what it asked for before."""
        after, out = super()._called(group, at, state, row)
        if type(out) is Fault:
            if self._scan.states.is_initial(after):
                self._dues.drop(group.key)  # It had been forgotten, and its timer with it.
            return after, out
        try:
            asked = self._timing.asks(after, row, position_of(at), tick_of(at))
        except Refused as refused:
            if self._scan.states.is_initial(state):
                self._dues.drop(group.key)
            return state, Fault(self.vertex, refused.failure, None)
        self._ask(group.key, group.unit, asked, None if asked is None else self._timing.fires(asked, tick_of(at)))
        return after, out

    def _ask(self, key: Key, unit: int, asked: int | None, fires: int | None) -> None:
        if asked is None or fires is None:
            self._dues.drop(key)
        else:
            self._dues.put(key, unit, fires, asked, self._key_bytes)

    def _key_bytes(self, key: Key) -> bytes:
        """The canonical bytes of a key."""
        return encode_key([plain(each) for each in key] if self._several else [plain(key)])

    def _call_before(self, tick: int, made: Made) -> None:
        """Call all keys that are due before a tick, tick by tick: what they ask for then may be due before it, too."""
        while (due := self.due_tick) is not None and due < tick:
            self._call(due, made)

    def _call(self, tick: int, made: Made) -> None:
        """Call the keys that are due at a tick; each output has its number in its hash unit, and so has what fails."""
        unit, number = -1, 0
        while self.due_tick == tick:
            _, its_unit, asked, _, key = self._dues.pop()
            group = self._groups.get(key)
            if group is None or self._is_gone(group, tick):
                continue
            later = self._timing.put_off(asked, group.newest_tick())
            if later is not None:  # A record of it has failed since.
                self._ask(key, its_unit, later, self._timing.fires(later, tick))
                continue
            if its_unit != unit:
                unit, number = its_unit, 0
                at_of = self._clock.of(tick, unit)
                self._touched.add([unit], tick)
            state: Any = self._initial
            try:
                state, outs, again = self._timing.fire(key, newest(group), asked, self._clock.position(unit))
            except Refused as refused:
                number += 1
                made.fail(at_of(number), unit, Fault(self.vertex, refused.failure, None))
            else:
                self._ask(key, its_unit, again, None if again is None else self._timing.fires(again, tick))
                for out in outs:
                    number += 1
                    made.give(at_of(number), unit, out)
            group.put(at_of(0), state)
            self._put.append(group)

    def _is_none(self, group: Group, tick: int) -> bool:
        """See `BesideNode`: asked before a key goes, which is called no more then."""
        none = super()._is_none(group, tick)
        if none:
            self._dues.drop(group.key)
        return none

    # -- state -----------------------------------------------------------------------------------------------------

    def shelve(self, shelves: Shelves, packing: Packing) -> None:
        """See `KeyedState`; when a key is due leaves memory with its state."""
        super().shelve(shelves, packing)
        assert self._shelf is not None
        away = AwayDues(shelves, packing.dues(), self._slack_ms)
        self._shelf.carried = self._dues = ColdKeyDues(away, self._key_bytes, self._asks_of_saved)

    def restore(self, parts: Mapping[int, Iterable[tuple[Key, Any]]], tick: int) -> None:
        """See `BesideNode`; what the states ask for is known from them.

        Raises:
            UserError: the timer's function fails with a state that was saved.
        """
        self._dues.before(tick)
        super().restore(parts, tick)
        for group in self._groups.values():  # Of a shelved step there are none.
            if group.unit in parts:
                due = self._asks_again(group.key, group.unit, group.base, tick, group.touched)
                if due is not None:
                    self._dues.put(group.key, group.unit, *due, self._key_bytes)

    def _asks_of_saved(self, key: Key, unit: int, saved: Any, tick: int) -> tuple[int, int] | None:
        if self._ttl is None:
            return self._asks_again(key, unit, saved, tick, tick - 1)
        state, touched = saved
        return self._asks_again(key, unit, state, tick, tick - 1 if touched is None else touched)

    def _asks_again(self, key: Key, unit: int, state: Any, tick: int, touched: int) -> tuple[int, int] | None:
        """Return when a key is due as its state asks for that was saved at a tick: tick and moment; None for never."""
        position = self._clock.position(unit)
        try:
            asked = self._timing.asks(state, {"key": key, "state": state}, position, touched)
        except Refused as refused:
            raise UserError(self.vertex, position, refused.failure) from None
        return None if asked is None else (self._timing.fires_again(asked, tick), asked)
