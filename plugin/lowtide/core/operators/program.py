"""One level of a plan at work on the records that reach it: pure, no I/O, no clock.

    program = Program(plan, level=0)
    feed = program.feed_source(vertex, rows)    # feed.parcels for level 1, feed.delivers, feed.faults
    program = Program(plan, level=1)
    feed = program.feed(parcel.vertex, batch)    # also feed.held, the ticks of what ordered groupings hold
    feed = program.advance(min_time)    # what they were holding below it
    program.prune(global_min_time)

The steps are nodes that know their followers: a batch goes through one branch after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.call_node import CallNode
from lowtide.core.operators.completing import CompletingNode
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.held.ordered import Holding
from lowtide.core.operators.joins.cold_side import ColdSide
from lowtide.core.operators.joins.join_node import JoinNode
from lowtide.core.operators.joins.join_side import JoinSide
from lowtide.core.operators.keyed.beside import BesideNode
from lowtide.core.operators.keyed.ended import EndedGrouping
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.nodes import Level
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.late_seen import LateSeen
from lowtide.core.operators.order.memory import Kept
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.plain.loop import BACK
from lowtide.core.operators.plain.source import SourceNode
from lowtide.core.operators.questions import Answered
from lowtide.core.operators.state.cold import Entry
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.keyed_state import NOTHING, KeyedState
from lowtide.core.operators.state.packing import Packing, packing_of, packs
from lowtide.core.operators.state.shelf import Shelves
from lowtide.core.operators.timers.timed_scan import TimedScanNode
from lowtide.core.operators.windows.window_node import WindowNode
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.steps.steps import Late

_LEAVING = (KeyedState, WindowNode, ColdSide)
"""The states of which some may leave memory."""

Captured = dict[str, dict[int, list[tuple[Key, Any]]]]
"""State by vertex and hash unit: each key with what is saved of it."""


class Program:
    """The steps of one level.

    Args:
        plan: The plan.
        level: The level.
        grouping: How stateful steps come to the right order; by default as the plan says.
        limits: How large records may be; None for no limits.
        saves_shared: Whether `capture` gives what is the same in all workers: one of them is to save it.

    Attributes:
        segments: The plan's.
        asking: The steps that ask outside services, by vertex.
        holding: The steps that hold records until min time has passed them, in topological order.
    """

    def __init__(
        self,
        plan: Plan,
        level: int,
        grouping: str | None = None,
        limits: Limits | None = None,
        *,
        saves_shared: bool = True,
    ) -> None:
        self.plan = plan
        self.segments = segments_of(plan)
        self.level = level
        self._saves_shared = saves_shared
        made = Level(plan, self.segments, level, grouping or plan.grouping, limits)
        self._nodes = made.nodes
        for vertex in plan.vertices:
            if vertex.level == level or (vertex.is_exchange and plan.sender_level(vertex) == level):
                made.make(vertex)
        self.holding = [node for node in self._nodes.values() if isinstance(node, Holding)]
        self.asking = {node.vertex.id: node for node in self.holding if isinstance(node, CallNode)}
        self._clocks = [node for node in self.holding if node.vertex.id in plan.clocked]
        self._sources = {id_: node for id_, node in self._nodes.items() if isinstance(node, SourceNode)}
        self._besides = [node for node in self.holding if isinstance(node, BesideNode)]
        self._states: dict[str, KeyedState | WindowNode | JoinSide | CompletingNode] = {}
        """By the name of the step, or of a join's side."""
        for node in self._nodes.values():
            self._states |= node.states
        self._lead()

    def _lead(self) -> None:
        """Connect every node to its followers, and let holding ones know whether their output leaves this level."""
        for vertex in self.plan.vertices:
            if vertex.level != self.level:
                continue
            node = self._nodes[vertex.id]
            if vertex.is_exchange and vertex.back is not None:
                node.lead([(self._nodes[vertex.back], BACK)])
                continue
            children = self.plan.children(vertex.id)
            followers = [(self._nodes[child.id], child.parents.index(vertex.id)) for child in children]
            lates = [late for late in self.plan.those(Late) if vertex.id in late.parents]
            node.lead(followers, {late.step.port: self._nodes[late.id] for late in lates})
        for source in self.plan.sources():
            if source.id in self._sources:
                self._sources[source.id].lead_signs([self._nodes[sign.id] for sign in self.plan.signs_of(source)])
        for node in self.holding:
            node.sends = self.segments.sends[node.vertex.id]

    @property
    def holds(self) -> bool:
        """True if there are groupings that wait for min time."""
        return bool(self.holding)

    @property
    def clocked(self) -> bool:
        """True if there are steps that send what time alone brings (R6b)."""
        return bool(self._clocks)

    @property
    def first_due(self) -> int | None:
        """The smallest tick at which a step will send without further input; None if none will."""
        return min([tick for node in self._clocks if (tick := node.due_tick) is not None], default=None)

    def due(self, segment: int) -> int | None:
        """The smallest tick at which a step will send into a segment without further input; None if none will (R6b)."""
        return min(
            [tick for node in self._clocks if segment in node.sends and (tick := node.due_tick) is not None],
            default=None,
        )

    @property
    def repairs(self) -> int:
        """The number of outputs of groupings taken back so far."""
        return sum([node.repairs for node in self._nodes.values()])

    @property
    def late(self) -> dict[str, LateSeen]:
        """Return the late records so far, by window step and by side of a join."""
        return {name: seen for node in self.holding for name, seen in node.late_seen.items()}

    @property
    def kept(self) -> dict[str, Kept]:
        """Counts and bytes that steps and sides of joins keep, by their names; a step's timers as `NAME/timers`."""
        found = {name: state.kept for name, state in self._states.items()}
        timed = (node for node in self._besides if isinstance(node, TimedScanNode))
        return found | {f"{node.vertex.name}/timers": node.timers for node in timed}

    # -- input -----------------------------------------------------------------------------------------------------

    def feed_source(self, vertex: int, rows: SourceRows) -> Feed:
        """Take labelled messages of a source of this level."""
        feed = Feed(rows)
        self._sources[vertex].feed(rows, feed)
        return self._finished(feed)

    def feed(self, vertex: int, batch: Batch) -> Feed:
        """Take records of an exchange that this level receives."""
        feed = Feed()
        self._nodes[vertex].take(batch, 0, feed)
        return self._finished(feed)

    def advance(self, min_time: int, steps: Sequence[Holding] | None = None) -> Feed:
        """Process what is held and what is due below a tick, in topological order.

        Args:
            min_time: The tick.
            steps: Which of `holding`; by default all.
        """
        return self.go_on(min_time, self.holding if steps is None else steps, Portion())[0]

    def go_on(self, min_time: int, steps: Sequence[Holding], portion: Portion) -> tuple[Feed, int]:
        """Do of `advance` what a portion allows; return what came of it, and the tick below which all is done.

        No step gets further than those before it.
        """
        feed, reached = Feed(), min_time
        for node in steps:
            reached = node.go_on(reached, feed, portion)
            self._finished(feed)
        return feed, reached

    def _finished(self, feed: Feed) -> Feed:
        """Send round what a loop has to take once more."""
        while feed.again:
            head, batch = feed.again.popleft()
            head.take(batch, 0, feed)
        return feed

    def answered(self, ask: int, answers: Sequence[Answered]) -> Feed:
        """Take answers to questions of a call (errors: CallGivenUp)."""
        feed = Feed()
        self.asking[ask].answered(answers, feed)
        return self._finished(feed)

    # -- state -----------------------------------------------------------------------------------------------------

    def shelvable(self, in_memory: Collection[str] = ()) -> list[str]:
        """The names of the steps whose groups can lie on shelves, but for those named."""
        return [name for name, _ in self._shelvable(in_memory)]

    def shelve(self, shelves: Shelves, in_memory: Collection[str] = ()) -> None:
        """Have the groups of steps lie on the shelves of the process, but for those named; before there are any."""
        for name, node in self._shelvable(in_memory):
            if isinstance(node, JoinNode):
                node.shelve(name, shelves, packing_of(self.plan, node.vertex, list(node.states).index(name)))
            else:
                node.states[name].shelve(shelves, packing_of(self.plan, node.vertex))
            self._states[name] = node.states[name]

    def _shelvable(self, in_memory: Collection[str]) -> list[tuple[str, Node]]:
        return [
            (name, node)
            for node in self._nodes.values()
            if packs(self.plan, node.vertex)
            for name in node.states
            if name not in in_memory
        ]

    def prune(self, tick: int) -> None:
        """Forget what only records below `tick` could need: below the global min time only (R14)."""
        for state in self._states.values():
            state.prune(tick)

    def capture(
        self,
        tick: int,
        since: int = FIRST_TICK,
        *,
        whole: bool = True,
        but: Mapping[str, Container[int]] = MappingProxyType({}),
    ) -> Captured:
        """The state below a tick, which must not be below one that was pruned at; O(keys).

        Args:
            tick: The T of a snapshot.
            since: Only of hash units that may have changed at this tick or later: the T of a snapshot that has the
                others (papers: *Fault tolerance*).
            whole: False to leave out keys that are not in memory: they may be more than fit, and are asked for by hash
                unit (`away`).
            but: Hash units by step that are left out, of steps that know which of their keys have changed.
        """
        assert not (whole and but), "what is left out is asked for by its keys"
        captured: Captured = {}
        for name, state in self._states.items():
            if name in but and isinstance(state, KeyedState):
                captured[name] = state.capture_here(tick, since, but[name])
            elif not whole and isinstance(state, _LEAVING):
                captured[name] = state.capture_here(tick, since)
            else:
                captured[name] = state.capture(tick, since)
        for node in self._besides if self._saves_shared else ():
            if node.beside is not None:
                captured.setdefault(node.beside, {}).update(node.capture_beside(tick, since))
        return captured

    def note_changes(self) -> None:
        """Note from now on which keys change; after `shelve`. Windows, joins and calls know no more than hash units."""
        for state in self._keyed():
            state.note_changes()

    def cut_changes(self, tick: int) -> None:
        """A snapshot is taken at a tick, at or above every prune time so far: later ones may rest on it."""
        for state in self._keyed():
            state.cut_changes(tick)

    def forget_changes(self, tick: int) -> None:
        """A snapshot at a tick is committed: nobody asks for what changed before any more."""
        for state in self._keyed():
            state.forget_changes(tick)

    def changed_keys(self, since: int) -> dict[str, dict[int, set[Key]]]:
        """By step and hash unit the keys that may have changed at a tick or later; without steps that do not know.

        Of a step that is there, no others have; but for those that are only older than its `ttl` by now.
        """
        known = {
            name: state.changed_keys(since) for name, state in self._states.items() if isinstance(state, KeyedState)
        }
        return {
            name: {unit: found.get(unit, set()) for unit in self._states[name].changed(since)}
            for name, found in known.items()
            if found is not None
        }

    def capture_keys(self, name: str, unit: int, keys: Collection[Key], tick: int) -> list[tuple[Key, Any]]:
        """Return keys of a step's hash unit, each with what is to be saved of it at a tick, or `NOTHING`."""
        state = self._states[name]
        assert isinstance(state, KeyedState)
        return state.capture_keys(unit, keys, tick)

    def _keyed(self) -> Iterator[KeyedState]:
        return (state for state in self._states.values() if isinstance(state, KeyedState))

    def away(self, name: str, unit: int, tick: int) -> list[tuple[Key, Any]]:
        """Return what `capture(tick, whole=False)` has left out of a step's hash unit."""
        state = self._states.get(name)
        return state.away(unit, tick) if isinstance(state, _LEAVING) else []

    def whole(self, name: str, unit: int, keys: list[tuple[Key, Any]], tick: int) -> list[tuple[Key, Any]]:
        """Return what `capture` has of a step's hash unit, from what `capture(tick, whole=False)` has of it."""
        state = self._states.get(name)
        if isinstance(state, WindowNode):
            return state.whole(unit, keys, tick)
        return keys + self.away(name, unit, tick)

    def has_away(self, name: str, unit: int) -> bool:
        """Return whether `away` may find anything."""
        state = self._states.get(name)
        return isinstance(state, _LEAVING) and state.has_away(unit)

    def look(self, name: str, key: Key, tick: int) -> Any:
        """The state of one key of a step below a tick; `NOTHING` if it has none here."""
        state = self._states.get(name)
        return NOTHING if state is None else state.look(key, tick)

    def look_around(self, name: str, unit: int | None, tick: int) -> Iterator[tuple[Key, Any]]:
        """Go through the keys of a step below a tick, of one hash unit or of all, each with what is saved of it.

        Nothing may be fed meanwhile. O(keys of all units), but for the way to the first few.
        """
        state = self._states.get(name)
        if state is None:
            return iter(())
        if isinstance(state, _LEAVING):
            return state.walk(unit, tick)
        units = state.capture(tick)
        return chain.from_iterable(units.values() if unit is None else [units.get(unit, [])])

    def look_beside(self, name: str, tick: int) -> Any:
        """The state of a broadcast below a tick; `NOTHING` before its first record."""
        for node in self._besides:
            if node.beside == name:
                for states in node.capture_beside(tick).values():
                    return states[0][1]
        return NOTHING

    def ended(self, name: str, labels: Sequence[Key], tick: int) -> dict[Key, int]:
        """By label the tick of its last end below a tick, of those that have ended here; see `EndedGrouping`."""
        state = self._states.get(name)
        return state.ended(labels, tick) if isinstance(state, EndedGrouping) else {}

    def changed(self, since: int) -> bool:
        """Return whether `capture` would find anything."""
        beside = self._saves_shared and any([node.changed_beside(since) for node in self._besides])
        return beside or any([state.changed(since) for state in self._states.values()])

    def restore_unit(self, name: str, unit: int, keys: Iterable[tuple[Key, Any]], tick: int) -> None:
        """Take over the captured state of one hash unit of a shelved step, before `restore`: all may not fit memory."""
        state = self._states[name]
        assert isinstance(state, _LEAVING)
        state.restore({unit: keys}, tick)

    def packing(self, name: str) -> Packing | None:
        """The packing of a step's hash units on disk, if it follows from a snapshot's parts alone; see `KeyedState`."""
        state = self._states.get(name)
        return state.packing if isinstance(state, KeyedState) else None

    def restore_packed(self, name: str, unit: int, entries: list[Entry], tick: int) -> None:
        """Do as `restore_unit` would, with entries that are packed already."""
        state = self._states[name]
        assert isinstance(state, KeyedState)
        state.restore_packed(unit, entries, tick)

    def restore(self, captured: Captured, tick: int) -> None:
        """Take over captured state; the hash units of other workers may be left out, but nothing that all share."""
        for name, state in self._states.items():
            state.restore(captured.get(name, {}), tick)
        for node in self._besides:
            if node.beside is not None:
                node.restore_beside(captured.get(node.beside, {}), tick)
