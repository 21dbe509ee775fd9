"""Rules of labels, order keys, holds, windows, barriers and pruning broken on purpose: R1 to R4, R6, R8, R12 to R15."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lowtide.core.branch import Branch
from lowtide.core.effects import Effects, Frame, Snapshot
from lowtide.core.ending_faults import Ending
from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Report
from lowtide.core.fronts.own_floors import Grants, OwnFloors
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators import node as node_module
from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.held import pending as pending_module
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.bundle import NO_KEY, Bundle, Piece
from lowtide.core.operators.order.order import OrderKey, tick_of
from lowtide.core.operators.plain import exchange as exchange_module
from lowtide.core.operators.plain import loop as looping_module
from lowtide.core.operators.plain.per_record import FlatMapNode
from lowtide.core.operators.plain.sink import WriteNode
from lowtide.core.worker import WorkerCore
from lowtide.driver import homes
from lowtide.flow.plan import lane_partitions
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.steps import Write
from lowtide.sinks.contract import LaneName
from lowtide_tracker import Floor

from .commits import Commit, Taking
from .mutation import Mutation, Patch
from .worker_mutations import items_of


def base_too_old() -> list[Patch]:
    """The parts of units that nobody captured are those of the oldest commit that a worker goes by."""

    def capture(self: Taking, worker: int, snapshot: Snapshot, base: Commit | None) -> None:
        self.captured[worker] = snapshot
        if base is not None and (self.base is None or base.tick < self.base.tick):
            self.base = base

    return [(Taking, "capture", capture)]


def label_forgets() -> list[Patch]:
    real = Front._label

    def label(self: Front, rows: SourceRows) -> list[int]:
        before, self._history.label = self._history.label, NO_TICK
        ticks = real(self, rows)
        self._history.label = before
        return ticks

    return [(Front, "_label", label)]


def label_of_the_frame() -> list[Patch]:
    real = Front._label

    def label(self: Front, rows: SourceRows) -> list[int]:
        return [real(self, rows)[-1]] * len(rows)

    return [(Front, "_label", label)]


def caps_forgotten() -> list[Patch]:
    real = Front.report

    def report(self: Front) -> Report:
        told = real(self)
        return Report(told.heartbeat, tuple(floor for floor in told.floors if not floor.cap))

    return [(Front, "report", report)]


def floors_not_stored() -> list[Patch]:
    real = Barrier.advance

    def advance(self: Barrier, min_time: int, floors: Iterable[Floor] = ()) -> Any:
        return real(self, min_time, ())

    return [(Barrier, "advance", advance)]


def grant_in_any_case() -> list[Patch]:
    def grant(self: Front, floor: Floor) -> bool:
        if self._parked or floor.tick <= self._heartbeat:
            return False
        self._floors.add(floor)
        self._heartbeat = floor.tick
        return True

    return [(Front, "grant", grant)]


def older_stop_the_time() -> list[Patch]:
    """A front sets no floor of its own: only what finds it at the very offset is taken."""
    return [(Front, "_lift", lambda self: False)]


def own_floors_not_told() -> list[Patch]:
    """A front sets floors of its own, goes by them, and tells nobody."""
    real = Front._lift

    def lift(self: Front) -> bool:
        lifted = real(self)
        if lifted:
            self._reported = self._floors.version
        return lifted

    return [(Front, "_lift", lift)]


def lifted_ahead() -> list[Patch]:
    """A grant for the end of the log counts before the front has come to it."""
    real = Grants.add

    def add(self: Grants, offset: int, tick: int) -> None:
        real(self, NO_TICK, tick)

    return [(Grants, "add", add)]


def ticks_without_end() -> list[Patch]:
    return [(OwnFloors, "_may_close", lambda self, tick, now_ms: False)]


def open_below_floors() -> list[Patch]:
    """No tick is closed below a floor of any front, though nothing that an older life has let out rests on it."""
    real: Any = Front.__init__

    def init(self: Front, number: int, limits: FrontLimits, known: KnownFloors, **given: Any) -> None:
        real(self, number, limits, replace(known, relied_on=max(known.relied_on, known.highest)), **given)

    return [(Front, "__init__", init)]


def closed_again() -> list[Patch]:
    """A tick is closed, and at once, though an older life may have let out more of it."""
    real = OwnFloors._may_close

    def may_close(self: OwnFloors, tick: int, now_ms: int) -> bool:
        relied_on, self._relied_on = self._relied_on, NO_TICK
        found = real(self, tick, now_ms)
        self._relied_on = relied_on
        return found

    return [(OwnFloors, "_may_close", may_close), (OwnFloors, "stands", lambda self, now_ms: True)]


def heartbeat_past_the_label() -> list[Patch]:
    real = Front._settled

    def settled(self: Front) -> int:
        return real(self) + 1

    return [(Front, "_settled", settled)]


def no_child(*modules: object) -> list[Patch]:
    """Some elements are not appended to child paths: those of the steps in these modules."""

    def with_child(at: bytes, element: int) -> bytes:
        return at

    return [(module, "with_child", with_child) for module in modules]


def no_ordinal() -> list[Patch]:
    """The elements of a function's result, and the copies of a broadcast, are not numbered."""
    real = FlatMapNode.collect

    def collect(self: FlatMapNode, batch: Batch, results: list[Any]) -> Batch:
        made = real(self, batch, results)
        ats = [at for at, result in zip(batch.ats, results, strict=True) for _ in result]
        return made.with_ats(ats)

    return [(FlatMapNode, "collect", collect), *no_child(exchange_module)]


def no_unit_in_the_trace() -> list[Patch]:
    def ids(job: str, name: str, units: int) -> list[int]:
        return [0] * units

    return [(exchange_module, "_ids", ids)]


def no_hold() -> list[Patch]:
    def hold(self: WorkerCore, ticks: list[int]) -> None:
        """Nothing is folded for what is held."""

    return [(WorkerCore, "_hold", hold)]


def ack_after_release() -> list[Patch]:
    """A frame is acked only when what an ordered grouping holds of it is out: it waits for itself."""
    real, real_feed = WorkerCore.frame, WorkerCore._route

    def route(self: WorkerCore, feed: Feed, effects: Effects) -> None:
        vars_of(self)["held"] = bool(feed.held)
        real_feed(self, feed, effects)

    def frame(self: WorkerCore, *frames: Frame) -> Effects:
        effects = real(self, *frames)
        if vars_of(self).pop("held", False):
            for frame in frames:
                self.tracker.fold(self.level, frame.ticks, frame.value)  # Taken back: the ack has not been sent.
        return effects

    return [(WorkerCore, "_route", route), (WorkerCore, "frame", frame)]


_NOTES: dict[int, dict[str, Any]] = {}


def vars_of(owner: object) -> dict[str, Any]:
    """Room for a mutation's notes about an object."""
    return _NOTES.setdefault(id(owner), {})


def holder_stopped() -> list[Patch]:
    """The window also stops the front that holds min time back."""

    def stop(self: Front, rows: SourceRows, min_time: int) -> int:
        lead = bisect_left(rows.ticks, min_time + self._window.lead_ticks)
        return min(lead, bisect_right(rows.ends(), self._room(min_time)))

    return [(Front, "_stop", stop)]


def no_window() -> list[Patch]:
    def stop(self: Front, rows: SourceRows, min_time: int) -> int:
        return len(rows)

    return [(Front, "_stop", stop)]


def released_at_min_time() -> list[Patch]:
    real = Barrier.advance

    def advance(self: Barrier, min_time: int, floors: Iterable[Floor] = ()) -> Any:
        return real(self, min_time + 1, floors)

    return [(Barrier, "advance", advance)]


def released_unsorted() -> list[Patch]:
    def in_order(ats: Any) -> bool:
        return True

    return [(pending_module, "strictly_ascending", in_order)]


def tombstones_lost() -> list[Patch]:
    real = Barrier.add

    def add(self: Barrier, batch: Batch) -> None:
        items = items_of(batch)
        if items is not None:
            real(self, items)

    return [(Barrier, "add", add)]


def last_forgotten() -> list[Patch]:
    real = Barrier.__init__

    def init(self: Barrier, name: str, *, last: Mapping[int, OrderKey] | None = None, **rest: Any) -> None:
        real(self, name, last={}, **rest)

    return [(Barrier, "__init__", init)]


def last_by_tick() -> list[Patch]:
    """What shares its tick with the last record counts as delivered."""
    real = Barrier._release

    def release(self: Barrier, lane: int, batch: Batch) -> None:
        found = [self._found.get(self._lane_of_unit[unit]) for unit in batch.units]
        tick = batch.ticks[0]
        batch = batch.where([each is None or tick > OrderKey.of(each).tick for each in found])
        if len(batch):
            real(self, lane, batch)

    return [(Barrier, "_release", release)]


def found_in_common() -> list[Patch]:
    """A strand drops what lies below the furthest of its lanes."""

    def undelivered(self: Barrier, batch: Batch) -> Batch:
        found = max(self._found.values())
        return batch.where([at > found for at in batch.ats])

    return [(Barrier, "_undelivered", undelivered)]


def found_of_the_first() -> list[Patch]:
    """A strand drops what lies below its first lane's last record."""

    def undelivered(self: Barrier, batch: Batch) -> Batch:
        found = self._found.get(self._own[0], NO_KEY)
        return batch.where([at > found for at in batch.ats])

    return [(Barrier, "_undelivered", undelivered)]


def strand_of_its_first_lane() -> list[Patch]:
    """What a strand has delivered is known of its first lane alone."""

    def has(self: LaneName, name: LaneName, units: range) -> bool:
        same = (self.level, self.sink) == (name.level, name.sink)
        return self == name if not self.end else same and self.lane == units.start

    return [(LaneName, "has", has)]


def strand_of_whatever_meets() -> list[Patch]:
    """What a strand has delivered counts for every lane of the sink."""

    def has(self: LaneName, name: LaneName, units: range) -> bool:
        return (self.level, self.sink) == (name.level, name.sink)

    return [(LaneName, "has", has)]


def strand_from_nothing() -> list[Patch]:
    """A strand begins with nothing, though its store has the `last` of one with the same lanes."""
    real = Barrier.__init__

    def init(self: Barrier, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        if self._strand is not None:
            self._strand.last = self._strand.durable = NO_KEY

    return [(Barrier, "__init__", init)]


def strand_ends_at_its_tick() -> list[Patch]:
    """A strand's `last` is that of all it has released of the tick, not of the bundle."""
    real = Barrier._send

    def send(self: Barrier, lane: int, pieces: list[Piece]) -> Bundle:
        bundle, state = real(self, lane, pieces), self._lanes[lane]
        if bundle.width and pieces and state.released and state.released[0].tick == pieces[-1].tick:
            bundle.last = state.released[0].ats[-1]
        return bundle

    return [(Barrier, "_send", send)]


def prune_at(time: Any) -> list[Patch]:
    return [(WorkerCore, "_prune_time", time)]


def own_min_time(self: WorkerCore) -> int:
    return self.min_time if self.pinned is None else min(self.min_time, self.pinned.tick)


def not_pinned(self: WorkerCore) -> int:
    return self.tracker.global_min


def start_too_late() -> list[Patch]:
    real = Front.start_at

    def start_at(self: Front, tick: int) -> tuple[int, int]:
        return real(self, tick + 1)

    return [(Front, "start_at", start_at)]


def durable_when_released() -> list[Patch]:
    return [(Barrier, "delivered_time", property(lambda self: self.released))]


def faults_for_good() -> list[Patch]:
    real = WorkerCore._route

    def route(self: WorkerCore, feed: Feed, effects: Effects) -> None:
        feed.faults = [items for batch in feed.faults if (items := items_of(batch)) is not None]
        real(self, feed, effects)

    return [(WorkerCore, "_route", route)]


def faults_held(add: Any) -> list[Patch]:
    return [(Ending, "add", add)]


def fault_without_hold(self: Ending, batch: Batch) -> None:
    self._pending.add(batch)


def hold_for_good(self: Ending, batch: Batch) -> None:
    """A fault that is taken back is still held."""
    for at in (items_of(batch) or Batch([], [], [])).ats:
        for outlet in {each for held in self._outlets.values() for each in held}:
            self._tracker.fold(outlet, (tick_of(at),), self._tracker.new_value())
    self._pending.add(batch)


def sinks_listen_to_their_own() -> list[Patch]:
    """A barrier goes by its branch's min time, as if nothing else could end the life."""
    return [(Branch, "cleared", lambda self, _outlet: self.reached)]


def nothing_held_before_the_outlet() -> list[Patch]:
    """What the last level holds in order is not folded: it is thought to leave the level only for its own sinks."""
    real = WorkerCore._hold

    def hold(self: WorkerCore, held: Mapping[int, Iterable[int]]) -> None:
        tracked = set(self.program.segments.of_exchange.values())
        real(self, {segment: ticks for segment, ticks in held.items() if segment in tracked})

    return [(WorkerCore, "_hold", hold)]


def no_sink_ends_the_life() -> list[Patch]:
    """Hold nothing for what a sink cannot write, as if only the steps before it could fail."""
    real = Plan.may_end
    return [(Plan, "may_end", lambda self, vertex: not isinstance(vertex.step, Write) and real(self, vertex))]


def items_alone_are_looked_at() -> list[Patch]:
    """A sink hands on a tombstone of what it could not write."""
    real = WriteNode.take

    def take(self: WriteNode, batch: Batch, port: int, feed: Feed) -> None:
        flags = batch.flags or [False] * len(batch.ats)
        for taken_back in (False, True):
            part = batch.where([flag is taken_back for flag in flags])
            if part.ats and taken_back:
                feed.delivers.append((self.vertex.id, part))
            elif part.ats:
                real(self, part, port, feed)

    return [(WriteNode, "take", take)]


def written_in_any_case() -> list[Patch]:
    """A sink does not look at what it hands to the barrier."""

    def take(self: WriteNode, batch: Batch, port: int, feed: Feed) -> None:
        feed.delivers.append((self.vertex.id, batch))

    return [(WriteNode, "take", take)]


def lane_is_partition() -> list[Patch]:
    """A lane has the partition of its number, whatever lane had it before."""
    return [(lane_partitions, "partition_of_lane", lambda counts: list(range(counts[-1])))]


def last_by_number() -> list[Patch]:
    """More lanes leave `last` with the numbers of lanes, which mean other hash units now."""
    return [(homes, "by_units", lambda last, *_: dict(last))]


def flow(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "flow", patches, options)


OFTEN = 0.02
"""Lives are short: for rules that show only after a recovery."""

FLOW = [
    flow("label-forgets", "R1", "a label does not look at the one before", label_forgets),
    flow("label-of-frame", "R1, W3", "all records of a frame get the last one's label", label_of_the_frame),
    flow("caps-forgotten", "R1, H6", "a cap is not told on", caps_forgotten, faults=OFTEN),
    flow("floors-not-stored", "R2, W2", "floors are not stored with last", floors_not_stored, faults=OFTEN),
    flow("grant-in-any-case", "R2, H4", "a grant counts though the front has read on", grant_in_any_case),
    flow("older-stop-the-time", "R2", "a front never sets a floor of its own", older_stop_the_time),
    flow("own-floors-not-told", "R2", "a front tells nobody of its own floors", own_floors_not_told, faults=OFTEN),
    flow("lifted-ahead", "R2", "a grant counts before the front has come to its offset", lifted_ahead),
    flow("tick-without-end", "R8", "older messages fill one tick without end", ticks_without_end),
    flow("open-below-floors", "R8", "older messages fill a tick without end as there are floors above it",
         open_below_floors, faults=0.05, backfills=0.8),
    flow("closed-again", "R1, R8", "a tick is closed that an older life may have let out", closed_again, faults=0.05,
         longest=60, backfills=1.0),
    flow("heartbeat-past-label", "R5", "a heartbeat passes the label of what may come", heartbeat_past_the_label),
    flow("no-branch", "R4, W11", "branches append nothing", lambda: no_child(node_module), flow="diamond"),
    flow("no-mark", "R4", "a pass through a loop appends nothing", lambda: no_child(looping_module), flow="loop"),
    flow("no-ordinal", "R4", "children are not numbered", no_ordinal, flow="two_sources"),
    flow("no-unit-in-trace", "R4", "the trace does not tell hash units apart", no_unit_in_the_trace,
         flow="index_by_document", grouping="optimistic"),
    flow("no-hold-in-order", "R6, W5", "ordered groupings hold without folding", no_hold,
         flow="three_levels", grouping="ordered"),
    flow("ack-after-release", "R6, W5", "a frame is acked only when what it holds is out", ack_after_release,
         flow="three_levels", grouping="ordered"),
    flow("holder-stopped", "R8, H1", "the window stops the front that holds min time", holder_stopped),
    flow("no-window", "R8", "fronts run ahead of min time as they like", no_window),
    flow("released-at-min-time", "R12", "a barrier releases min time itself", released_at_min_time),
    flow("released-unsorted", "R12", "a barrier releases in the order of arrival", released_unsorted),
    flow("tombstones-lost", "R12", "a barrier does not look at tombstones", tombstones_lost,
         flow="index", grouping="optimistic"),
    flow("last-forgotten", "R13", "a lane's last record is not looked at", last_forgotten, faults=OFTEN),
    flow("found-in-common", "R13", "a strand drops what is below its furthest lane", found_in_common, faults=OFTEN),
    flow("found-of-the-first", "R13", "a strand drops by its first lane's last", found_of_the_first, faults=OFTEN),
    flow("strand-of-one", "R13", "a strand's last is known of its first lane alone", strand_of_its_first_lane,
         faults=OFTEN),
    flow("strand-of-all", "R13", "a strand's last counts for lanes of others", strand_of_whatever_meets, faults=OFTEN),
    flow("strand-from-nothing", "R13", "a strand begins below where its lanes were", strand_from_nothing, faults=OFTEN),
    flow("strand-past-bundle", "R13", "a strand's last lies behind its bundle", strand_ends_at_its_tick, faults=OFTEN),
    flow("lane-is-partition", "R12", "more lanes take the partitions of others", lane_is_partition, faults=OFTEN,
         grows=0.5, by_lane=1.0),
    flow("last-by-number", "R13", "more lanes have the last of others", last_by_number, faults=OFTEN, grows=0.5,
         by_lane=1.0),
    flow("last-by-tick", "R12, W11", "last is compared by tick", last_by_tick, faults=OFTEN),
    flow("prune-own", "R14, W1", "groupings prune at their own segment's min time", lambda: prune_at(own_min_time),
         flow="three_levels", faults=OFTEN),
    flow("prune-while-taking", "R14, W1", "pruning goes on while a snapshot is being taken",
         lambda: prune_at(not_pinned), faults=OFTEN),
    flow("base-too-old", "W9", "what one worker has left to a newer commit is taken from an older one", base_too_old,
         snapshots=12, faults=OFTEN),
    flow("start-too-late", "R14", "a snapshot at T starts behind the records of T", start_too_late, faults=OFTEN),
    flow("durable-when-released", "R15, R18", "what was released counts as durable", durable_when_released),
    flow("faults-for-good", "W12", "an exception is never taken back", faults_for_good,
         flow="failing", grouping="optimistic", faults=0.0),
    flow("fault-without-hold", "R6", "what may end the life holds nothing", lambda: faults_held(fault_without_hold),
         flow="diamond", letters=False, wrong=1.0),
    flow("fault-held-for-good", "R6", "what is taken back is still held", lambda: faults_held(hold_for_good),
         flow="three_levels", grouping="optimistic", letters=False, wrong=1.0),
    flow("sinks-of-their-own", "R6, R12", "sinks do not listen to what may end the life", sinks_listen_to_their_own,
         flow="diamond", letters=False, wrong=1.0),
    flow("no-hold-before-outlet", "R6", "an ordered last level does not hold the sinks", nothing_held_before_the_outlet,
         flow="two_levels_of_sinks", grouping="ordered", letters=False, wrong=1.0),
    flow("no-hold-at-sinks", "R6", "what a sink cannot write holds nothing", no_sink_ends_the_life,
         flow="two_sources", letters=False, wrong=1.0, at_sinks=1.0),
    flow("written-in-any-case", "R6", "a sink is given what it cannot write", written_in_any_case, flow="narrow"),
    flow("unwritten-not-taken-back", "W12", "a sink gets the tombstone of what it could not write",
         items_alone_are_looked_at, flow="narrow", grouping="optimistic"),
]  # fmt: skip
