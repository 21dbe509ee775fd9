"""One level of a plan at work on the records that reach it: pure, no I/O, no clock.

    program = Program(plan, level=0)
    feed = program.feed_source(vertex, rows)    # feed.parcels for level 1, feed.delivers, feed.faults
    program = Program(plan, level=1)
    feed = program.feed(parcel.vertex, batch)    # also feed.held, the ticks of what ordered groupings hold
    feed = program.advance(min_time)    # what they were holding below it
    program.prune(global_min_time)

The steps are nodes, each told its followers: a batch goes through one branch after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.held.ordered import Holding
from lowtide.core.operators.joins.join_node import JoinNode
from lowtide.core.operators.joins.join_side import JoinSide
from lowtide.core.operators.joins.join_table import TableJoinNode
from lowtide.core.operators.keyed.beside import BesideNode
from lowtide.core.operators.keyed.ended import EndedGrouping
from lowtide.core.operators.node import Feed
from lowtide.core.operators.nodes import Level
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.memory import Kept
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.plain.exchange import ExchangeNode
from lowtide.core.operators.plain.loop import BACK
from lowtide.core.operators.plain.source import SourceNode
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.grouping import Grouping, GroupingNode
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.core.operators.timers.timed_scan import TimedScanNode
from lowtide.core.operators.windows.late_seen import LateSeen
from lowtide.core.operators.windows.window_node import WindowNode
from lowtide.flow.plan.plan import Plan, is_of
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.steps.steps import (
    Feedback,
    Read,
)

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
        self._clocks = [node for node in self.holding if node.vertex.id in plan.clocked]
        self._states: dict[str, Grouping | BesideNode | WindowNode | TableJoinNode | JoinSide] = {}
        """By the name of the step, or of a join's side."""
        for node in self._nodes.values():
            if isinstance(node, GroupingNode):
                self._states[node.vertex.name] = node.grouping
            elif isinstance(node, BesideNode | WindowNode | TableJoinNode):
                self._states[node.vertex.name] = node
            elif isinstance(node, JoinNode):
                self._states |= {side.name: side for side in node.sides}
        self._lead()

    def _lead(self) -> None:
        """Tell every node its followers, and holding ones whether what they give goes on behind this level."""
        for vertex in self.plan.vertices:
            node = self._nodes.get(vertex.id)
            if node is None or isinstance(node, ExchangeNode):
                continue
            if isinstance(vertex.step, Feedback):
                assert vertex.back is not None, "a way back leads to a head"
                node.lead([(self._nodes[vertex.back], BACK)])
                continue
            children = self.plan.children(vertex.id)
            if isinstance(node, SourceNode) and is_of(vertex, Read):
                node.lead_signs([self._nodes[sign.id] for sign in self.plan.signs_of(vertex)])
            node.lead([(self._nodes[child.id], child.parents.index(vertex.id)) for child in children])
            if isinstance(node, WindowNode) and (late := self.plan.late_of(vertex.id)) is not None:
                node.lead_late(self._nodes[late.id])
            if isinstance(node, JoinNode):
                for port in range(2):
                    late = self.plan.late_of(vertex.id, port)
                    if late is not None:
                        node.lead_late(port, self._nodes[late.id])
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
        return sum([state.repairs for state in self._states.values() if isinstance(state, Grouping)])

    @property
    def late(self) -> dict[str, LateSeen]:
        """Return the late records so far, by window step and by side of a join."""
        found: dict[str, LateSeen] = {}
        for node in self.holding:
            if isinstance(node, WindowNode):
                found[node.vertex.name] = node.late_seen
            elif isinstance(node, JoinNode):
                found |= {side.name: seen for side, seen in zip(node.sides, node.late_seen, strict=True)}
        return found

    @property
    def kept(self) -> dict[str, Kept]:
        """Counts and bytes that steps and sides of joins keep, by their names; a step's timers as `NAME/timers`."""
        found = {name: state.kept for name, state in self._states.items()}
        timed = ((name, state) for name, state in self._states.items() if isinstance(state, TimedScanNode))
        return found | {f"{name}/timers": state.timers for name, state in timed}

    # -- input -----------------------------------------------------------------------------------------------------

    def feed_source(self, vertex: int, rows: SourceRows) -> Feed:
        """Take labelled messages of a source of this level."""
        feed = Feed(rows)
        source = self._nodes[vertex]
        assert isinstance(source, SourceNode), "messages come to sources"
        source.feed(rows, feed)
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

    # -- state -----------------------------------------------------------------------------------------------------

    def prune(self, tick: int) -> None:
        """Forget what only records below `tick` could need: below the global min time only (R14)."""
        for state in self._states.values():
            state.prune(tick)

    def capture(self, tick: int, since: int = FIRST_TICK) -> Captured:
        """The state below a tick, which must not be below one that was pruned at; O(keys).

        Args:
            tick: The T of a snapshot.
            since: Only of hash units that may have changed at this tick or later: the T of a snapshot that has the
                others (papers: *Fault tolerance*).
        """
        captured: Captured = {}
        for name, state in self._states.items():
            captured[name] = state.capture(tick, since)
            if self._saves_shared and isinstance(state, BesideNode) and state.beside is not None:
                captured.setdefault(state.beside, {}).update(state.capture_beside(tick, since))
        return captured

    def look(self, name: str, key: Key, tick: int) -> Any:
        """The state of one key of a step below a tick; `NOTHING` if it has none here."""
        state = self._states.get(name)
        return NOTHING if state is None else state.look(key, tick)

    def ended(self, name: str, labels: Sequence[Key], tick: int) -> dict[Key, int]:
        """By label the tick of its last end below a tick, of those that have ended here; see `EndedGrouping`."""
        state = self._states.get(name)
        return state.ended(labels, tick) if isinstance(state, EndedGrouping) else {}

    def changed(self, since: int) -> bool:
        """Return whether `capture` would find anything."""
        states = self._states.values()
        beside = self._saves_shared and any(
            [state.changed_beside(since) for state in states if isinstance(state, BesideNode)]
        )
        return beside or any([state.changed(since) for state in states])

    def restore(self, captured: Captured, tick: int) -> None:
        """Take over captured state; the hash units of other workers may be left out, but nothing that all share."""
        for name, state in self._states.items():
            state.restore(captured.get(name, {}), tick)
            if isinstance(state, BesideNode) and state.beside is not None:
                state.restore_beside(captured.get(state.beside, {}), tick)
