"""What one level of a plan does with the records that reach it: pure, no I/O, no clock.

    program = Program(plan, level=0)
    program.feed_source(vertex, rows)    # -> [Exchange(...), Faults(...), ...]
    program = Program(plan, level=1)
    program.feed(exchange.vertex, batch)    # -> [Deliver(...), Hold(...), ...]
    program.advance(min_time)    # -> what ordered groupings were holding below it
    program.prune(global_min_time)

Outputs stand in the order in which they were made: a batch goes through one branch after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lowtide.operators.batch import Batch
from lowtide.operators.beside import BesideScan
from lowtide.operators.catalogue import operator
from lowtide.operators.exchange import ExchangeOperator, as_columns
from lowtide.operators.failure import Failure
from lowtide.operators.fault import Fault, faults
from lowtide.operators.group import Key
from lowtide.operators.grouping import NOTHING, Grouping
from lowtide.operators.limits import Limits
from lowtide.operators.looping import Turns
from lowtide.operators.merging import MergeOperator
from lowtide.operators.order import FIRST_TICK
from lowtide.operators.ordering import Ordered
from lowtide.operators.output import Deliver, Exchange, Faults, Hold, Output
from lowtide.operators.per_record import Operator
from lowtide.operators.scanning import ScanGrouping
from lowtide.operators.source import SourceOperator, SourceRows
from lowtide.operators.windowing import LastGrouping
from lowtide.plan import Plan, Vertex
from lowtide.steps import Again, Broadcast, KeyBy, Last, Loop, MapBatches, Merge, Read, Relay, Scan, Write

Captured = dict[str, dict[int, list[tuple[Key, Any]]]]
"""State by vertex and hash unit: each key with what is saved of it."""


class Program:
    """The operators of one level.

    Args:
        plan: The plan.
        level: The level.
        grouping: How stateful steps come to the right order; by default as the plan says.
        limits: How large records may be; None for no limits.
    """

    def __init__(self, plan: Plan, level: int, grouping: str | None = None, limits: Limits | None = None) -> None:
        self.plan = plan
        self.level = level
        self._limits = limits
        self._mode = grouping or plan.grouping
        self._children = {vertex.id: plan.children(vertex.id) for vertex in plan.vertices}
        self._sources: dict[int, SourceOperator] = {}
        self._exchanges: dict[int, ExchangeOperator] = {}
        self._operators: dict[int, Operator] = {}
        self._merges: dict[int, MergeOperator] = {}
        self._turns: dict[int, Turns] = {}
        self._groupings: dict[int, Grouping] = {}
        self._ordered: dict[int, Ordered | BesideScan] = {}
        for vertex in plan.vertices:
            if vertex.level == level or (vertex.is_exchange and vertex.level == level + 1):
                self._install(vertex)
        self._outward = self._reaching_exchanges()

    def _install(self, vertex: Vertex) -> None:
        step, job = vertex.step, self.plan.name
        if isinstance(step, Read):
            self._sources[vertex.id] = SourceOperator(job, vertex.name, step.source)
        elif isinstance(step, KeyBy | Relay | Broadcast):
            if vertex.level == self.level + 1:
                self._exchanges[vertex.id] = ExchangeOperator(job, vertex.name, step, self.plan.units)
        elif isinstance(step, Last | Scan):
            self._install_grouping(vertex)
        elif isinstance(step, Merge):
            self._merges[vertex.id] = MergeOperator(job, vertex.name, self.plan.units)
        elif isinstance(step, Again):
            self._turns[vertex.id] = Turns(vertex, self.plan)
        elif not isinstance(step, Write | Loop):
            worker = operator(vertex)
            assert worker is not None, f"no operator for {step}"
            self._operators[vertex.id] = worker

    def _install_grouping(self, vertex: Vertex) -> None:
        columns = self.plan.key_of(vertex)
        beside = self.plan.broadcast_of(vertex) if isinstance(vertex.step, Scan) else None
        if beside is not None:
            self._ordered[vertex.id] = BesideScan(vertex, beside, columns)
            return
        grouping = (ScanGrouping if isinstance(vertex.step, Scan) else LastGrouping)(vertex, columns)
        self._groupings[vertex.id] = grouping
        if self._mode == "ordered":
            self._ordered[vertex.id] = Ordered(grouping, f'step "{vertex.name}"', vertex.depth)

    def _reaching_exchanges(self) -> set[int]:
        """The vertices of this level whose records may go on to the next one."""
        reaching: set[int] = set()
        for vertex in reversed(self.plan.vertices):
            children = self._children[vertex.id]
            if any(child.id in self._exchanges or child.id in reaching for child in children):
                reaching.add(vertex.id)
        return reaching

    @property
    def holds(self) -> bool:
        """Whether there are groupings that wait for min time."""
        return bool(self._ordered)

    @property
    def repairs(self) -> int:
        """How many outputs of groupings have been taken back so far."""
        return sum(grouping.repairs for grouping in self._groupings.values())

    # -- input -----------------------------------------------------------------------------------------------------

    def feed_source(self, vertex: int, rows: SourceRows) -> list[Output]:
        """Take labelled messages of a source of this level."""
        source, large = self.plan.vertices[vertex], None
        if self._limits is not None:
            rows, large = self._limits.messages(rows, source, self._sources[vertex].meta)
        feed = _Feed(rows)
        if large is not None:
            feed.outputs.append(Faults(large))
        stepped = self._sources[vertex].parse(rows)
        if stepped.failures:
            meta = self._sources[vertex].meta(rows)
            feed.outputs.append(Faults(faults(source, meta, stepped.failures, rows)))
        self._pass_on(source, stepped.batch, feed)
        return self._finish(feed)

    def feed(self, vertex: int, batch: Batch) -> list[Output]:
        """Take records of an exchange that this level receives."""
        feed = _Feed()
        self._pass_on(self.plan.vertices[vertex], batch, feed)
        return self._finish(feed)

    def advance(self, min_time: int) -> list[Output]:
        """Process what ordered groupings hold below the level's min time, in topological order."""
        feed = _Feed()
        for vertex, ordered in self._ordered.items():
            self._emit(self.plan.vertices[vertex], ordered.advance(min_time), feed)
            self._work(feed)
        return self._finish(feed)

    # -- state -----------------------------------------------------------------------------------------------------

    def prune(self, tick: int) -> None:
        """Forget what only records below `tick` could need: below the global min time only (R14)."""
        for grouping in self._states().values():
            grouping.prune(tick)

    def capture(self, tick: int, since: int = FIRST_TICK) -> Captured:
        """The state below a tick, which must not be below one that was pruned at; O(keys).

        Args:
            tick: The T of a snapshot.
            since: Only of hash units that may have changed at this tick or later: the T of a snapshot that has the
                others (papers: *Fault tolerance*).
        """
        captured: Captured = {}
        for vertex, each in self._states().items():
            name, beside = self._saved_as(vertex)
            captured[name] = each.capture(tick, since)
            if isinstance(each, BesideScan):
                captured[beside] = each.capture_beside(tick, since)
        return captured

    def look(self, name: str, key: Key, tick: int) -> Any:
        """The state of one key of a step below a tick; `NOTHING` if it has none here."""
        for vertex, each in self._states().items():
            if self.plan.vertices[vertex].name == name:
                return each.look(key, tick)
        return NOTHING

    def changed(self, since: int) -> bool:
        """Whether `capture` would find anything."""
        return any(len(each.changed(since)) for each in self._states().values())

    def restore(self, captured: Captured, tick: int) -> None:
        """Take over captured state; the hash units of other workers may be left out."""
        for vertex, each in self._states().items():
            name, beside = self._saved_as(vertex)
            each.restore(captured.get(name, {}), tick)
            if isinstance(each, BesideScan):
                each.restore_beside(captured.get(beside, {}))

    def _saved_as(self, vertex: int) -> tuple[str, str]:
        """The names of a stateful step, and of the broadcast that it looks at."""
        step = self.plan.vertices[vertex]
        beside = self.plan.broadcast_of(step) if isinstance(step.step, Scan) else None
        return step.name, "" if beside is None else beside.name

    def _states(self) -> dict[int, Grouping | BesideScan]:
        beside = {vertex: each for vertex, each in self._ordered.items() if isinstance(each, BesideScan)}
        return {**self._groupings, **beside}

    # -- the way through -------------------------------------------------------------------------------------------

    def _finish(self, feed: _Feed) -> list[Output]:
        self._work(feed)
        if feed.held:
            feed.outputs.append(Hold(sorted(feed.held)))
        return feed.outputs

    def _work(self, feed: _Feed) -> None:
        """Send round what a loop has to take once more."""
        while feed.again:
            head, batch = feed.again.popleft()
            self._enter(head, batch, feed)

    def _pass_on(self, vertex: Vertex, batch: Batch, feed: _Feed) -> None:
        """Give the records that came out of a vertex to all that take them."""
        children = self._children[vertex.id]
        for ordinal, child in enumerate(children, 1):
            if len(batch) == 0:
                return
            if isinstance(child.step, Write | MapBatches) or child.id in self._exchanges:
                stepped = as_columns(batch)
                self._bury(vertex, batch.meta, stepped.failures, feed)
                batch = stepped.batch
                if len(batch) == 0:
                    return
            branch = batch if len(children) == 1 else batch.with_meta(batch.meta.with_child(ordinal))
            self._give(child, child.parents.index(vertex.id), branch, feed)

    def _give(self, child: Vertex, port: int, batch: Batch, feed: _Feed) -> None:
        """Let a vertex take records at one of its ports."""
        if child.id in self._exchanges:
            self._exchange(child, batch, feed)
        elif child.id in self._operators:
            stepped = self._operators[child.id].apply(batch)
            self._bury(child, batch.meta, stepped.failures, feed)
            self._pass_on(child, stepped.batch, feed)
        elif child.id in self._ordered:
            self._hold(child, self._ordered[child.id], port, batch, feed)
        elif child.id in self._groupings:
            self._emit(child, self._groupings[child.id].insert(batch), feed)
        elif child.id in self._merges:
            self._pass_on(child, self._merges[child.id].take(batch, port), feed)
        elif child.id in self._turns:
            self._turn(child, batch, feed)
        elif isinstance(child.step, Loop):
            self._enter(child, batch, feed)
        else:
            assert isinstance(child.step, Write), f"no operator for {child.step}"
            feed.outputs.append(Deliver(child.id, batch))

    def _exchange(self, exchange: Vertex, batch: Batch, feed: _Feed) -> None:
        if self._limits is not None:
            batch, large = self._limits.records(batch, exchange)
            if large is not None:
                feed.outputs.append(Faults(large))
        if len(batch):
            feed.outputs.append(Exchange(exchange.id, self._exchanges[exchange.id].assign(batch)))

    def _hold(self, vertex: Vertex, ordered: Ordered | BesideScan, port: int, batch: Batch, feed: _Feed) -> None:
        outputs: list[Batch] = []
        if isinstance(ordered, BesideScan):
            ticks = ordered.insert(batch, port)
        else:
            outputs, ticks = ordered.insert(batch)
        if vertex.id in self._outward:
            feed.held.update(ticks)
        self._emit(vertex, outputs, feed)

    def _enter(self, head: Vertex, batch: Batch, feed: _Feed) -> None:
        self._pass_on(head, batch.with_meta(batch.meta.with_child(head.loop_mark)), feed)

    def _turn(self, tail: Vertex, batch: Batch, feed: _Feed) -> None:
        turned = self._turns[tail.id].apply(batch)
        self._bury(tail, batch.meta, turned.failures, feed)
        assert tail.back is not None
        if len(turned.again):
            feed.again.append((self.plan.vertices[tail.back], turned.again))
        self._pass_on(tail, turned.leaving, feed)

    def _emit(self, vertex: Vertex, batches: Iterable[Batch], feed: _Feed) -> None:
        """Take what came out of a stateful step: outputs with a schema or windows, faults."""
        for batch in batches:
            if type(batch.rows()[0]) is not Fault:
                self._pass_on(vertex, batch, feed)
            else:
                feed.outputs.append(Faults(batch))

    def _bury(self, vertex: Vertex, meta: Any, failures: Sequence[Failure], feed: _Feed) -> None:
        if failures:
            feed.outputs.append(Faults(faults(vertex, meta, failures, feed.rows)))


@dataclass(slots=True)
class _Feed:
    """One call's input, where it is messages; what has come of it so far; and what a loop still has to take."""

    rows: SourceRows | None = None
    outputs: list[Output] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    again: deque[tuple[Vertex, Batch]] = field(default_factory=deque)
