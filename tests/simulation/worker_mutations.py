"""Rules that a worker's core holds, broken on purpose: what it sends, holds and listens to, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Any

from lowtide.core import branch as branch_module
from lowtide.core import early_frames as early_module
from lowtide.core import worker as worker_module
from lowtide.core.effects import Effects, Frame
from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.keyed.scan import ScanGrouping
from lowtide.core.operators.node import Parcel
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.plain.exchange import ExchangeNode
from lowtide.core.operators.program import Program
from lowtide.core.operators.state.grouping import GroupingNode
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan import segments as segments_module
from lowtide.flow.plan.plan import Vertex
from lowtide_tracker import Floor, LocalTracker

from .mutation import Mutation, Patch


def one_value_for_all() -> list[Patch]:
    """A frame's value is made once, whatever number of targets it goes to."""

    def send(self: WorkerCore, parcels: list[Parcel], effects: Effects) -> None:
        value = self.tracker.new_value()
        for parcel in parcels:
            ticks = parcel.batch.ticks
            self.tracker.fold(self._sent_in[parcel.vertex][parcel.target], ticks, value)
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
    """What is held is folded into a segment that the step waits for, and let go with the others."""
    real = LocalTracker.hold

    def hold(self: WorkerCore, held: Mapping[int, Iterable[int]]) -> None:
        for segment, ticks in held.items():
            heap, owner = self._holds.setdefault(segment, []), self._owners[segment]
            for tick in sorted(ticks):
                if real(self.tracker, self.entries[0], tick, owner=owner):
                    heappush(heap, tick)

    def let_go(self: WorkerCore, segment: int, ticks: list[int]) -> None:
        reached = min([branch.reached for branch in self._holders[segment]])
        while ticks and ticks[0] < reached:
            self.tracker.release(self.entries[0], heappop(ticks), owner=self._owners[segment])

    return [(WorkerCore, "_hold", hold), (WorkerCore, "_let_go", let_go)]


def released_before_it_is_out() -> list[Patch]:
    """Holds of a tick end with the notice before the one that lets it out."""
    real = WorkerCore._advance

    def advance(self: WorkerCore, effects: Effects) -> None:
        real(self, effects)
        for segment, ticks in self._holds.items():
            if ticks:
                self.tracker.release(segment, heappop(ticks), owner=self._owners[segment])

    return [(WorkerCore, "_advance", advance)]


def barriers_first() -> list[Patch]:
    """On a notification barriers release before ordered groupings have given what belongs to them."""
    real_moved, real_advance = WorkerCore.moved, WorkerCore._advance

    def moved(self: WorkerCore, floors: tuple[Floor, ...]) -> Effects:
        self._told = floors  # type: ignore[attr-defined]
        return real_moved(self, floors)

    def advance(self: WorkerCore, effects: Effects) -> None:
        for branch in self.branches:
            branch.reached = branch.below(self._lead_end)
        self._release(self._told, effects)  # type: ignore[attr-defined]
        real_advance(self, effects)

    return [(WorkerCore, "moved", moved), (WorkerCore, "_advance", advance)]


def listens_upstream() -> list[Patch]:
    """Barriers and ordered groupings listen to the segments that feed theirs."""
    real = branch_module.branches_of

    def branches_of(program: Program, place: int, tracker: LocalTracker) -> Any:
        made, found = real(program, place, tracker)
        for branch in made:
            above = [source for each in branch.waits for source in program.segments.inbound[each]]
            if above:
                branch.waits, branch._one = tuple(above), None
        return made, found

    return [(worker_module, "branches_of", branches_of)]


def upstream_forgotten() -> list[Patch]:
    """A segment that several feed does not wait for the first of them."""
    real = segments_module._Layout._fed

    def fed(self: Any) -> dict[int, list[int]]:
        return {segment: found[1:] if len(found) > 1 else found for segment, found in real(self).items()}

    return [(segments_module._Layout, "_fed", fed)]


def fronts_of_others() -> list[Patch]:
    """A front counts only for the first segment that its records go to, of all topics."""
    real = segments_module._Layout._feeds

    def feeds(self: Any) -> dict[str, list[int]]:
        first = min(segment for found in real(self).values() for segment in found)
        return {topic: [first] for topic in real(self)}

    return [(segments_module._Layout, "_feeds", feeds)]


def sinks_unheld() -> list[Patch]:
    """What may end the life holds only the sinks of other branches."""
    real = segments_module._Layout._holds_back

    def holds_back(self: Any, vertex: Vertex, sink: Vertex) -> bool:
        return sink.id not in self._below[vertex.id] and real(self, vertex, sink)

    return [(segments_module._Layout, "_holds_back", holds_back)]


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
    flow("upstream-forgotten", "R7", "a segment forgets one that feeds it", upstream_forgotten, flow="branches"),
    flow("fronts-of-others", "R7", "fronts are counted for another branch", fronts_of_others, flow="branches"),
    flow("sinks-unheld", "R6, R12", "a sink does not wait for what fails before it", sinks_unheld,
         flow="two_levels_of_sinks", letters=False, wrong=1.0),
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
