"""The stateful steps in a local run: records come in order, so each is handled once, as it comes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from lowtide.core.operators.keyed.scan import calling
from lowtide.core.operators.order.keys import key_of
from lowtide.core.operators.state.states import States
from lowtide.errors import FlowError
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.site import Function
from lowtide.flow.steps.steps import Broadcast, Deduplicate, Last, Scan, Step, TimedScan
from lowtide.flow.time.durations import ticks_of
from lowtide.local.calls import Failed, called
from lowtide.local.items import Item

AS_ANNOTATED = "give a state of the type in the annotations of the step's function"


class Windows:
    """The newest records of each key, for one `last`."""

    def __init__(self, plan: Plan, vertex: Vertex[Last]) -> None:
        self._step = vertex.step
        self._columns = plan.key_of(vertex)
        self._kept: dict[Hashable, tuple[Any, ...]] = {}
        self._age = _Age(plan, vertex)

    def take(self, item: Item) -> list[Item]:
        """Return the window that ends with this record, if it is long enough."""
        key, count = key_of(self._columns, item.record), self._step.count
        before = () if self._age.is_over(key, item.order.tick) else self._kept.get(key, ())
        self._age.touch(key, item.order.tick)
        window = self._kept[key] = (*before, item.record)[-count:]
        return [item.becomes(window)] if self._step.partial or len(window) == count else []


class Seen:
    """The ticks at which records of each key passed, for one `deduplicate`."""

    def __init__(self, plan: Plan, vertex: Vertex[Deduplicate]) -> None:
        self._columns = plan.key_of(vertex)
        self._within = ticks_of(vertex.step.within, plan.slack_ms)
        self._ticks: dict[Hashable, int] = {}

    def take(self, item: Item) -> list[Item]:
        """Return the record if it passes, and remember it if so."""
        key, tick = key_of(self._columns, item.record), item.order.tick
        if key in self._ticks and tick - self._ticks[key] < self._within:
            return []
        self._ticks[key] = tick
        return [item]


class _Age:
    """The tick at which each key was touched, for a step that may forget."""

    def __init__(self, plan: Plan, vertex: Vertex[Last | Scan]) -> None:
        self._ttl = None if vertex.step.ttl is None else ticks_of(vertex.step.ttl, plan.slack_ms)
        if self._ttl is not None and isinstance(vertex.step, TimedScan):
            self._ttl += vertex.step.longer
        self._ticks: dict[Hashable, int] = {}

    def is_over(self, key: Hashable, tick: int) -> bool:
        """Return whether a key has been forgotten at a tick."""
        return self._ttl is not None and tick - self._ticks.get(key, tick) >= self._ttl

    def touched(self, key: Hashable, tick: int) -> int:
        """Return the tick at which a key was touched last; if none is known, the given one."""
        return self._ticks.get(key, tick)

    def touch(self, key: Hashable, tick: int) -> None:
        """Note that a record of a tick, even one that fails, came for a key."""
        if self._ttl is not None:
            self._ticks[key] = tick


class Scanned:
    """The state of each key, for one `scan`, and that of its broadcast."""

    def __init__(self, plan: Plan, vertex: Vertex[Scan]) -> None:
        self._step = vertex.step
        self._function, self._gives, self._says = calling(vertex)
        self._columns = plan.key_of(vertex)
        self._connected = plan.connected(vertex)
        self._initial = vertex.step.initial
        self._states = _Kept(vertex)
        self._age = _Age(plan, vertex)
        self.broadcast = plan.broadcast_of(vertex)
        self._beside = None if self.broadcast is None else _Kept(self.broadcast)

    def begin(self, key: tuple[Any, ...], state: object) -> None:
        """Give a key an initial state, whose `ttl` counts from its next record; raises FlowError if it does not fit."""
        self._states.begin(key, state)

    def take(self, item: Item) -> list[Item]:
        """Return the outputs for a record; raises Failed, and then the state is unchanged."""
        record, states, beside = item.record, self._states, self._beside
        key, function = self._key(record), self._function
        if self._age.is_over(key, item.order.tick):
            states.forget(key)
        self._age.touch(key, item.order.tick)
        seen = self._seen(item)
        before = states.look(key)
        try:
            # Unpacking the pair may fail as well: that is the record's failure too.
            state, output = called(lambda record: _pair(function(before, record, *seen)), record)
        finally:
            states.check_unchanged(key, function, item)
            if beside is not None:
                beside.check_unchanged((), function, item)
        if type(output) is not self._gives:
            raise Failed(record, self._says(output))
        states.put(key, state, item)
        outputs: Any = output
        if self._step.appends:
            return [item.becomes(each).child(number) for number, each in enumerate(outputs, 1)]
        return [item.becomes(outputs)]

    def _seen(self, _item: Item) -> tuple[Any, ...]:
        """Return what the function sees beside a state and a record: that of the broadcast."""
        return () if self._beside is None else (self._beside.look(()),)

    def _key(self, record: Any) -> Hashable:
        return key_of(self._connected.get(type(record), self._columns), record)

    def see(self, item: Item) -> None:
        """Fold a record of the broadcast into the state that the scan sees with the next records; raises Failed."""
        assert self._beside is not None
        assert self.broadcast is not None
        step, beside = self.broadcast.step, self._beside
        before = beside.look(())
        try:
            state = called(step.function, before, item.record)
        finally:
            beside.check_unchanged((), step.function, item)
        beside.put((), state, item)

    def state(self, item: Item, port: int) -> Any:
        """Return the state after a record that came in at a port: its key's, or the broadcast's."""
        if port == 0:
            return self._states.kept(self._key(item.record))
        assert self._beside is not None
        return self._beside.kept(())


KEPT: dict[type[Step], Callable[[Plan, Vertex[Any]], Windows | Seen]] = {Last: Windows, Deduplicate: Seen}
"""State of the steps that call no function; each takes an item and returns its outputs."""


def _pair(result: Any) -> tuple[Any, Any]:
    state, output = result
    return state, output


class _Kept:
    """The states of one step by key."""

    def __init__(self, vertex: Vertex[Scan | Broadcast]) -> None:
        self._initial = vertex.step.initial
        self._name = vertex.name
        self._states = States(vertex, vertex.step.state)
        self._looked: bytes | None = None
        self._kept: dict[Hashable, Any] = {}

    def kept(self, key: Hashable) -> Any:
        """Return a key's state."""
        return self._kept.get(key, self._initial)

    def begin(self, key: Hashable, state: object) -> None:
        """Keep a state that no function returned; raises FlowError if it does not fit."""
        fault = self._states.fault(None, state, b"")
        if fault is not None:
            what = fault.error.removeprefix("returned ")
            raise FlowError(
                f'states= gives "{self._name}" for key {key!r} {what}', way_out=fault.way_out or AS_ANNOTATED
            )
        self._kept[key] = state

    def keep(self, key: Hashable, state: object) -> None:
        """Keep a state that has been checked."""
        self._kept[key] = state

    def forget(self, key: Hashable) -> None:
        """Reset a key to the initial state."""
        self._kept.pop(key, None)

    def look(self, key: Hashable) -> Any:
        """Return a key's state for one call of a function; call `check_unchanged` after it."""
        state = self.kept(key)
        self._looked = None if self._states.fixed else self._states.look([state])
        return state

    def check_unchanged(self, key: Hashable, function: Function, item: Item) -> None:
        """Raise UserError if the function changed the state that `look` gave."""
        state = self.kept(key)
        if not self._states.same([state], self._looked):
            raise self._states.changed(function, item.message.position, item.record)

    def put(self, key: Hashable, state: object, item: Item) -> None:
        """Keep a state; raise Failed if it does not fit, or a snapshot could not give it back."""
        failure = self._states.fault(item.record, state, self._looked)
        if failure is not None:
            raise Failed(item.record, failure)
        self._kept[key] = state
