"""A worker's core, without I/O: rows, frames and notices in; frames, bundles and acks out.

    core = WorkerCore(plan, level=1, place=0, tracker=LocalTracker(worker, incarnation))
    effects = core.frame(frame)     # what it caused is folded into the tracker before its own ack (R5)
    effects = core.notice(notice)   # min time has moved: ordered groupings, then barriers release (R6, R12)
    flush = core.flush()            # to the tracker

A frame is tracked in its exchange's segment (`flow/plan/segments.py`). What waits for the same segments is a *branch*
(`core/branch.py`): ordered groupings of a branch listen to the min time of its segments, barriers to that of their
outlet too if a record may end the life, groupings prune at the global one (R14).

A worker whose steps send what time alone brings tells the local tracker the smallest tick at which they will (R6b), for
each segment they send into: after each frame, whatever min time brings, and when it is restored, so that the next flush
has it with the acks of its causes and of what was sent. After an outage min time may jump over hours: what was due
meanwhile is sent no further ahead of the global min time than a front may label.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType

from lowtide.core.barriers import Lanes, barriers_of
from lowtide.core.branch import Branch, branches_of
from lowtide.core.effects import Effects, Frame, LastKeys, Snapshot, letters_of
from lowtide.core.fronts.front import Front
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.faults.failure import ends_life, letters
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.node import Feed, Parcel
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.bundle import Bundle, Piece
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.program import Captured, Program
from lowtide.core.operators.questions import Answer, Answered
from lowtide.core.watcher import Watcher
from lowtide.errors import TimeWentBack
from lowtide.flow.plan.plan import Plan
from lowtide_snapshots.format.parts import SHARED_UNIT
from lowtide_tracker import Floor, Flush, LocalTracker, Notice, Request


class WorkerCore:
    """One worker's share of a level.

    Args:
        plan: The plan.
        level: The level.
        place: Which of the level's workers it is; at level 0 any number, the front says more.
        tracker: The local tracker of its process.
        front: At level 0 its front.
        last: What the sinks have reported (R13); records up to it are not delivered again.
        max_bundle_records: Limit of one bundle.
        limits: How large records and frames may be; None for no limits.
        grouping: "optimistic" or "ordered" if not as the plan says.
        lead_ticks: How far ahead of the global min time it sends what is due, at least 1; None for any distance.
        portion: So many records that were held and windows that close it deals with in one call of `moved`, in each
            branch; None for all.
        joint: Sinks whose bundles become durable together with the answers of calls that were given with them or
            before, or after those; they do not wait until these are durable.
        strands: Sinks at which the worker's lanes are one strand (`strands_of`).
        relied_on: The largest tick that anything relied on before the life: what is delivered anywhere lies below it.
        watcher: Sees where records are; None for nobody.

    Attributes:
        unfinished: Whether `moved`, or a snapshot, has left something for the next call, which may be made at once.
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
        portion: int | None = None,
        joint: Container[int] = (),
        strands: Container[int] = (),
        relied_on: int = FIRST_TICK,
        watcher: Watcher | None = None,
    ) -> None:
        assert (front is not None) == (level == 0), "level 0 has a front, and only level 0"
        self.plan = plan
        self.level = level
        self.place = place
        self.tracker = tracker
        self.front = front
        self._watcher = watcher
        saves_shared = int(plan.worker_of_unit()[SHARED_UNIT]) == place
        self.program = Program(plan, level, grouping, limits, saves_shared=saves_shared)
        self._sources = [vertex.id for vertex in plan.sources()] if level == 0 else []
        segments, workers = self.program.segments, range(plan.parallelism)
        self._taken_in = {
            each.id: segments.tracked_in(each.id, place) for each in plan.exchanges() if each.level == level
        }
        """By exchange the segment of the frames that it takes."""
        self._sent_in = {each.id: [segments.tracked_in(each.id, to) for to in workers] for each in plan.exchanges()}
        """By exchange and target the segment of the frames that it sends."""
        self.entries = sorted(set(self._taken_in.values()))
        """The segments that it takes frames of."""
        self.branches, self._branch_of = branches_of(self.program, place, tracker)
        self._lead_ticks = lead_ticks if self.program.clocked else None
        self._portion = portion
        self.unfinished = False
        sent = {each for node in self.program.holding for each in node.sends}
        self._owners = {each: segments.owner(each, level, place) for each in sorted(sent)}
        """By segment that steps send into without further input, this worker's number there."""
        clocked = (node for node in self.program.holding if node.vertex.id in plan.clocked)
        self._reports_due = sorted({each for node in clocked for each in node.sends})
        self._holds: dict[int, list[int]] = {}
        """By segment a heap of the ticks that the tracker holds for this worker."""
        self._holders = {each: self._holding_into(each) for each in self._owners}
        self._pruned = FIRST_TICK
        """Nothing below is kept for a snapshot any more."""
        self.pinned: Request | None = None
        """The request to be saved: nothing below its tick is pruned until `unpin`."""
        self._heeded = 0
        self._letters = letters_of(level)
        self._limits = limits
        lanes = Lanes.of_front(front.number) if front is not None else Lanes.of_worker(plan, place)
        self.barriers = barriers_of(
            plan, level, lanes, last or {}, max_bundle_records, tracker.min_times.start, strands
        )
        for vertex in plan.sinks():
            if vertex.id in self.barriers:
                call = segments.behind.get(vertex.id) if vertex.id in joint else None
                asking = None if call is None else self.program.asking[call]
                sink = vertex.id, self.barriers[vertex.id], segments.outlet_of.get(vertex.id), asking
                self._branch_of[vertex.id].sinks.append(sink)
        self._logs: set[int] = set()
        """The vertices that keep the answers of calls."""
        for ask in self.program.asking.values():
            ask.rely_on(relied_on)
            log = plan.answers_of(ask.ask)
            if log is not None:
                self._logs.add(log.id)
                ask.keep_in(log.id, self.barriers[log.id])

    @property
    def listens(self) -> frozenset[int]:
        """The segments whose min time lets something go on here: notices may leave out all others."""
        segments = self.program.segments
        outlets = [segments.outlet_of.get(each) for each in (*self.program.asking, *self.barriers)]
        waits = [each for branch in self.branches for each in branch.waits]
        return frozenset(each for each in (*self.entries, *waits, *outlets, segments.letters) if each is not None)

    @property
    def leads(self) -> bool:
        """Return whether the global min time does: it bounds how far a front labels, and what is due is sent (R8)."""
        return self.front is not None or self._lead_ticks is not None

    @property
    def waits(self) -> bool:
        """Return whether something can go on as soon as min time moves; if not, notices may be taken later."""
        if self.front is not None and not self.front.pulling:
            return True
        return self.program.holds or any(barrier.waits for barrier in self.barriers.values())

    @property
    def ready(self) -> bool:
        """Return whether min time, as received, frees any work here: if not, `moved` has only bookkeeping to do."""
        if self.unfinished:
            return True
        if self.front is not None and not self.front.pulling:
            return True
        lead_end = self._lead_end
        for branch in self.branches:
            if branch.ready(lead_end):
                return True
        for segment, ticks in self._holds.items():
            # What one branch held may wait for another one, which has nothing to do, to have come as far.
            if ticks and ticks[0] < min([branch.limit(lead_end) for branch in self._holders[segment]]):
                return True
        first = self.barriers[self._letters].first_tick
        if first is None:
            return False
        return first < self._letters_below(min([branch.limit(lead_end) for branch in self.branches]))

    @property
    def min_time(self) -> int:
        """The smallest min time of the segments it takes frames of, as received; at level 0 of those it feeds."""
        branches = self.branches
        return branches[0].min_time if len(branches) == 1 else min([branch.min_time for branch in branches])

    def tracked(self, frames: Sequence[Frame]) -> list[tuple[int, list[Frame]]]:
        """Frames that came, each segment's in the order they came."""
        if not frames:
            return []
        if len(self.entries) == 1:
            return [(self.entries[0], list(frames))]
        found: dict[int, list[Frame]] = {}
        for frame in frames:
            found.setdefault(self._taken_in[frame.vertex], []).append(frame)
        return list(found.items())

    @property
    def _lead_end(self) -> int | None:
        """The tick at which steps that send without further input stop for now; None without such steps."""
        return None if self._lead_ticks is None else self.tracker.global_min + self._lead_ticks

    def _letters_below(self, reached: int) -> int:
        """The tick below which dead letters may go out; they come from all branches."""
        outlet = self.program.segments.letters
        return reached if outlet is None else min(reached, self.tracker.min_time(outlet))

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
            if self._watcher is not None:
                self._watcher.admits(rows)
            for source in self._sources:
                self._route(self.program.feed_source(source, rows), effects)
        return effects

    # -- from other workers ----------------------------------------------------------------------------------------

    def frame(self, *frames: Frame) -> Effects:
        """Take frames of one exchange that came together: all they cause is folded in before their own acks (R5).

        On a cycle (`CycleInbox`) records come in frames without ticks, and acks of frames without records.

        Raises:
            TimeWentBack: one holds a tick that min time has passed.
        """
        segment = self._taken_in[frames[0].vertex]
        min_time = self.tracker.min_time(segment)
        for frame in frames:
            ticks = frame.ticks or frame.batch.ticks
            if ticks[0] < min_time:
                owner = f"worker {self.level}/{self.place}"
                raise TimeWentBack(owner, ticks[0], min_time)
        effects = Effects()
        batches = [frame.batch for frame in frames if frame.batch.ats]
        if batches:
            batch = Batch.concat(batches)
            if self._watcher is not None:
                self._watcher.takes(batch)
            self._route(self.program.feed(frames[0].vertex, batch), effects)
        for frame in frames:
            self.tracker.fold(segment, frame.ticks, frame.value)
        self.report_due()
        return effects

    # -- from the tracker ------------------------------------------------------------------------------------------

    def notice(self, *notices: Notice) -> Effects:
        """Take notices, as the only listener of this local tracker: pin, then `moved`."""
        heard = []
        for notice in notices:
            if notice.request is not None:
                self.pin(notice.request)  # Before anything is pruned by the notice.
            if self.tracker.hear(notice):
                heard.append(notice)
        return self.moved(tuple(floor for notice in heard for floor in notice.floors)) if heard else Effects()

    def moved(self, floors: tuple[Floor, ...]) -> Effects:
        """Do once what all notices of the local tracker come to; `floors` came with them."""
        effects = Effects() if self.front is None else self._admit()
        self._move(floors, effects)
        return effects

    def _move(self, floors: tuple[Floor, ...], effects: Effects) -> None:
        for id_, ask in self.program.asking.items():
            outlet = self.program.segments.outlet_of.get(id_)
            ask.lead_end = self._lead_end
            ask.rest_on(floors, None if outlet is None else self.tracker.min_time(outlet))
        self._advance(effects)
        self._release(floors, effects)
        self._prune()
        self.report_due()
        if self._watcher is not None:
            self._watcher.gone(min([self._reached, *[barrier.sent_time for barrier in self.barriers.values()]]))

    def _advance(self, effects: Effects) -> None:
        """Let steps that hold go on; what they held is folded again only after what they emit (R6)."""
        lead_end = self._lead_end
        self.unfinished = False
        for branch in self.branches:
            branch.look_at_end()
            below = branch.reached = branch.below(lead_end)
            if branch.holding:
                portion = Portion(self._portion)
                feed, branch.reached = self.program.go_on(below, branch.holding, portion)
                self._route(feed, effects)
                # Without a portion that is spent, it is a call's answer that is waited for.
                self.unfinished = self.unfinished or (branch.reached < below and portion.spent)
        for segment, ticks in self._holds.items():
            if ticks:
                self._let_go(segment, ticks)

    def _let_go(self, segment: int, ticks: list[int]) -> None:
        """End the holds of a segment below what all that hold into it have reached."""
        owner, reached = self._owners[segment], min([branch.reached for branch in self._holders[segment]])
        while ticks and ticks[0] < reached:
            self.tracker.release(segment, heappop(ticks), owner=owner)

    def _holding_into(self, segment: int) -> list[Branch]:
        """The branches whose steps hold into a segment."""
        return [branch for branch in self.branches if any(segment in node.sends for node in branch.holding)]

    def _release(self, floors: tuple[Floor, ...], effects: Effects) -> None:
        """Let faults act that nothing can take back any more, then barriers release (errors: `Ending.act`)."""
        reached = self.branches[0].reached
        for branch in self.branches:
            branch.ending.act(branch.reached)
            reached = min(reached, branch.reached)
        faults = [tick for branch in self.branches if (tick := branch.ending.first_tick) is not None]
        for branch in self.branches:
            for sink, barrier, outlet, call in branch.sinks:
                given = None if call is None else min([call.given, *faults])
                for bundle in barrier.advance(branch.cleared(outlet, given), floors):
                    self._give(sink, bundle, effects)
        below = self._letters_below(reached)
        for bundle in self.barriers[self._letters].advance(below, floors):
            self._give(self._letters, bundle, effects)

    def _give(self, sink: int, bundle: Bundle, effects: Effects) -> None:
        """Give a bundle to its sink; faults become dead letters only now, as nothing can take them back any more."""
        if self._watcher is not None:
            self._watcher.gives(sink, bundle)
        if sink == self._letters and len(bundle):
            pieces = [
                Piece(each.tick, each.ats, letters(self.plan, each.ats, each.rows), each.units)
                for each in bundle.pieces
            ]
            bundle = Bundle(
                bundle.lane, bundle.number, pieces, bundle.last, bundle.floors, bundle.covered, width=bundle.width
            )
        effects.bundles.append((sink, bundle))

    # -- from the sinks --------------------------------------------------------------------------------------------

    def durable(self, sink: int, lane: int) -> Effects:
        """Note that a lane's bundle is durable in its sink: the next one may go."""
        effects = Effects()
        if self._watcher is not None:
            self._watcher.durable(sink, lane)
        bundle = self.barriers[sink].durable(lane)
        if bundle is not None:
            self._give(sink, bundle, effects)
        if sink in self._logs:
            self._move((), effects)
        return effects

    # -- from outside services -------------------------------------------------------------------------------------

    def know(self, ask: int, answers: Mapping[bytes, Answer], since: bytes | None = None) -> None:
        """Take the answers that earlier lives have kept of a call, by order key; before any input (`AskNode.know`)."""
        self.program.asking[ask].know(answers, since)

    def answered(self, ask: int, answers: Sequence[Answered]) -> Effects:
        """Take answers to questions of a call, and go on with what they free (errors: CallGivenUp)."""
        effects = Effects()
        self._route(self.program.answered(ask, answers), effects)
        self._move((), effects)
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
        # Floors are kept by the sinks: dead letters that never come must not hold delivered time back. Their barrier
        # goes no further than answers are durable, so delivered time does not, whatever joint sinks have.
        times = [
            barrier.delivered_time
            for sink, barrier in self.barriers.items()
            if sink != self._letters and sink not in self._logs
        ]
        return min([self.barriers[self._letters].durable_time, *times])

    # -- to the tracker --------------------------------------------------------------------------------------------

    def flush(self) -> Flush | None:
        """Everything since the last flush, in one: acks, then heartbeats and the floors they rest on."""
        self.report()
        return self.tracker.flush()

    def report_due(self) -> None:
        """Report to the local tracker what is due after this level; a new worker does so before any flush."""
        for segment in self._reports_due:
            self.tracker.due(segment, self.program.due(segment), owner=self._owners[segment])

    def report(self) -> None:
        """Let the next flush have the front's heartbeat and the floors it rests on, after all acks so far (R5)."""
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

    @property
    def complete(self) -> bool:
        """Return whether all below the pinned T has been processed, so that `snapshot` may be called."""
        return self.pinned is not None and self.pinned.tick <= self._reached

    def snapshot(
        self, since: int = FIRST_TICK, *, whole: bool = True, but: Mapping[str, Container[int]] = MappingProxyType({})
    ) -> Snapshot:
        """Return what the pinned request asks for, of the hash units changed since a tick (see `Program.capture`).

        It reads only: a process forked here may do it in its own time.
        """
        assert self.pinned is not None, "no snapshot is requested"
        assert self.complete, "R14: what lies below T has not all been processed"
        tick = self.pinned.tick
        start = None if self.front is None else self.front.start_at(tick)
        return Snapshot(tick, self.program.capture(tick, since, whole=whole, but=but), start)

    def unpin(self) -> None:
        """Note that the pinned request is saved or no longer wanted: pruning goes on."""
        self.pinned = None
        self._prune()

    def forget_floors(self, front: int, offset: int) -> None:
        """Drop floors that a committed manifest has made superfluous: those below where a front is read again."""
        self.tracker.forget_floors(front, offset)
        for barrier in self.barriers.values():
            barrier.forget(front, offset)
        if self.front is not None and self.front.number == front:
            self.front.forget(offset)

    def restore(self, state: Captured, tick: int) -> None:
        """Take over state from snapshots at one T; see `Program.restore`."""
        self.program.restore(state, tick)
        self.unfinished = any([ask.waiting for ask in self.program.asking.values()])
        self.report_due()

    @property
    def settled_time(self) -> int:
        """The tick of the newest state that can be asked for: all below it has been processed, in all segments."""
        return min(self.tracker.global_min, self._reached)

    @property
    def _reached(self) -> int:
        branches = self.branches
        return branches[0].reached if len(branches) == 1 else min([branch.reached for branch in branches])

    def _prune(self) -> None:
        """Forget what nothing needs that may still come, be asked for or be done."""
        self._pruned = self._prune_time()
        self.program.prune(self._pruned)
        if self.front is not None:
            self.front.prune(self._pruned)

    def _prune_time(self) -> int:
        settled = self.settled_time
        return settled if self.pinned is None else min(settled, self.pinned.tick)

    # -- output ----------------------------------------------------------------------------------------------------

    def _route(self, feed: Feed, effects: Effects) -> None:
        """Fold and collect what a program has made."""
        if feed.parcels:
            self._send(feed.parcels, effects)
        for sink, batch in feed.delivers:
            self._wait(sink, batch)
        for batch in feed.faults:
            self._bury(batch)
        if feed.held:
            self._hold(feed.held)
        if feed.kept:
            effects.bundles += feed.kept
        if feed.questions:
            effects.questions += feed.questions

    def _bury(self, batch: Batch) -> None:
        """Put faults where they wait: those that end the life, and those that become dead letters."""
        if self.front is not None:
            batch = Batch(batch.ats, [0] * len(batch), batch.rows, batch.flags, batch.ticks)
        ending = [ends_life(self.plan, fault) for fault in batch.rows]
        if any(ending):
            self._end(batch.where(ending))
        if not all(ending):
            self._wait(self._letters, batch.where([not each for each in ending]))

    def _wait(self, sink: int, batch: Batch) -> None:
        """Have records wait for min time before their sink."""
        if self._watcher is not None:
            self._watcher.waits(sink, batch)
        self.barriers[sink].add(batch)

    def _end(self, batch: Batch) -> None:
        """Put faults that end the life to those of the branches in which they happened."""
        if len(self.branches) == 1:
            self.branches[0].ending.add(batch)
            return
        found = [self._branch_of[fault.vertex.id] for fault in batch.rows]
        for branch in self.branches:
            here = [each is branch for each in found]
            if any(here):
                branch.ending.add(batch.where(here))

    def _send(self, parcels: list[Parcel], effects: Effects) -> None:
        tracker = self.tracker
        if self._watcher is not None:
            for parcel in parcels:
                self._watcher.sends(parcel.batch)
        for parcel in parcels:
            ticks, value = parcel.batch.ticks, tracker.new_value()
            tracker.fold(self._sent_in[parcel.vertex][parcel.target], ticks, value)
            effects.frames.append(Frame(parcel.vertex, parcel.target, value, ticks, parcel.batch, parcel.payload))

    def _hold(self, held: Mapping[int, Iterable[int]]) -> None:
        """Holding is sending: a segment stays open at these ticks until what was held is out (R6).

        After the last level that is an outlet: what is held may come out as a fault.
        """
        for segment, ticks in held.items():
            heap, owner = self._holds.setdefault(segment, []), self._owners[segment]
            for tick in sorted(ticks):
                if self.tracker.hold(segment, tick, owner=owner):
                    heappush(heap, tick)
