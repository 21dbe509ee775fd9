"""Rules of subscriptions that name segments broken on purpose: what notices leave out, and what they may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowtide.core.worker import WorkerCore
from lowtide_tracker import Notice
from lowtide_tracker.audience import Audience
from lowtide_tracker.min_times import MinTimes

from .mutation import Mutation, Patch


def _listens(change: Callable[[WorkerCore], set[int]]) -> list[Patch]:
    """Hosts name less than their workers listen to: not these segments."""
    real: Any = WorkerCore.listens
    return [(WorkerCore, "listens", property(lambda self: real.fget(self) - change(self)))]


def own_part_left_out() -> list[Patch]:
    """A host leaves out the parts of its own workers, as the global min time passes all of it sometime."""
    return _listens(lambda core: {each for parts in core.program.segments.parts.values() for each in parts})


def held_for_left_out() -> list[Patch]:
    """A host leaves out what its steps that hold wait for; what they hold keeps the global min time where it is."""
    return _listens(lambda core: {each for branch in core.branches if branch.holding for each in branch.waits})


def outlets_left_out() -> list[Patch]:
    """A host leaves out the outlets that its calls and sinks listen to."""
    return _listens(lambda core: {*core.program.segments.outlet_of.values()})


def floors_left_out() -> list[Patch]:
    """The floors of notices that a worker was not sent are left out of the next one as well."""

    def floors_after(self: Audience[Any], number: int) -> Any:
        return tuple(floor for at, floors in self._floors[-1:] if self._last and at == self._last.number
                     for floor in floors)  # fmt: skip

    return [(Audience, "_floors_after", floors_after)]


def never_late() -> list[Patch]:
    """Who is not concerned by any notice never learns how far the global min time has come."""

    def late(self: Audience[Any]) -> list[tuple[Any, Notice]]:
        self.behind = False
        return []

    return [(Audience, "late", late)]


def reported_as_heard() -> list[Patch]:
    """A worker reports the min times that it was told, and not the one below which it has dropped its sums."""
    return [(MinTimes, "items", lambda self, _others=(): tuple(self._heard.items()))]


def everybody_told() -> list[Patch]:
    """A notice goes to all, with what each has named of it."""
    real = Audience.tell

    def tell(self: Audience[Any], notice: Notice) -> list[tuple[Any, Notice]]:
        others = {**self._seats}
        for each in self._seats:
            self._leading.setdefault(each, None)
        self._global_min = None
        assert others, "somebody listens"
        return real(self, notice)

    return [(Audience, "tell", tell)]


def everything_named() -> list[Patch]:
    """A notice that concerns a worker names all segments that have moved."""
    real = Audience._share

    def share(self: Audience[Any], seat: Any, notice: Notice) -> Notice | None:
        segments, seat.segments = seat.segments, None
        try:
            return real(self, seat, notice)
        finally:
            seat.segments = segments

    return [(Audience, "_share", share)]


def keys(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    named = {"early_keys": 1.0, "names": 1.0, "faults": 0.0}
    return Mutation(name, rule, what, "flow", patches, named | options)


def of_tracker(name: str, rule: str, what: str, patches: Any) -> Mutation:
    return Mutation(name, rule, what, "protocol", patches)


NAMING = [
    keys("own-part-left-out", "F5", "a worker is not told of its own part", own_part_left_out, letters=True),
    keys(
        "held-for-left-out",
        "R6",
        "a worker is not told of what its holds wait for",
        held_for_left_out,
        flow="index_by_document",
        grouping="ordered",
    ),
    keys("outlets-left-out", "F5", "a worker is not told of the outlet it waits for", outlets_left_out, letters=True),
    of_tracker("floors-left-out", "R2", "floors of what a worker is not told are lost", floors_left_out),
    of_tracker("late-never", "R8, R14", "a worker that nothing concerns never hears of global min time", never_late),
    of_tracker("reported-as-heard", "R10", "a report leaves out where its sums begin", reported_as_heard),
    of_tracker("everybody-told", "F5", "a notice goes to all", everybody_told),
    of_tracker("everything-named", "F5", "a notice names what a worker has left out", everything_named),
]
