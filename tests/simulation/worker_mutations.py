"""Rules that a worker's core holds, broken on purpose: what it sends, holds and listens to, and in which order."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from lowtide.core import early_frames as early_module
from lowtide.core.effects import Effects, Frame
from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.batch import Batch
from lowtide.core.operators.exchange import ExchangeNode
from lowtide.core.operators.grouping import GroupingNode
from lowtide.core.operators.node import Parcel
from lowtide.core.operators.pending import Pending
from lowtide.core.operators.scan import ScanGrouping
from lowtide.core.worker import WorkerCore
from lowtide_tracker import Floor

from .mutation import Mutation, Patch


def one_value_for_all() -> list[Patch]:
    """A frame's value is made once, whatever number of targets it goes to."""

    def send(self: WorkerCore, parcels: list[Parcel], effects: Effects) -> None:
        value = self.tracker.new_value()
        for parcel in parcels:
            ticks = parcel.batch.ticks
            self.tracker.fold(self.level + 1, ticks, value)
            effects.frames.append(Frame(parcel.vertex, parcel.target, value, ticks, parcel.batch, parcel.payload))

    return [(WorkerCore, "_send", send)]


def last_tick_only() -> list[Patch]:
    """A frame is acked at its last tick; at its first one alone would be safe, as min time stays below that."""
    real = WorkerCore._send

    def send(self: WorkerCore, parcels: list[Parcel], effects: Effects) -> None:
        fold = self.tracker.fold
        vars(self.tracker)["fold"] = lambda segment, ticks, value: fold(segment, ticks[-1:], value)
        try:
            real(self, parcels, effects)
        finally:
            del vars(self.tracker)["fold"]

    return [(WorkerCore, "_send", send)]


def held_in_its_own_segment() -> list[Patch]:
    def hold(self: WorkerCore, ticks: list[int]) -> None:
        for tick in ticks:
            if self.tracker.hold(self.level, tick):
                heappush(self._holds, tick)

    return [(WorkerCore, "_hold", hold)]


def released_before_it_is_out() -> list[Patch]:
    """Holds of a tick end with the notice before the one that lets it out."""
    real = WorkerCore._advance

    def advance(self: WorkerCore, effects: Effects) -> None:
        real(self, effects)
        if self._holds:
            tick = heappop(self._holds)
            self.tracker.release(self.level + 1, tick)

    return [(WorkerCore, "_advance", advance)]


def barriers_first() -> list[Patch]:
    """On a notification barriers release before ordered groupings have given what belongs to them."""
    real_moved, real_advance = WorkerCore.moved, WorkerCore._advance

    def moved(self: WorkerCore, floors: tuple[Floor, ...]) -> Effects:
        self._told = floors  # type: ignore[attr-defined]
        return real_moved(self, floors)

    def advance(self: WorkerCore, effects: Effects) -> None:
        self._release(self._told, effects)  # type: ignore[attr-defined]
        real_advance(self, effects)

    return [(WorkerCore, "moved", moved), (WorkerCore, "_advance", advance)]


def listens_upstream() -> list[Patch]:
    """Barriers and ordered groupings listen to the segment that feeds theirs."""

    def min_time(self: WorkerCore) -> int:
        return self.tracker.min_time(max(1, self.level - 1))

    return [(WorkerCore, "min_time", property(min_time))]


def copies_left_out() -> list[Patch]:
    """A broadcast does not go to every hash unit."""
    real = ExchangeNode._copies

    def copies(self: ExchangeNode, batch: Batch) -> Batch:
        made = real(self, batch)
        return made.where([unit % 2 == 0 for unit in made.units])

    return [(ExchangeNode, "_copies", copies)]


def repaired_without_tombstones() -> list[Patch]:
    real = GroupingNode.emit

    def emit(self: GroupingNode, outputs: Batch | None, faults: Batch | None, feed: Any) -> None:
        real(self, items_of(outputs), items_of(faults), feed)

    return [(GroupingNode, "emit", emit)]


def items_of(batch: Batch | None) -> Batch | None:
    """A batch without its tombstones; None where nothing is left."""
    if batch is None or batch.flags is None:
        return batch
    items = batch.where([not flag for flag in batch.flags])
    return items if items.ats else None


def no_repair() -> list[Patch]:
    """A record that comes late is put where it came, not where it belongs."""
    real = ScanGrouping._append

    def append(self: ScanGrouping, batch: Batch, appended: Any) -> None:
        for row in batch.rows:
            group = self._groups.get(self._key(row))
            if group is not None and batch.flags is None:
                group.elements = [(b"", *element[1:]) for element in group.elements]
        real(self, batch, appended)

    return [(ScanGrouping, "_append", append)]


def back_in_time() -> list[Patch]:
    """What comes below a released tick is let through."""
    real = Pending.add

    def add(self: Pending, batch: Batch) -> None:
        released, self.released = self.released, -(1 << 63)
        try:
            real(self, batch)
        finally:
            self.released = released

    def no_hold(self: WorkerCore, ticks: list[int]) -> None:
        """Nothing is folded for what is held."""

    return [(Pending, "add", add), (WorkerCore, "_hold", no_hold)]


def two_in_flight() -> list[Patch]:
    real = Barrier._next

    def next_bundle(self: Barrier, lane: int) -> Any:
        self._lanes[lane].in_flight = None
        return real(self, lane)

    return [(Barrier, "_next", next_bundle)]


def cut_with_all_its_acks() -> list[Patch]:
    """What lies in the window of a frame is acked for the rest of it as well."""
    real = vars(early_module)["_cut"]

    def cut(frame: Frame, end: int) -> Any:
        now, later = real(frame, end)
        return Frame(now.vertex, now.target, now.value, frame.ticks, now.batch, now.payload), later

    return [(early_module, "_cut", cut)]


def cut_and_lost() -> list[Patch]:
    """What lies beyond the window of a frame is forgotten."""
    real = vars(early_module)["_cut"]

    def cut(frame: Frame, end: int) -> Any:
        return real(frame, end)[0], None

    return [(early_module, "_cut", cut)]


def flow(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "flow", patches, options)


WORKER = [
    flow("one-value", "R5, W6", "frames to several targets share a value", one_value_for_all),
    flow("last-tick-only", "R5", "a frame is acked at its last tick", last_tick_only),
    flow("held-inside", "R6, W5", "what is held is folded into its own segment", held_in_its_own_segment,
         flow="three_levels", grouping="ordered"),
    flow("released-early", "R6", "a hold ends before what was held is out", released_before_it_is_out,
         flow="three_levels", grouping="ordered"),
    flow("barriers-first", "R6, R12", "barriers release before ordered groupings", barriers_first, grouping="ordered"),
    flow("listens-upstream", "R7, W5", "a level listens to the min time of the one before", listens_upstream,
         flow="three_levels"),
    flow("copies-left-out", "R4", "a broadcast does not reach every hash unit", copies_left_out, flow="beside"),
    flow("no-tombstones", "R12", "a repair takes nothing back", repaired_without_tombstones,
         flow="index", grouping="optimistic"),
    flow("no-repair", "R12", "a late record counts as the newest", no_repair,
         flow="two_sources", grouping="optimistic"),
    flow("back-in-time", "R12, W5", "what comes below a released tick is let through", back_in_time,
         flow="three_levels", grouping="ordered"),
    flow("cut-acks", "R5", "a part of a frame is acked for the whole", cut_with_all_its_acks),
    flow("cut-lost", "R5", "the part of a frame that lies ahead is lost", cut_and_lost),
    flow("two-in-flight", "R13", "a lane has two bundles in flight", two_in_flight),
]  # fmt: skip
