"""The node of each kind of step, in one table: a new kind of step is listed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from lowtide.core.operators.asking import AskNode
from lowtide.core.operators.call_node import CallNode
from lowtide.core.operators.completing import CompletingNode
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.held.ordered import OrderedNode
from lowtide.core.operators.joins.join_asof import AsofNode
from lowtide.core.operators.joins.join_node import JoinNode
from lowtide.core.operators.joins.join_table import TableJoinNode, TableNode
from lowtide.core.operators.keyed.beside import BesideNode
from lowtide.core.operators.keyed.connect import ConnectNode
from lowtide.core.operators.keyed.deduplicate import DeduplicateGrouping
from lowtide.core.operators.keyed.ended import EndedGrouping
from lowtide.core.operators.keyed.last import LastGrouping
from lowtide.core.operators.keyed.scan import FlatScanGrouping, ScanGrouping
from lowtide.core.operators.node import Node
from lowtide.core.operators.plain.exchange import EntryNode, ExchangeNode
from lowtide.core.operators.plain.loop import AgainNode, LoopNode
from lowtide.core.operators.plain.map_batches import MapBatchesNode
from lowtide.core.operators.plain.merge import MergeNode
from lowtide.core.operators.plain.per_record import FilterNode, FlatMapNode, MapNode, SideNode, SplitNode
from lowtide.core.operators.plain.sink import WriteNode
from lowtide.core.operators.plain.source import SourceNode
from lowtide.core.operators.plain.through import ThroughNode
from lowtide.core.operators.state.grouping import Grouping, GroupingNode
from lowtide.core.operators.timers.clock_node import ClockNode, SignNode
from lowtide.core.operators.timers.substream_node import SubstreamNode
from lowtide.core.operators.timers.timed_scan import TimedScanNode
from lowtide.core.operators.windows.window_node import LateNode, WindowNode
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.plan.segments import Segments
from lowtide.flow.steps import steps
from lowtide.flow.steps.steps import Step
from lowtide.flow.time.durations import ticks_of


@dataclass(frozen=True, slots=True)
class Level:
    """The level that nodes are made for.

    Attributes:
        plan: The plan.
        segments: The plan's.
        level: The level.
        grouping: How stateful steps come to the right order.
        limits: How large records may be; None for no limits.
        nodes: Those made so far, by vertex.
    """

    plan: Plan
    segments: Segments
    level: int
    grouping: str
    limits: Limits | None
    nodes: dict[int, Node] = field(default_factory=dict)

    def make(self, vertex: Vertex) -> None:
        """Add the node of a vertex to `nodes`; those of its parents come before it."""
        if vertex.is_exchange:
            # A loop's way back has its sender's end at the tail.
            node: Node = self.sender(vertex) if vertex.level != self.level else EntryNode(vertex)
        else:
            node = NODES[type(vertex.step)](vertex, self)
        self.nodes[vertex.id] = node

    def sender(self, exchange: Vertex) -> ExchangeNode:
        """The end of an exchange that sends."""
        return ExchangeNode(exchange, self.plan, self.limits)

    def ticks(self, ttl: timedelta | None) -> int | None:
        """A `ttl` in ticks."""
        return None if ttl is None else ticks_of(ttl, self.plan.slack_ms)


def _keyed(vertex: Vertex, at: Level, grouping: Grouping) -> Node:
    """A step with a group for each key: mended or, where the plan says so, in order."""
    if vertex.id in at.segments.round_trips:
        grouping.settles = True  # In order it would wait for itself; without, it would repair itself for long.
        return GroupingNode(vertex, grouping)
    return (OrderedNode if at.grouping == "ordered" else GroupingNode)(vertex, grouping)


def _scan(vertex: Vertex[steps.Scan], at: Level, kind: type[ScanGrouping]) -> Node:
    columns, ticks = at.plan.key_of(vertex), at.ticks(vertex.step.ttl)
    beside, connected = at.plan.broadcast_of(vertex), at.plan.connected(vertex)
    if beside is not None:
        node = BesideNode(vertex, beside, columns, ticks)
        if connected:
            node.key_by_type(connected)
        return node
    grouping = kind(vertex, columns, ticks)
    if connected:
        grouping.key_by_type(connected)
    return _keyed(vertex, at, grouping)


def _one_by_one(vertex: Vertex[steps.Scan], at: Level) -> Node:
    return _scan(vertex, at, ScanGrouping)


def _many_by_one(vertex: Vertex[steps.FlatScan], at: Level) -> Node:
    return _scan(vertex, at, FlatScanGrouping)


def _timed(vertex: Vertex[steps.TimedScan], at: Level) -> Node:
    node = TimedScanNode(vertex, at.plan.broadcast_of(vertex), at.plan, at.ticks(vertex.step.ttl))
    connected = at.plan.connected(vertex)
    if connected:
        node.key_by_type(connected)
    return node


def _last(vertex: Vertex[steps.Last], at: Level) -> Node:
    return _keyed(vertex, at, LastGrouping(vertex, at.plan.key_of(vertex), at.ticks(vertex.step.ttl)))


def _deduplicate(vertex: Vertex[steps.Deduplicate], at: Level) -> Node:
    within = ticks_of(vertex.step.within, at.plan.slack_ms)
    return _keyed(vertex, at, DeduplicateGrouping(vertex, at.plan.key_of(vertex), within))


def _ended(vertex: Vertex[steps.Ended], at: Level) -> Node:
    return _keyed(vertex, at, EndedGrouping(vertex, at.plan))


def _join(vertex: Vertex[steps.Join], at: Level) -> Node:
    return JoinNode(vertex, at.plan, None if at.limits is None else at.limits.max_join_bytes)


def _join_asof(vertex: Vertex[steps.JoinAsof], at: Level) -> Node:
    return AsofNode(vertex, at.plan, None if at.limits is None else at.limits.max_join_bytes)


def _join_table(vertex: Vertex[steps.JoinTable], at: Level) -> Node:
    return TableJoinNode(vertex, at.plan, at.ticks(vertex.step.table.ttl))


def _call(vertex: Vertex[steps.Ask], at: Level) -> CallNode:
    if vertex.step.order == "answer":
        return CompletingNode(vertex)
    return AskNode(vertex, at_once=vertex.id in at.segments.certain)


def _again(vertex: Vertex[steps.Again], at: Level) -> Node:
    feedback = at.plan.feedback_of(vertex)
    if feedback is not None:
        return AgainNode(vertex, at.plan, at.sender(feedback), None)
    assert vertex.back is not None, "a loop's tail knows its head"
    head = at.nodes[vertex.back]
    return AgainNode(vertex, at.plan, head, at.plan.key_of(head.vertex))


NODES: dict[type[Step], Callable[[Vertex[Any], Level], Node]] = {
    steps.Read: lambda vertex, at: SourceNode(vertex, at.plan, at.limits),
    steps.Map: lambda vertex, _: MapNode(vertex),
    steps.FlatMap: lambda vertex, _: FlatMapNode(vertex),
    steps.Filter: lambda vertex, _: FilterNode(vertex),
    steps.Split: lambda vertex, _: SplitNode(vertex),
    steps.Side: lambda vertex, _: SideNode(vertex),
    steps.MapBatches: lambda vertex, _: MapBatchesNode(vertex),
    steps.Merge: lambda vertex, at: MergeNode(vertex, at.plan.name),
    steps.Last: _last,
    steps.Scan: _one_by_one,
    steps.Reduce: _one_by_one,
    steps.Aggregated: _one_by_one,
    steps.FlatScan: _many_by_one,
    steps.TimedScan: _timed,
    steps.Substream: lambda vertex, at: SubstreamNode(vertex, None, at.plan),
    steps.Begun: lambda vertex, _: LateNode(vertex),
    steps.Clock: lambda vertex, at: ClockNode(vertex, at.plan),
    steps.Sign: lambda vertex, at: SignNode(vertex, at.plan),
    steps.Deduplicate: _deduplicate,
    steps.WindowBy: lambda vertex, at: WindowNode(vertex, at.plan),
    steps.WhenDone: lambda vertex, at: WindowNode(vertex, at.plan),
    steps.Through: lambda vertex, _: ThroughNode(vertex),
    steps.Ended: _ended,
    steps.Late: lambda vertex, _: LateNode(vertex),
    steps.Connect: lambda vertex, _: ConnectNode(vertex, len(vertex.parents)),
    steps.Table: lambda vertex, _: TableNode(vertex),
    steps.JoinTable: _join_table,
    steps.Join: _join,
    steps.JoinAsof: _join_asof,
    steps.Loop: lambda vertex, at: LoopNode(vertex, crosses=at.plan.crosses(vertex)),
    steps.Again: _again,
    steps.Ask: _call,
    steps.Answers: lambda vertex, _: ThroughNode(vertex),
    steps.Write: lambda vertex, at: WriteNode(vertex, at.plan.units),
}
"""Makers of nodes, by kind of step; exchanges have theirs by the end that they are."""
