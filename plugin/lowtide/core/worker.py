"""A worker's core, without I/O: rows, frames and notices in; frames, bundles and acks out.

    core = WorkerCore(plan, level=1, place=0, tracker=LocalTracker(worker, incarnation))
    effects = core.frame(frame)     # what it caused is folded into the tracker before its own ack (R5)
    effects = core.notice(notice)   # min time has moved: ordered groupings, then barriers release (R6, R12)
    flush = core.flush()            # to the tracker

A frame of level k is tracked in segment k, its receiver's. Ordered groupings of a level listen to that segment's min
time, barriers to that of the outlet if a record may end the life (`Plan.outlet`), groupings prune at the global one
(R14).

A worker whose steps send what time alone brings tells the local tracker the smallest tick at which they will (R6b), for
the segment it sends into: after each frame, whatever min time brings, and when it is restored, so that the next flush
has it with the acks of its causes and of what was sent. After an outage min time may jump over hours: what was due
meanwhile is sent no further ahead of the global min time than a front may label.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from lowtide.core.barriers import Lanes, barriers_of
from lowtide.core.effects import Effects, Frame, LastKeys, Snapshot, letters_of
from lowtide.core.ending_faults import Ending
from lowtide.core.fronts.front import Front
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.batch import Batch
from lowtide.core.operators.bundle import Bundle, Piece
from lowtide.core.operators.failure import ends_life, letters
from lowtide.core.operators.limits import Limits
from lowtide.core.operators.node import Feed, Parcel
from lowtide.core.operators.order import FIRST_TICK
from lowtide.core.operators.program import Captured, Program
from lowtide.errors import TimeWentBack
from lowtide.flow.plan import Plan
from lowtide_tracker import Floor, Flush, LocalTracker, Notice, Request

__all__ = ["WorkerCore"]

FIRST_SEGMENT = 1
"""The segment that fronts feed: frames of level 1."""


class WorkerCore:
    """One worker's share of a level.

    Args:
        plan: The plan.
        level: The level.
        place: Which of the level's workers it is; at level 0 any number, the front says more.
        tracker: The local tracker of its process.
        front: At level 0 its front.
        last: What the sinks have told (R13); records up to it are not delivered again.
        max_bundle_records: Limit of one bundle.
        limits: How large records and frames may be; None for no limits.
        grouping: "optimistic" or "ordered" if not as the plan says.
        lead_ticks: How far ahead of the global min time it sends what is due, at least 1; None for any distance.
    """

    def __init__(
        self,
        plan: Plan,
        level: int,
        place: int,
        *,
        tracker: LocalTracker,
        front: Front | None = None,
        last: LastKeys | None = None,
        max_bundle_records: int = 10_000,
        limits: Limits | None = None,
        grouping: str | None = None,
        lead_ticks: int | None = None,
    ) -> None:
        assert (front is not None) == (level == 0), "level 0 has a front, and only level 0"
        self.plan = plan
        self.level = level
        self.place = place
        self.tracker = tracker
        self.front = front
        self.program = Program(plan, level, grouping, limits)
        self._sources = [vertex.id for vertex in plan.sources()] if level == 0 else []
        self._segment = max(level, FIRST_SEGMENT)
        self._owner = place if front is None else front.number
        self._lead_ticks = lead_ticks if self.program.clocked else None
        self._tells_due = level + 1 in plan.dues
        self._holds: list[int] = []  # A heap of the ticks that the tracker holds for this worker.
        self._pruned = FIRST_TICK
        """Nothing below is kept for a snapshot any more."""
        self.pinned: Request | None = None
        """What is to be saved: nothing below its tick is pruned until `unpin`."""
        self._heeded = 0
        self._letters = letters_of(level)
        self._limits = limits
        lanes = Lanes.of_front(front.number) if front is not None else Lanes.of_worker(plan, place)
        self.barriers = barriers_of(plan, level, lanes, last or {}, max_bundle_records)
        self._outlet = self._segment if plan.outlet is None else plan.outlet
        self._ending = Ending(f"worker {level}/{place}", tracker, self._outlet)

    @property
    def waits(self) -> bool:
        """Whether something can go on as soon as min time moves; if not, notices may be heard later, and together."""
        if self.front is not None and not self.front.pulling:
            return True
        return self.program.holds or any(barrier.waits for barrier in self.barriers.values())

    @property
    def ready(self) -> bool:
        """Whether min time, as heard, lets anything go on here: if not, `moved` has only bookkeeping to do."""
        if self.front is not None and not self.front.pulling:
            return True
        program, horizon = self.program, self.horizon
        firsts = [self._ending.first_tick, program.first_held if program.holds else None]
        if program.clocked:
            firsts.append(program.first_due)
        outs = [barrier.first_tick for barrier in self.barriers.values()]
        return _passed(firsts, horizon) or _passed(outs, min(horizon, self.cleared))

    @property
    def min_time(self) -> int:
        """The min time of its segment, as heard."""
        return self.tracker.min_time(self._segment)

    @property
    def horizon(self) -> int:
        """The tick below which steps process what they hold and what is due: min time, if nothing lies far ahead."""
        min_time = self.min_time
        return min_time if self._lead_ticks is None else min(min_time, self.tracker.global_min + self._lead_ticks)

    @property
    def cleared(self) -> int:
        """The tick below which sinks may be given what there is: nothing there can end the life any more, anywhere."""
        return self.tracker.min_time(self._outlet)

    # -- level 0 ---------------------------------------------------------------------------------------------------

    def read_by(self, sources: Iterable[int]) -> None:
        """Say which sources read this worker's front; by default all of the plan."""
        self._sources = list(sources)

    def rows(self, rows: SourceRows, now_ms: int) -> Effects:
        """Take messages of the front: what its window lets pass is processed, the rest is parked (R8)."""
        assert self.front is not None
        self.front.take(rows, now_ms)
        return self._admit()

    def grant(self, floor: Floor) -> bool:
        """Take an idle heartbeat for the front; it counts only if nothing has been read since (R2)."""
        assert self.front is not None
        return self.front.grant(floor)

    def _admit(self) -> Effects:
        assert self.front is not None
        effects = Effects()
        for rows in self.front.admitted(self.tracker.global_min):
            for source in self._sources:
                self._route(self.program.feed_source(source, rows), effects)
        return effects

    # -- from other workers ----------------------------------------------------------------------------------------

    def frame(self, *frames: Frame) -> Effects:
        """Take frames of one exchange that came together: all they cause is folded in before their own acks (R5).

        Raises:
            TimeWentBack: one holds a tick that min time has passed.
        """
        for frame in frames:
            if frame.ticks[0] < self.min_time:
                place = f"worker {self.level}/{self.place}"
                raise TimeWentBack(place, frame.ticks[0], self.min_time)
        effects = Effects()
        batch = Batch.concat([frame.batch for frame in frames])
        self._route(self.program.feed(frames[0].vertex, batch), effects)
        for frame in frames:
            self.tracker.fold(self.level, frame.ticks, frame.value)
        self.tell_due()
        return effects

    # -- from the tracker ------------------------------------------------------------------------------------------

    def notice(self, *notices: Notice) -> Effects:
        """Hear that min times have moved, as the only one who listens to this local tracker: pin, then `moved`."""
        heard = []
        for notice in notices:
            if notice.request is not None:
                self.pin(notice.request)  # Before anything is pruned by the notice.
            if self.tracker.hear(notice):
                heard.append(notice)
        return self.moved(tuple(floor for notice in heard for floor in notice.floors)) if heard else Effects()

    def moved(self, floors: tuple[Floor, ...]) -> Effects:
        """Do once what all notices come to that the local tracker has heard; `floors` came with them."""
        effects = Effects()
        if self.front is not None:
            effects = self._admit()
            self.front.prune(self._prune_time())
        else:
            self._advance(effects)
        self._release(floors, effects)
        self._pruned = self._prune_time()
        self.program.prune(self._pruned)
        self.tell_due()
        return effects

    def _advance(self, effects: Effects) -> None:
        """Let steps that hold go on; what they held is folded again only after what they emit (R6)."""
        if not self.program.holds:
            return
        horizon = self.horizon
        self._route(self.program.advance(horizon), effects)
        while self._holds and self._holds[0] < horizon:
            tick = heappop(self._holds)
            self.tracker.release(self.level + 1, tick, owner=self._owner)

    def _release(self, floors: tuple[Floor, ...], effects: Effects) -> None:
        """Let faults act that nothing can take back any more, then barriers release (errors: `Ending.act`)."""
        horizon = self.horizon
        self._ending.act(horizon)
        cleared = min(horizon, self.cleared)
        for sink, barrier in self.barriers.items():
            for bundle in barrier.advance(cleared, floors):
                self._give(sink, bundle, effects)

    def _give(self, sink: int, bundle: Bundle, effects: Effects) -> None:
        """Give a bundle to its sink; faults become dead letters only now, as nothing can take them back any more."""
        if sink == self._letters and len(bundle):
            pieces = [Piece(each.tick, each.ats, letters(self.plan, each.ats, each.rows)) for each in bundle.pieces]
            bundle = Bundle(bundle.lane, bundle.number, pieces, bundle.last, bundle.floors, bundle.covered)
        effects.bundles.append((sink, bundle))

    # -- from the sinks --------------------------------------------------------------------------------------------

    def durable(self, sink: int, lane: int) -> Effects:
        """Hear that a lane's bundle is durable in its sink: the next one may go."""
        effects = Effects()
        bundle = self.barriers[sink].durable(lane)
        if bundle is not None:
            self._give(sink, bundle, effects)
        return effects

    def keep_floors(self) -> Effects:
        """Make floors durable that no bundle has carried; to be called now and then, for sinks that are idle (R18)."""
        effects = Effects()
        for sink, barrier in self.barriers.items():
            bundle = None if sink == self._letters else barrier.keep_floors()
            if bundle is not None:
                effects.bundles.append((sink, bundle))
        return effects

    @property
    def delivered_time(self) -> int:
        """The tick below which all of its lanes are durable, dead letters included (R18)."""
        # Floors are kept by the sinks: dead letters that never come must not hold delivered time back.
        times = [barrier.delivered_time for sink, barrier in self.barriers.items() if sink != self._letters]
        return min([self.barriers[self._letters].durable_time, *times])

    # -- to the tracker --------------------------------------------------------------------------------------------

    def flush(self) -> Flush | None:
        """Everything since the last flush, in one: acks, then heartbeats and the floors they rest on."""
        self.report()
        return self.tracker.flush()

    def tell_due(self) -> None:
        """Tell the local tracker what is due for those behind this level; one that is new tells it before any flush."""
        if self._tells_due:
            self.tracker.due(self.level + 1, self.program.due_outward, owner=self._owner)

    def report(self) -> None:
        """Let the next flush have the front's heartbeat and the floors it rests on, behind all acks so far (R5)."""
        if self.front is not None:
            report = self.front.report()
            for floor in report.floors:
                self.tracker.floor(floor)
            self.tracker.heartbeat(self.front.number, report.heartbeat)

    # -- snapshots -------------------------------------------------------------------------------------------------

    def pin(self, request: Request) -> None:
        """Keep what lies below the T of a request until `unpin` (R14); a newer request takes an older one's place."""
        if request.number <= self._heeded:
            return
        assert request.tick >= self._pruned, "R14: what only records below the prune time need is gone"
        self._heeded = request.number
        self.pinned = request

    def snapshot(self, since: int = FIRST_TICK) -> Snapshot:
        """What the pinned request asks for, of the hash units that have changed since a tick (see `Program.capture`).

        It reads only: a process forked here may do it in its own time.
        """
        assert self.pinned is not None, "nobody asked for it"
        tick = self.pinned.tick
        start = None if self.front is None else self.front.start_at(tick)
        return Snapshot(tick, self.program.capture(tick, since), start)

    def unpin(self) -> None:
        """What was asked for has been saved, or is not wanted any more: pruning goes on."""
        self.pinned = None
        self._pruned = self._prune_time()
        self.program.prune(self._pruned)

    def forget_floors(self, front: int, offset: int) -> None:
        """Drop floors that a committed manifest has made superfluous: those below where a front is read again."""
        self.tracker.forget_floors(front, offset)
        for barrier in self.barriers.values():
            barrier.forget(front, offset)
        if self.front is not None and self.front.number == front:
            self.front.forget(offset)

    def restore(self, state: Captured, tick: int) -> None:
        """Take over state from snapshots at one T; hash units of other workers are left out by the caller."""
        self.program.restore(state, tick)
        self.tell_due()

    def _prune_time(self) -> int:
        global_min = self.tracker.global_min
        return global_min if self.pinned is None else min(global_min, self.pinned.tick)

    # -- output ----------------------------------------------------------------------------------------------------

    def _route(self, feed: Feed, effects: Effects) -> None:
        """Fold and collect what a program has made."""
        if feed.parcels:
            self._send(feed.parcels, effects)
        for sink, batch in feed.delivers:
            self.barriers[sink].add(batch)
        for batch in feed.faults:
            self._bury(batch)
        if feed.held:
            self._hold(sorted(feed.held))

    def _bury(self, batch: Batch) -> None:
        """Put faults where they wait: those that end the life, and those that become dead letters."""
        if self.front is not None:
            batch = Batch(batch.ats, [0] * len(batch), batch.rows, batch.flags, batch.ticks)
        ending = [ends_life(self.plan, fault) for fault in batch.rows]
        if any(ending):
            self._ending.add(batch.where(ending))
        if not all(ending):
            self.barriers[self._letters].add(batch.where([not each for each in ending]))

    def _send(self, parcels: list[Parcel], effects: Effects) -> None:
        tracker = self.tracker
        for parcel in parcels:
            ticks, value = parcel.batch.ticks, tracker.new_value()
            tracker.fold(self.level + 1, ticks, value)
            effects.frames.append(Frame(parcel.vertex, parcel.target, value, ticks, parcel.batch, parcel.payload))

    def _hold(self, ticks: list[int]) -> None:
        """Holding is sending: the outbound segment stays open at these ticks until what was held is out (R6).

        Behind the last level that is the outlet: what is held may come out as a fault.
        """
        for tick in ticks:
            if self.tracker.hold(self.level + 1, tick, owner=self._owner):
                heappush(self._holds, tick)


def _passed(firsts: Iterable[int | None], min_time: int) -> bool:
    """Whether min time has passed one of these ticks."""
    return any([first is not None and first < min_time for first in firsts])
