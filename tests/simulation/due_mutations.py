"""Rules of what is due broken on purpose, at workers that have windows; those of the tracker are in its mutations."""

from __future__ import annotations

from typing import Any

from lowtide.core.operators.node import Feed
from lowtide.core.operators.program import Program
from lowtide.core.operators.window_node import WindowNode
from lowtide.core.worker import WorkerCore

from .mutation import Mutation, Patch


def nothing_due() -> list[Patch]:
    """A worker tells that nothing is due, whatever is."""
    return [(Program, "due_outward", property(lambda _self: None))]


def told_at_the_next_notice() -> list[Patch]:
    """What a worker tells is what was due when it told something before."""
    before: dict[int, int | None] = {}

    def tell_due(self: WorkerCore) -> None:
        if self._tells_due:
            due = before.get(id(self))
            before[id(self)] = self.program.due_outward
            self.tracker.due(self.level + 1, due, owner=self._owner)

    return [(WorkerCore, "tell_due", tell_due)]


def all_at_once() -> list[Patch]:
    """After a leap of min time everything that was due meanwhile goes out."""
    return [(WorkerCore, "horizon", property(lambda self: self.min_time))]


def due_at_min_time() -> list[Patch]:
    """What is due at min time goes out, though a clock upstream may still send at this tick."""
    real = WindowNode.advance

    def advance(self: WindowNode, min_time: int, feed: Feed) -> None:
        real(self, min_time, feed)
        while self.due_tick == min_time:
            self._tick(min_time, None, feed)

    return [(WindowNode, "advance", advance)]


def closed_left_out() -> list[Patch]:
    """A snapshot has the windows that are open now, not those that were below its T."""
    real = WindowNode.capture

    def capture(self: WindowNode, tick: int, since: int = -(1 << 63)) -> Any:
        return real(self, max(tick, 1 << 40), since)

    return [(WindowNode, "capture", capture)]


def flow(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "flow", patches, {"flow": "windows_of_windows"} | options)


DUE = [
    flow("due-unsaid", "R6b", "a worker says that nothing is due", nothing_due),
    flow("due-behind", "R6b", "a worker tells what was due the time before", told_at_the_next_notice),
    flow("due-leap", "R6b, R8", "after a leap all that was due goes out at once", all_at_once),
    flow("due-at-once", "R6b", "what is due does not wait for clocks upstream", due_at_min_time),
    flow("closed-left-out", "R14", "a snapshot lacks windows that closed above its T", closed_left_out, snapshots=4),
]
