"""A worker whose step sends what time alone brings: a flow of two levels, with a step that sends when a record says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from heapq import heappop, heappush
from typing import Any

import pytest
from core_rig import Event, plan, read, reader, total

from lowtide import Flow, json, kafka, raw
from lowtide.core.effects import Effects
from lowtide.core.operators.held.ordered import Holding
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.node import Feed
from lowtide.core.operators.nodes import NODES
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey, tick_of
from lowtide.core.operators.program import Program
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.steps.steps import Scan
from lowtide_tracker import Flush, Graph, LocalTracker, Notice, Request, Tracker

CAPACITY = 1000


class Timer(Scan):
    """A step that sends each record when as many ticks have gone by as its number says."""

    waits = True


class TimerNode(Holding):
    """The same at work; its state is what has not gone out."""

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._pending = Pending(vertex.name)
        self._due: list[tuple[int, int]] = []
        self._passed: list[tuple[int, int]] = []

    @property
    def due_tick(self) -> int | None:
        return self._due[0][0] if self._due else None

    def first_tick(self) -> int | None:
        return self._pending.first_tick

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        self._pending.add(batch)
        self.hold(batch.ticks, feed)

    def advance(self, min_time: int, feed: Feed) -> None:
        for batch in self._pending.release(min_time):
            for at, row in zip(batch.ats, batch.rows, strict=True):
                heappush(self._due, (tick_of(at) + row.number, row.number))
        while self._due and self._due[0][0] < min_time:
            tick, number = heappop(self._due)
            self._passed.append((tick, number))
            at = OrderKey(tick, -1, self.vertex.id, (number,), 0).packed()
            self.pass_on(Batch([at], [0], [Event("a", number)], None, [tick]), feed)

    def capture(self, tick: int) -> list[tuple[int, int]]:
        """What was due as of a tick: what began below it and goes out at it or above."""
        return sorted(due for due in [*self._due, *self._passed] if due[0] - due[1] < tick <= due[0])


@pytest.fixture(autouse=True)
def timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans that are timers are made into such nodes, which keep no state that a program would save."""

    def restore(self: Program, captured: Mapping[str, Any], tick: int) -> None:
        for node in self._clocks:
            assert isinstance(node, TimerNode)
            node._due = list(captured[node.vertex.name])

    monkeypatch.setitem(NODES, Timer, lambda vertex, _: TimerNode(vertex))
    monkeypatch.setattr(Program, "restore", restore)


def timed(level: int = 1, made: Plan | None = None) -> Plan:
    """The flow, with a timer for the scan of a level."""
    made = made or plan()
    vertices = list(made.vertices)
    for vertex in made.vertices:
        step = vertex.step
        if isinstance(step, Scan) and vertex.level == level:
            values = {field.name: getattr(step, field.name) for field in fields(step)}
            vertices[vertex.id] = replace(vertex, step=Timer(**values))
    return replace(made, vertices=tuple(vertices))


def core_of(level: int, flow: Plan, tracker: LocalTracker | None = None, lead: int | None = 100) -> WorkerCore:
    local = tracker or LocalTracker(level, 1, start=0)
    core = WorkerCore(flow, level, 0, tracker=local, grouping="ordered", lead_ticks=lead)
    core.report_due()
    return core


def node_of(core: WorkerCore) -> TimerNode:
    [node] = core.program._clocks
    assert isinstance(node, TimerNode)
    return node


def dues(flush: Flush | None) -> tuple[tuple[int, int, int | None], ...]:
    assert flush is not None
    return flush.dues


class Rig:
    """A tracker and the workers of all levels, each with a local tracker of its own."""

    def __init__(self, level: int = 1, lead: int = 100, flow: Plan | None = None) -> None:
        self.flow = timed(level, flow)
        self.front = reader(max_lead=lead)
        self.cores = [self.front, *(core_of(level, self.flow, lead=lead) for level in (1, 2))]
        segments = segments_of(self.flow)
        graph = Graph(segments.inbound)
        self.tracker = Tracker(graph, {0: 0}, start=0, capacity_ticks=lead + 10, dues=segments.dues)
        self.delivered: list[tuple[int, int]] = []

    def run(self) -> None:
        """Everything goes on until nothing does."""
        going = True
        while going:
            going = False
            for core in self.cores:
                flush = core.flush()
                if flush is not None:
                    going = True
                    for notice in self.tracker.receive(flush):
                        self.hear(notice)

    def hear(self, notice: Notice) -> None:
        for core in self.cores:
            self.spread(core, core.notice(notice))

    def spread(self, core: WorkerCore, effects: Effects) -> None:
        for frame in effects.frames:
            target = self.cores[core.level + 1]
            self.spread(target, target.frame(frame))
        for sink, bundle in effects.bundles:
            for piece in bundle.pieces:
                self.delivered += [(piece.tick, row.number) for row in piece.rows]
            self.spread(core, core.durable(sink, bundle.lane))

    def read(self, *events: tuple[int, int], offset: int = 0) -> None:
        self.spread(self.front, read(self.front, events, offset))


def test_a_due_is_lowered_in_the_flush_that_acks_the_cause_and_raised_with_what_is_sent() -> None:
    core = core_of(1, timed())
    assert dues(core.flush()) == ((2, 0, None),)
    [frame] = read(reader(), [(3, 400)]).frames
    core.frame(frame)
    flush = core.flush()
    assert flush is not None
    assert [ack[:2] for ack in flush.acks] == [(2, 3), (1, 3)], "what is held is a hold, and not due yet"
    assert not flush.dues
    core.notice(Notice(1, 1, 0, {1: 4}, 4))
    flush = core.flush()
    assert flush is not None
    assert ([ack[:2] for ack in flush.acks], flush.dues) == ([(2, 3)], ((2, 0, 403),))
    assert core.ready is False
    effects = core.notice(Notice(1, 2, 1, {1: 404}, 403))
    flush = core.flush()
    assert flush is not None
    assert [frame.ticks for frame in effects.frames] == [[403]]
    assert ([ack[:2] for ack in flush.acks], flush.dues) == ([(2, 403)], ((2, 0, None),))


@pytest.mark.parametrize(("level", "ticks"), [(1, [7, 403, 404, 90_005]), (2, [403, 90_405, 90_407, 90_806])])
def test_what_is_due_is_delivered_in_its_place_however_far_min_time_leaps(level: int, ticks: list[int]) -> None:
    rig = Rig(level)
    rig.run()
    rig.read((3, 400), (5, 90_000), (5, 2), (6, 398), offset=0)
    rig.run()
    assert rig.tracker.holder().tick == 6, "the front holds it"
    rig.read((1_000_000, 7), offset=9)
    rig.run()
    assert [tick for tick, _ in rig.delivered] == ticks
    assert rig.tracker.global_min == 1_000_000
    rig.tracker.check()


def test_what_is_sent_after_a_leap_stays_within_the_table() -> None:
    rig = Rig(lead=1)
    rig.run()
    rig.read((3, 400), (3, 90_000))
    rig.read((1_000_000, 7), offset=9)
    rig.run()
    assert [tick for tick, _ in rig.delivered] == [403, 90_003]


def test_barriers_beside_a_step_wait_for_what_is_sent_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no record can end the life there is no outlet, which what is due would hold."""
    monkeypatch.setattr(Plan, "may_end", lambda _self, _step: False)
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    first = flow.read("events", kafka("events", json(Event))).key_by("key").scan("one", total, 0)
    first.write("beside", kafka("beside", json(Event)))
    first.key_by("number").scan("two", total, 0).write("out", kafka("out", json(Event)))
    rig = Rig(1, lead=1, flow=compile_flow(flow, parallelism=1, units=8, lanes=1, slack_ms=1))
    assert not segments_of(rig.flow).outlet_of
    rig.run()
    rig.read((3, 400), (3, 90_000))
    rig.read((1_000_000, 7), offset=9)
    rig.run()
    assert sorted(tick for tick, _ in rig.delivered) == [403, 403, 90_003, 90_003]


def test_a_restored_worker_tells_what_is_due_before_anything_goes_on() -> None:
    flow = timed()
    segments = segments_of(flow)
    tracker = Tracker(Graph(segments.inbound), {0: 100}, start=100, capacity_ticks=CAPACITY, dues=segments.dues)
    local = LocalTracker(1, 1, start=100)
    tracker.receive(Flush.of(9, 1, heartbeats=[(0, 5000)]))
    assert tracker.min_time(2) == 100
    core = WorkerCore(flow, 1, 0, tracker=local, grouping="ordered", lead_ticks=100)
    [name] = [vertex.name for vertex in flow.vertices if isinstance(vertex.step, Timer)]
    core.restore({name: [(700, 650)]}, 100)  # type: ignore[dict-item]
    flush = core.flush()
    assert dues(flush) == ((2, 0, 700),)
    assert flush is not None
    tracker.receive(flush)
    assert tracker.min_times()[2] == 700


def test_a_snapshot_at_t_has_what_is_due_at_t_or_later() -> None:
    rig = Rig()
    rig.run()
    rig.read((3, 400), (3, 50))
    rig.read((600, 7), offset=9)
    rig.run()
    assert rig.tracker.global_min == 600
    assert node_of(rig.cores[1]).capture(600) == []
    assert node_of(rig.cores[1]).capture(60) == [(403, 400)]
    request = rig.tracker.request(1)
    rig.hear(request)
    assert rig.cores[1].pinned == Request(1, 600)


def test_segments_that_wait_for_dues_are_those_behind_the_steps() -> None:
    assert segments_of(timed(1)).dues == {2: [0]}
    assert segments_of(timed(2)).dues == {3: [0]}, (
        "a scan's state that cannot be saved may end the life: its outlet waits"
    )
    assert segments_of(plan()).dues == {}


def test_workers_without_such_steps_tell_nothing() -> None:
    core = core_of(1, plan())
    assert core.flush() is None
