"""Rules of clocks and of the ends of substreams broken on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lowtide.core import worker as worker_module
from lowtide.core.operators import program as program_module
from lowtide.core.operators.keyed.beside import BesideNode
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.order import tick_bytes, tick_of
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.state.group import Group, Key
from lowtide.core.operators.state.keyed_state import KeyedState
from lowtide.core.operators.timers.clock_node import ClockNode
from lowtide.core.operators.timers.substream_node import SubstreamNode
from lowtide.core.operators.timers.timed_scan import TimedScanNode
from lowtide.core.operators.windows import windows as windows_module
from lowtide.core.operators.windows.window_node import WindowNode
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan import segments as segments_module
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import Segments, segments_of
from lowtide.flow.steps.steps import Clock, WhenDone
from lowtide.flow.steps.windows import Tumbling, Until, spans_of

from .mutation import Mutation, Patch


def one_source_alone() -> list[Patch]:
    """A clock strikes as soon as one of the sources has come so far."""
    real = segments_module._Layout._feeds

    def feeds(self: Any) -> dict[str, list[int]]:
        clocks = {
            each for vertex in self._vertices if isinstance(vertex.step, Clock) for each in self._waits[vertex.id]
        }
        first, *others = real(self).items()
        return dict([first, *((topic, [each for each in fed if each not in clocks]) for topic, fed in others)])

    return [(segments_module._Layout, "_feeds", feeds)]


def not_through() -> list[Patch]:
    """A `when_done` gives records when their own exchange is through, wherever what came of them is."""

    def found(plan: Plan) -> Segments:
        segments = segments_of(plan)
        waits = dict(segments.waits)
        for vertex in plan.vertices:
            if isinstance(vertex.step, WhenDone):
                waits[vertex.id] = segments.waits[vertex.parents[0]]
        return replace(segments, waits=waits)

    return [(program_module, "segments_of", found)]


def before_its_tick_is_over() -> list[Patch]:
    """A `when_done` in the stream's order gives a tick's records while others of the tick are under way."""
    real = WindowNode.go_on

    def go_on(self: WindowNode, min_time: int, feed: Feed, portion: Portion) -> int:
        step = self.vertex.step
        early = 2 * (isinstance(step, WhenDone) and step.order == "stream")
        return min(min_time, real(self, min_time + early, feed, portion))

    return [(WindowNode, "go_on", go_on)]


def gone_with_its_time() -> list[Patch]:
    """A snapshot leaves out the keys that are forgotten at its tick, though nobody has been told yet."""
    real = KeyedState._below

    def below(self: KeyedState, group: Group, tick: int) -> Any:
        ttl = self._ttl
        if isinstance(self, TimedScanNode) and ttl is not None:
            self._ttl = ttl - 1
        try:
            return real(self, group, tick)
        finally:
            self._ttl = ttl

    return [(KeyedState, "_below", below)]


def not_restored() -> list[Patch]:
    """A clock of a snapshot waits for the next sign before it strikes again."""
    return [(ClockNode, "restore", BesideNode.restore)]


def a_tick_early() -> list[Patch]:
    """A clock strikes a tick before its moment, when records of this tick are still to come."""
    real = TimedScanNode._ask

    def ask(self: TimedScanNode, key: Key, unit: int, asked: int | None, fires: int | None) -> None:
        real(self, key, unit, asked, None if fires is None else fires - 1)

    return [(TimedScanNode, "_ask", ask)]


def holds_forgotten() -> list[Patch]:
    """A worker is not asked to go on for holds alone."""
    real = WorkerCore.ready.fget  # type: ignore[attr-defined]

    def ready(self: WorkerCore) -> Any:
        holds, self._holds = self._holds, {}
        try:
            return real(self)
        finally:
            self._holds = holds

    return [(worker_module.WorkerCore, "ready", property(ready))]


def at_the_time_of_arrival() -> list[Patch]:
    """A substream goes by the newest log time that a worker has seen, instead of that of the record."""
    real, newest = SubstreamNode.advance, SubstreamNode._seen

    def advance(self: SubstreamNode, min_time: int, feed: Feed) -> None:
        self._min_time = min_time  # type: ignore[attr-defined]
        real(self, min_time, feed)

    def seen(self: SubstreamNode, at: bytes) -> tuple[Any, ...]:
        began = tick_bytes(min(tick_of(at) + 5, self._min_time - 1))  # type: ignore[attr-defined]
        return newest(self, began + at[len(began) :])

    return [(SubstreamNode, "advance", advance), (SubstreamNode, "_seen", seen)]


def before_what_is_between() -> list[Patch]:
    """A `when_done` gives records after their own tick, though windows between still have them."""

    def spans(windows: Any) -> Any:
        return spans_of(Tumbling(windows.slack) if isinstance(windows, Until) else windows)

    return [(windows_module, "spans_of", spans)]


def flow(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "flow", patches, options)


SUBSTREAMS = [
    flow("clock-of-one-source", "R7", "a clock does not wait for all sources", one_source_alone, flow="clocks"),
    flow("clock-early", "R4", "a clock strikes before all of earlier times is there", a_tick_early, flow="clocks"),
    flow("clock-stopped", "R6b", "a clock stands still in the next life", not_restored, flow="clocks", snapshots=4),
    flow("done-not-through", "R7", "a substream is done when its opening is", not_through, flow="through"),
    flow("end-in-its-tick", "R4", "an end comes before its tick is over", before_its_tick_is_over, flow="in_order"),
    flow("left-unsaid", "R14", "a key leaves unsaid at a snapshot", gone_with_its_time, flow="leaving", snapshots=4),
    flow("time-of-arrival", "R4", "a substream goes by the time of arrival", at_the_time_of_arrival, flow="visits"),
    flow(
        "done-before-windows", "R4", "an end comes before windows have closed", before_what_is_between, flow="between"
    ),
    flow("holds-forgotten", "R6", "holds stay where nothing is held any more", holds_forgotten, flow="through"),
]
