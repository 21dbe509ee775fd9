"""Rules of tracking broken on purpose: R2, R3, R5 to R8 and R10 as far as the tracker holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from lowtide_tracker import Absolute, Flush, LocalTracker, Table, Tracker
from lowtide_tracker import floors as floors_module
from lowtide_tracker import graph as graph_module
from lowtide_tracker.ack_values import AckValues
from lowtide_tracker.dues import Dues
from lowtide_tracker.fronts import Fronts
from lowtide_tracker.rebuild import Rebuild

from .mutation import Mutation, Patch


def equal_values() -> list[Patch]:
    real = AckValues.__init__

    def init(self: AckValues, worker: int, incarnation: int) -> None:
        real(self, 0 * worker, incarnation)

    return [(AckValues, "__init__", init)]


def applied_twice() -> list[Patch]:
    real = Tracker.receive

    def receive(self: Tracker, message: Any) -> Any:
        if isinstance(message, Flush) and not self.missing and message.number <= self.applied(message.worker):
            self._applied[message.worker] = message.number - 1
        return real(self, message)

    return [(Tracker, "receive", receive)]


def gap_ignored() -> list[Patch]:
    real = Tracker.receive

    def receive(self: Tracker, message: Any) -> Any:
        if isinstance(message, Flush) and not self.missing and message.number > self.applied(message.worker):
            self._applied[message.worker] = message.number - 1
        return real(self, message)

    return [(Tracker, "receive", receive)]


def late_acks(is_late: Any) -> list[Patch]:
    """Acks of some segments go out with the flush after the one they belong to."""
    real = LocalTracker.flush
    waiting: dict[int, dict[int, dict[int, int]]] = {}

    def flush(self: LocalTracker) -> Flush | None:
        late = waiting.pop(id(self), {})
        last = max(self._sums, default=0)
        kept = {segment: self._sums.pop(segment) for segment in list(self._sums) if is_late(segment, last)}
        for segment, sums in late.items():
            for tick, value in sums.items():
                self.fold(segment, (tick,), value)
        waiting[id(self)] = kept
        return real(self)

    return [(LocalTracker, "flush", flush)]


def no_hold() -> list[Patch]:
    def hold(self: LocalTracker, segment: int, tick: int, *, owner: int = 0) -> bool:
        held = (segment, tick, owner) in self._holds
        self._holds[segment, tick, owner] = 0
        return not held

    return [(LocalTracker, "hold", hold)]


def move_without(*, inbound: bool = True, ceilings: bool = True) -> list[Patch]:
    """Min time moves without looking at what feeds a group."""
    real = Tracker._move

    def move(self: Tracker) -> dict[int, int]:
        graph, fronts = self.graph, self._fronts
        sources, beats = graph.inbound, fronts.ceilings
        if not inbound:
            graph.inbound = tuple(() for _ in sources)
            fronts.ceilings = [max(fronts._heartbeats.values()) if beat is None else beat for beat in beats]
        if not ceilings:
            fronts.ceilings = [None if beat is None else max(fronts._heartbeats.values()) for beat in beats]
        try:
            return real(self)
        finally:
            graph.inbound, fronts.ceilings = sources, beats

    return [(Tracker, "_move", move)]


def no_groups() -> list[Patch]:
    real = graph_module._above

    def above(segment: int, feeds: Any) -> frozenset[int]:
        return real(segment, feeds) | {-1 - segment}

    # Groups that feed each other have no root cause: asking for the holder would never end.
    return [(graph_module, "_above", above), (Tracker, "holder", lambda _self, _segment=None: "nobody")]


def connected_fronts_only() -> list[Patch]:
    real = Fronts.apply

    def apply(self: Fronts, newest: dict[int, int]) -> None:
        real(self, newest)
        seen = vars(self).setdefault("seen", set())
        seen.update(newest)
        for group, feeding in enumerate(self._feeding):
            self.ceilings[group] = min((t for f, t in feeding.items() if f in seen), default=self.ceilings[group])

    return [(Fronts, "apply", apply)]


def opened_below() -> list[Patch]:
    def open_front(self: Tracker, front: int, floor: int, feeds: Iterable[int] | None = None) -> int:
        self._fronts.open(front, floor, feeds)
        return floor

    return [(Tracker, "open_front", open_front)]


def closed_still_counts() -> list[Patch]:
    return [(Fronts, "close", lambda self, front: self.heartbeat(front))]


def feedback_counts() -> list[Patch]:
    real = Fronts.open

    def open_front(self: Fronts, front: int, tick: int, feeds: Iterable[int] | None = None) -> None:
        real(self, front, tick, feeds or None)

    return [(Fronts, "open", open_front)]


def table_wraps_early() -> list[Patch]:
    """The table wraps one tick too early, as a ring too short would: the first tick and the last share a sum."""
    real = Table.apply

    def wrapped(table: Table, segment: int, tick: int) -> int:
        base = table.min_time(segment)
        return base + (tick - base) % (table.capacity_ticks - 1)

    def apply(self: Table, acks: Any) -> None:
        real(self, [(segment, wrapped(self, segment, tick), value) for segment, tick, value in acks])

    return [(Table, "apply", apply)]


def limit_too_small() -> list[Patch]:
    real = Table.__init__

    def init(self: Table, segments: Any, capacity_ticks: int, start: int) -> None:
        real(self, segments, capacity_ticks - 1, start)

    return [(Table, "__init__", init)]


def one_too_far() -> list[Patch]:
    real = Table.first_open

    def first_open(self: Table, segment: int, limit: int) -> int:
        return min(limit, real(self, segment, limit) + 1)

    return [(Table, "first_open", first_open)]


def rebuilt_early() -> list[Patch]:
    def missing(self: Rebuild) -> tuple[int, ...]:
        return () if len(self.reports) > len(self.workers) // 2 else self.workers

    return [(Rebuild, "missing", property(missing))]


def rebuilt_unfiltered() -> list[Patch]:
    """Sums below min time are taken over too: of some of them only one half is still there."""

    def take_over(self: Tracker, report: Any) -> None:
        acks = [(segment, max(tick, *self._min), value) for segment, tick, value in report.acks]
        self._table.admit(acks)
        self._table.apply(acks)
        self._fronts.restore(report.heartbeats)
        self._floors.add(report.floors)
        self._applied[report.worker] = report.number

    return [(Tracker, "_take_over", take_over)]


def reports_ahead() -> list[Patch]:
    """A worker reports the heartbeats it has not flushed, with the acks it has."""
    real = LocalTracker.absolute

    def absolute(self: LocalTracker) -> Any:
        self._flushed_heartbeats = dict(self._heartbeats)
        return real(self)

    return [(LocalTracker, "absolute", absolute)]


def raised_first() -> list[Patch]:
    """What has been sent at a tick that was due is acked with the flush after the one that raises the due."""
    real = LocalTracker.flush
    waiting: dict[int, dict[int, dict[int, int]]] = {}

    def flush(self: LocalTracker) -> Flush | None:
        late = waiting.pop(id(self), {})
        raised = {place[0] for place, tick in self._new_dues.items() if later(tick, self._flushed_dues.get(place))}
        kept = {segment: self._sums.pop(segment) for segment in raised if segment in self._sums}
        for segment, sums in late.items():
            for tick, value in sums.items():
                self.fold(segment, (tick,), value)
        waiting[id(self)] = kept
        return real(self)

    return [(LocalTracker, "flush", flush)]


def lowered_late() -> list[Patch]:
    """A due is lowered with the flush after the one that acks its cause."""
    real = LocalTracker.flush

    def flush(self: LocalTracker) -> Flush | None:
        told = self._flushed_dues
        late = {place: tick for place, tick in self._new_dues.items() if place in told and later(told[place], tick)}
        for place in late:
            del self._new_dues[place]
        try:
            return real(self)
        finally:
            self._new_dues.update(late)
            told.update(dict.fromkeys(late, -(1 << 63)))  # With the next one it is told.

    return [(LocalTracker, "flush", flush)]


def later(tick: int | None, before: int | None) -> bool:
    """Whether a due is later than another."""
    return before is not None and (tick is None or tick > before)


def dues_forgotten() -> list[Patch]:
    real = Tracker._take_over

    def take_over(self: Tracker, report: Absolute) -> None:
        real(self, replace(report, dues=tuple((segment, owner, None) for segment, owner, _ in report.dues)))

    return [(Tracker, "_take_over", take_over)]


def untold_is_nothing() -> list[Patch]:
    """A tracker takes it that nothing is due of those that have told nothing."""
    real = Dues.__init__

    def init(self: Dues, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self._ticks = tuple(dict.fromkeys(ticks) for ticks in self._ticks)
        self.limits = [None for _ in self.limits]

    return [(Dues, "__init__", init)]


def floors_untold() -> list[Patch]:
    real = floors_module.Floors.take_new
    return [(floors_module.Floors, "take_new", lambda self: real(self)[1:])]


TRACKING = [
    Mutation("equal-values", "R5, W6", "two workers make the same ack values", "protocol", equal_values),
    Mutation("flush-twice", "R5, W7", "a flush that comes again is applied again", "protocol", applied_twice),
    Mutation("flush-gap", "R5, W7", "a flush that is missing is not missed", "protocol", gap_ignored, {"loss": True}),
    Mutation(
        "heartbeat-first", "R5", "a heartbeat goes before the acks", "protocol", lambda: late_acks(lambda *_: True)
    ),
    Mutation(
        "ack-first",
        "R5",
        "an ack goes before what its frame caused",
        "protocol",
        lambda: late_acks(lambda s, last: s == last),
    ),
    Mutation("no-hold", "R6, W5", "what is held is not folded", "protocol", no_hold),
    Mutation("due-raised-first", "R6b", "a due is raised before the acks of what was sent", "protocol", raised_first),
    Mutation("due-late", "R6b", "a due is lowered after the ack of its cause", "protocol", lowered_late),
    Mutation("due-forgotten", "R6b, R10", "a new tracker forgets what is due", "protocol", dues_forgotten),
    Mutation("due-untold", "R6b", "fronts go ahead of who has not told what is due", "protocol", untold_is_nothing),
    Mutation("no-inbound", "R7", "what feeds a segment is ignored", "protocol", lambda: move_without(inbound=False)),
    Mutation("no-fronts", "R7", "the smallest heartbeat is ignored", "protocol", lambda: move_without(ceilings=False)),
    Mutation("no-groups", "R7, H3", "segments on a cycle limit each other", "protocol", no_groups),
    Mutation("connected-only", "R3, W4c", "min time runs over connected fronts", "protocol", connected_fronts_only),
    Mutation("open-below", "R3, W4a", "a late front opens below min time", "protocol", opened_below),
    Mutation("closed-counts", "R7", "a closed front holds min time", "protocol", closed_still_counts),
    Mutation("feedback-counts", "R7, W16", "the front of a feedback topic holds min time", "protocol", feedback_counts),
    Mutation("ring-short", "R8", "capacity wraps", "protocol", table_wraps_early),
    Mutation("limit-small", "R8", "capacity - 1 is refused", "protocol", limit_too_small),
    Mutation("one-too-far", "min time", "min time passes the first open tick", "protocol", one_too_far),
    Mutation("rebuilt-early", "R9, R10", "a new tracker does not wait for all workers", "protocol", rebuilt_early),
    Mutation("rebuilt-unfiltered", "R10", "a new tracker keeps halves of sums", "protocol", rebuilt_unfiltered),
    Mutation("report-ahead", "R5, R10", "a report's heartbeats are ahead of its acks", "protocol", reports_ahead),
    Mutation("floors-untold", "R2", "a floor does not travel with the notice", "protocol", floors_untold),
]
