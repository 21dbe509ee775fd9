"""A scan beside a broadcast: its function sees what the broadcast came to at each record's place in the order.

A late record of the broadcast would change every later record of every key, so such a scan always runs in order: it
holds what comes in at either port until nothing before it can come any more. So does one with a timer (`timed_scan`),
with a broadcast or without.

A record of the broadcast comes once for each hash unit, and every unit would make the same of it. So a worker has one
state for all its units, and makes it once per record; a snapshot has it once, as hash unit 0 of the job.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lowtide.core.operators.faults.failure import Failure, Fault, raised
from lowtide.core.operators.faults.watch import record_watch
from lowtide.core.operators.held.ordered import Holding
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.held.ports import in_turn
from lowtide.core.operators.keyed.scan import Scanner, laid_out
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK, TAIL_BYTES, tick_bytes, tick_of
from lowtide.core.operators.state.group import Group, Key
from lowtide.core.operators.state.grouping import key_by_type
from lowtide.core.operators.state.keyed_state import ValueState
from lowtide.core.operators.state.states import States
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.fields import key_of
from lowtide.flow.steps.steps import Broadcast, Scan
from lowtide_snapshots.format.parts import SHARED_UNIT

KEYED, BESIDE = 0, 1
"""The ports."""
NO_UNIT = -1
"""The hash unit of what all units share, in memory: it is none of the scan's keys that have changed."""
COPY_BYTES = 4 + TAIL_BYTES
"""The part of an order key in which copies of a broadcast record differ: the copy's number, and the tail."""


class BesideNode(Holding, ValueState):
    """One scan, of one worker's hash units, with a broadcast or without.

    Elements of a key are (order key, state after it), those of the broadcast (order key of a record's first copy, state
    after it), both since the prune time.

    Args:
        vertex: The scan.
        beside: The broadcast; None for none.
        columns: The key's columns.
        ttl: After how many ticks without a record a key has no state any more; None for never.

    Attributes:
        beside: The broadcast's name; None for none.
    """

    def __init__(
        self, vertex: Vertex[Scan], beside: Vertex[Broadcast] | None, columns: Sequence[str], ttl: int | None = None
    ) -> None:
        Holding.__init__(self, vertex)
        ValueState.__init__(self, ttl)
        owner = f'step "{vertex.name}"'
        self._key = key_of(tuple(columns))
        self._scan = Scanner(vertex, beside)
        self._initial = vertex.step.initial
        self._flat = vertex.step.appends
        self._pending = [Pending(owner)]
        if beside is not None:
            self._broadcasts = _Fold(beside)
            self._newest_beside = Group(None, NO_UNIT, beside.step.initial)
            self._pending.append(Pending(f'{owner}, broadcast "{beside.name}"'))
        self._put: list[Group] = []
        """The groups with elements that `prune` has not been given yet."""
        self._touched_beside: tuple[int, int] | None = None
        """The first and the last tick of the broadcast's records; None before the first."""
        self._copied = b""
        """The part of the order key that the copies of the broadcast's newest record share."""
        self.beside = None if beside is None else beside.name
        self.states = {vertex.name: self}

    def key_by_type(self, columns: Mapping[type, tuple[str, ...]]) -> None:
        """Key records by the columns of their type, as connected streams are."""
        self._key = key_by_type(columns)

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Hold records of one port."""
        self._pending[port].add(batch)
        ticks = batch.ticks
        if port == BESIDE:
            self._touch_beside(ticks[0], ticks[-1])
        else:
            self._touched.add(batch.units, ticks[-1])
        self.hold(ticks, feed)

    def first_tick(self) -> int | None:
        """The lowest tick that is held; None if nothing is."""
        ticks = [tick for pending in self._pending if (tick := pending.first_tick) is not None]
        return min(ticks, default=None)

    def advance(self, min_time: int, feed: Feed) -> None:
        """Process everything below the level's min time, in order: outputs, then faults; one Python step per record."""
        batches = self._released(min_time)
        places = in_turn(batches)
        if not places:
            return
        outs: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        keyed = batches[KEYED]
        if self._shelf is not None and keyed is not None:
            self._shelf.admit(list(map(self._key, keyed.rows)), keyed.units)
        for at, port, index in places:
            batch = batches[port]
            assert batch is not None
            step = self._broadcast if port == BESIDE else self._keyed
            out = step(batch.units[index], at, batch.rows[index])
            if port == KEYED or type(out) is Fault:
                outs[port][index] = out
        self._kept.touch(max(batch.ticks[-1] for batch in batches if batch is not None), self._put)
        self._put = []
        for batch, found in zip(batches, outs, strict=True):
            if batch is None or not found:
                continue
            good = [index for index, out in found.items() if type(out) is not Fault]
            bad = [index for index, out in found.items() if type(out) is Fault]
            outputs = batch.pick(good).with_rows([found[index] for index in good]) if good else None
            if outputs is not None and self._flat:
                outputs = laid_out(outputs)
            if outputs is not None:
                self.pass_on(outputs, feed)
            if bad:
                feed.fail(batch.pick(bad).with_rows([found[index] for index in bad]))

    def _released(self, min_time: int) -> list[Batch | None]:
        """Return what each port brought below a tick, in order; None for nothing."""
        released = [pending.release(min_time) for pending in self._pending]
        return [Batch.concat(batches) if batches else None for batches in released]

    def changed_beside(self, since: int) -> bool:
        """True if the broadcast has a state that may have changed at a tick or later."""
        return self._touched_beside is not None and self._touched_beside[1] >= since

    def capture_beside(self, tick: int, since: int = FIRST_TICK) -> dict[int, list[tuple[Key, Any]]]:
        """The broadcast's state below a tick, as that of the key None in one hash unit; nothing if it has not changed.

        It is the same in all workers. Before the first record it is nothing, also if that has come since.
        """
        if self._touched_beside is None or self._touched_beside[0] >= tick or not self.changed_beside(since):
            return {}
        return {SHARED_UNIT: [(None, _state_below(self._newest_beside, tick))]}

    def restore_beside(self, parts: Mapping[int, Iterable[tuple[Key, Any]]], tick: int) -> None:
        """Take over what `capture_beside(tick)` gave: it has changed before `tick`."""
        for states in parts.values():
            for _, state in states:
                self._newest_beside = Group(None, NO_UNIT, state)
                self._touch_beside(tick - 1, tick - 1)

    def _touch_beside(self, first: int, last: int) -> None:
        before = self._touched_beside or (first, last)
        self._touched_beside = min(before[0], first), max(before[1], last)

    def _keyed(self, unit: int, at: bytes, row: Any) -> Any:
        key = self._key(row)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, unit, self._initial)
        state, out = self._called(group, at, self._initial if self._is_gone(group, tick_of(at)) else newest(group), row)
        group.put(at, state)
        self._put.append(group)
        return out

    def _called(self, group: Group, at: bytes, state: Any, row: Any) -> tuple[Any, Any]:
        """The state after a record, and its output; the state before it and a `Fault` if a function fails."""
        return self._scan(at, state, row, *self._seen(at))

    def _seen(self, at: bytes) -> tuple[Any, ...]:
        """Return what the function sees beside a state and a record: the state of the broadcast at its place."""
        return () if self.beside is None else (newest(self._newest_beside),)

    def _is_gone(self, group: Group, tick: int) -> bool:
        """Return whether a key is forgotten that was touched before a tick, and not since."""
        return self._ttl is not None and tick - group.newest_tick() >= self._ttl

    def _broadcast(self, unit: int, at: bytes, row: Any) -> Any:
        """Take a copy of a record: the first in this worker represents all, since they are next to each other."""
        copied = at[:-COPY_BYTES]
        if copied == self._copied:
            return None
        self._copied, group = copied, self._newest_beside
        state = self._broadcasts(at, newest(group), row)
        if type(state) is Fault:
            return state if unit == SHARED_UNIT else None  # Workers fail alike: one of them says so.
        group.put(at, state)
        self._put.append(group)
        return None

    def _is_initial(self, value: Any) -> bool:
        return self._scan.states.is_initial(value)


class _Fold:
    """A broadcast's function, with what its results have to be."""

    def __init__(self, vertex: Vertex[Broadcast]) -> None:
        self._vertex = vertex
        self._function = vertex.step.function
        self._states = States(vertex, vertex.step.state)
        self._records = record_watch(vertex)

    def __call__(self, at: bytes, state: Any, row: Any) -> Any:
        """The state after a record; a `Fault` if the function fails."""
        states, records, function = self._states, self._records, self._function
        looked = None if states.fixed else states.look([state])
        record = None if records is None else records.look([row])
        failure: Failure | None
        try:
            after = function(state, row)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            failure = raised(0, row, error)
        else:
            failure = states.fault(row, after, looked)
        if not states.same([state], looked):
            raise states.changed(function, at, row)
        if records is not None:
            records.check([row], record, [at])
        return after if failure is None else Fault(self._vertex, failure, None)


def newest(group: Group) -> Any:
    """Return the state after the newest element."""
    return group.elements[-1][1] if group.elements else group.base


def _state_below(group: Group, tick: int) -> Any:
    count = bisect_left(group.elements, (tick_bytes(tick),))
    return group.elements[count - 1][1] if count else group.base
