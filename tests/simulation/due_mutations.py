"""Rules of what is due broken on purpose, at workers that have windows; those of the tracker are in its mutations."""

from __future__ import annotations

from heapq import heappop
from typing import Any

from lowtide.core.operators.keyed.beside import BesideNode
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.program import Program
from lowtide.core.operators.timers.timed_scan import TimedScanNode
from lowtide.core.operators.timers.timing import Timing
from lowtide.core.operators.windows import windows as windows_module
from lowtide.core.operators.windows.window_node import WindowNode
from lowtide.core.worker import WorkerCore
from lowtide.flow.time.moments import tick_due

from .mutation import Mutation, Patch


def nothing_due() -> list[Patch]:
    """A worker tells that nothing is due, whatever is."""
    return [(Program, "due", lambda _self, _segment: None)]


def told_at_the_next_notice() -> list[Patch]:
    """What a worker tells is what was due when it told something before."""
    before: dict[tuple[int, int], int | None] = {}

    def report_due(self: WorkerCore) -> None:
        for segment in self._reports_due:
            due = before.get((id(self), segment))
            before[id(self), segment] = self.program.due(segment)
            self.tracker.due(segment, due, owner=self._owners[segment])

    return [(WorkerCore, "report_due", report_due)]


def all_at_once() -> list[Patch]:
    """After a leap of min time everything that was due meanwhile goes out."""
    return [(WorkerCore, "_lead_end", None)]


def due_at_min_time() -> list[Patch]:
    """What is due at min time goes out, though a clock upstream may still send at this tick."""
    real = WindowNode.go_on

    def go_on(self: WindowNode, min_time: int, feed: Feed, portion: Portion) -> int:
        reached = real(self, min_time, feed, portion)
        while reached == min_time and self.due_tick == min_time:
            self._tick(min_time, None, feed, Portion())
        return reached

    return [(WindowNode, "go_on", go_on)]


def closed_left_out() -> list[Patch]:
    """A snapshot has the windows that are open now, not those that were below its T."""
    real = WindowNode.capture

    def capture(self: WindowNode, tick: int, since: int = -(1 << 63)) -> Any:
        return real(self, max(tick, 1 << 40), since)

    return [(WindowNode, "capture", capture)]


def told_as_done() -> list[Patch]:
    """A step that has closed some of the windows of a tick says that it has come to min time."""
    real = WindowNode.go_on

    def go_on(self: WindowNode, min_time: int, feed: Feed, portion: Portion) -> int:
        real(self, min_time, feed, portion)
        return min_time

    return [(WindowNode, "go_on", go_on)]


def let_go_in_the_midst() -> list[Patch]:
    """Holds end below what min time has passed, though a step has not come so far."""

    def let_go(self: WorkerCore, segment: int, ticks: list[int]) -> None:
        reached = min(branch.limit(self._lead_end) for branch in self._holders[segment])
        while ticks and ticks[0] < reached:
            self.tracker.release(segment, heappop(ticks), owner=self._owners[segment])

    return [(WorkerCore, "_let_go", let_go)]


def raised_in_the_midst() -> list[Patch]:
    """With the first of the windows that close at a tick, what is due there is told to be over."""
    real = WindowNode.due_tick.fget  # type: ignore[attr-defined]

    def due_tick(self: WindowNode) -> Any:
        return real(self) if self._closing is None else None

    return [(WindowNode, "due_tick", property(due_tick))]


def timers_not_restored() -> list[Patch]:
    """A life that begins from a snapshot has no timers."""
    return [(TimedScanNode, "restore", BesideNode.restore)]


def a_tick_early() -> list[Patch]:
    """A timer fires a tick before its moment."""

    def fires(self: Timing, asked: int, tick: int) -> int:
        return max(tick_due(asked, self._slack_us) - 1, tick + 1)

    return [(Timing, "fires", fires)]


def none_as_marker() -> list[Patch]:
    """A session whose state is None counts as one that another has taken in."""
    return [(windows_module, "TAKEN_IN", None)]


def flow(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "flow", patches, {"flow": "windows_of_windows"} | options)


TIMERS: dict[str, Any] = {"flow": "timers", "snapshots": 4}

DUE = [
    flow("due-unsaid", "R6b", "a worker says that nothing is due", nothing_due),
    flow("due-behind", "R6b", "a worker tells what was due the time before", told_at_the_next_notice),
    flow("due-leap", "R6b, R8", "after a leap all that was due goes out at once", all_at_once),
    flow("due-at-once", "R6b", "what is due does not wait for clocks upstream", due_at_min_time),
    flow("closed-left-out", "R14", "a snapshot lacks windows that closed above its T", closed_left_out, snapshots=4),
    flow("due-half-done", "R12", "a tick at which some windows have closed is told to be over", told_as_done),
    flow("due-half-held", "R6", "holds end though the step has not come to min time", let_go_in_the_midst),
    flow("due-half-told", "R6b", "a due is raised with the first of its windows", raised_in_the_midst),
    flow("none-as-marker", "R6b", "a session whose state is None never closes", none_as_marker, flow="sessions"),
    flow("timers-forgotten", "R6b", "a life has no timers of the life before", timers_not_restored, **TIMERS),
    flow("timer-early", "R4", "a timer fires a tick before its moment", a_tick_early, **TIMERS),
]
