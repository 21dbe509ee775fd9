"""One worker's share of a level: bytes in, frames and deliveries out; drives the worker's core.

It does no I/O: the line to the tracker and the way to the sinks, which it shares with the other workers of its process,
belong to its host. All that a call has caused goes out before the loop waits again: frames at once, acks and heartbeats
with the host's next flush.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from lowtide.assignment.birth import Birth
from lowtide.assignment.deployment import Deployment
from lowtide.assignment.messages import (
    BrokerNow,
    Cancel,
    Committed,
    Forget,
    Grant,
    Listened,
    Look,
    LookAround,
    LookForLabels,
    NewFronts,
    Reached,
    Rest,
    WorkerOrder,
)
from lowtide.assignment.welcome import Welcome
from lowtide.core.cycle_inbox import CycleInbox
from lowtide.core.early_frames import Early, Optimism
from lowtide.core.effects import Effects, Frame
from lowtide.core.frames import Outbox
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.call_node import CallNode
from lowtide.core.operators.faults.failure import AtRecord, clock_of
from lowtide.core.operators.order.late_seen import LateSeen
from lowtide.core.operators.order.order import CLOCK
from lowtide.core.operators.questions import Answered
from lowtide.core.rows import open_rows
from lowtide.errors import LifeEnded
from lowtide.status.gauges import CallGauges, KeptGauges, LateGauges, WorkerGauges
from lowtide.worker.broker_time import BrokerTime
from lowtide.worker.figures import Figures, front_gauges
from lowtide.worker.host import Handed, LevelHost
from lowtide.worker.intake import Intake
from lowtide.worker.key_lookup import KeyLookup
from lowtide.worker.outputs import Outputs
from lowtide.worker.stage_parts import early_of, make_core, make_traces, seals_of
from lowtide_tracker import Floor

WAKE_S = 0.02
"""The interval at which the service learns that somebody waits for min time."""
RECORD_WAKE_S = 0.005
"""The same for each record since, so that a partition's only record waits for its grant no longer than it has to."""

Out = list[tuple[int, bytes]]
"""Frames for workers of the next level in other processes: `(target partition, bytes)`."""


class LevelStage:
    """Runs a level's core on what a worker is sent.

    Args:
        deployment: The plan and its settings.
        birth: The worker's birth.
        welcome: The service's welcome.
        host: The part it shares with others.

    Attributes:
        name: The worker's name.
        topic: At level 0 the topic that it reads.
        number: Its number in the life's register.
        level: Its level.
        core: Its work without I/O.
        traces: Sees its records for traces; None if nothing is traced.
        host: The part it shares with others.
        handed_bytes: The bytes it has handed to neighbours that they have not handled yet.
        behind: True if min time has moved since the core last learned of it.
    """

    def __init__(self, deployment: Deployment, birth: Birth, welcome: Welcome, host: LevelHost) -> None:
        plan, level = deployment.plan, birth.level
        self.name = birth.name
        self.topic = birth.name.partition("/")[2].rpartition("-")[0]
        self.number = birth.number
        self.level = level
        self.handed_bytes = 0
        self.behind = False
        self._deployment = deployment
        self.host = host
        self._fronts = dict(welcome.fronts)
        self._broker_time = BrokerTime(welcome.now_ms, time.monotonic())
        self.traces = make_traces(deployment, birth, host.exporting)
        self.core = make_core(deployment, birth, welcome.front, host.local, host.disk, self.traces)
        self._optimism = None if deployment.optimism is None else Optimism(deployment.optimism)
        self._early = early_of(self.core, self._optimism, deployment.max_queued_bytes)
        """By segment, the frames that came too early: a slow segment does not hold back another."""
        self._cycles = [(each, early) for each, early in self._early.items() if isinstance(early, CycleInbox)]
        self._last = level == plan.levels - 1
        self._outbox = Outbox(birth.number, plan.parallelism)
        self._seals = seals_of(deployment, birth, self.core.place)
        tails = [way for way in plan.feedbacks() if plan.sender_level(way) == level]
        self._ways = {way.id: Outbox(birth.number, plan.parallelism) for way in tails}
        """By way back to a loop's head, the numbering of frames that do not go through Spark."""
        self._numbered: dict[int, int] = {}
        """By target, the number of frames sent to it through Spark up to the last one with records."""
        self._figures = Figures()
        self._intake = Intake(plan, birth.name, level, self.core.place, self._figures)
        self._share = host.share(birth, self.core)
        self._outputs: Outputs | None = None
        if self._share is not None:
            self._outputs = Outputs(
                deployment,
                level=level,
                delivery=self._share,
                figures=self._figures,
                fronts=self._fronts,
            )
        self._delivers = self._share is not None and level > 0
        self._rests_until_s = 0.0
        """The time until which nothing more is read from the source."""
        self._woke_s = 0.0
        self._woke_at = -1
        host.join(self)

    # -- input -----------------------------------------------------------------------------------------------------

    def rows(self, message: bytes, now_ns: int) -> Out:
        """Take records of this worker's source partition, as the JVM packed them."""
        front = self.core.front
        assert front is not None, "only level 0 takes rows"
        packed = open_rows(message)
        if f"0/{packed.topic}-{packed.partition}" != self.name:
            raise LifeEnded(f"worker {self.name} received records of {packed.topic}-{packed.partition}")
        count = len(packed.offsets)
        self._figures.records_in += count
        self._figures.hops["pack"].add(now_ns - packed.born_ns, count)
        self.host.dirty = True
        rows = SourceRows(
            front.number,
            packed.offsets,
            packed.timestamps,
            packed.keys,
            packed.values,
            packed.headers,
            topic=packed.topic,
            partition=packed.partition,
        )
        try:
            effects = self.core.rows(rows, self._broker_time.ms(time.monotonic()))
        except AtRecord as error:
            raise self._named(error) from None
        out = self._send(effects)
        self._figures.hops["python"].add(time.time_ns() - now_ns, count)
        return out

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Out:
        """Take frames of the level before; those of one exchange that came together are handled together."""
        seals = self._seals
        return self.came_round(messages if seals is None else [seals.open(each) for each in messages], now_ns)

    def came_round(self, messages: Sequence[bytes], now_ns: int) -> Out:
        """Take frames that came through a loop's topic, which Kafka protects."""
        return self._take(self._intake.open(messages, now_ns), now_ns)

    def handed(self, came: Sequence[Handed], now_ns: int) -> Out:
        """Take frames that workers of this host have handed over, in order."""
        for each in came:
            rows = len(each.frame.batch)
            self._figures.records_in += rows
            self._figures.hops["exchange"].add(now_ns - each.sent_ns, rows)
        return self._take([each.frame for each in came], now_ns)

    def has_taken(self, handed: Handed) -> bool:
        """Return whether all numbered frames have come that were sent before a frame."""
        return self._intake.taken(handed.sender.number, handed.frame.vertex) >= handed.after

    def _take(self, came: list[Frame], now_ns: int) -> Out:
        out: Out = []
        if self.traces is not None:
            self.traces.came(came, now_ns)
        for segment, frames in self.core.tracked(came):
            early = self._early[segment]
            out += self._process(early, early.take(frames, self.host.local.min_time(segment)), now_ns)
        if came and self._delivers:
            rows = sum([len(frame.batch) for frame in came])
            self._figures.waits(max([frame.ticks[-1] for frame in came]), rows, time.time_ns())
        return out

    def _process(self, early: Early | CycleInbox, groups: Iterable[list[Frame]], now_ns: int) -> Out:
        """Let the core handle frames, those of one exchange together."""
        out: Out = []
        for frames in groups:
            self.host.dirty = True
            repairs = self.core.program.repairs
            try:
                effects = self.core.frame(*frames)
            except AtRecord as error:
                raise self._named(error) from None
            out += self._send(effects)
            records = sum([len(frame.batch) for frame in frames])
            taken_back = self.core.program.repairs - repairs
            if self._optimism is not None:
                self._optimism.worked(records, taken_back)
            if records:
                early.worked(records, taken_back)
            self._figures.hops["python"].add(time.time_ns() - now_ns, records)
        return out

    @property
    def restless(self) -> bool:
        """Return whether `rest` has something to do."""
        return any([early.restless for early in self._early.values()]) and not self.full()

    def rest(self, now_ns: int) -> Out:
        """Work further ahead of min time, as there is nothing else to do."""
        out: Out = []
        for segment, early in self._early.items():
            if early.restless:
                out += self._process(early, early.rest(self.host.local.min_time(segment)), now_ns)
        return out

    @property
    def unfinished(self) -> bool:
        """Return whether `go_on` has something to do at once."""
        if self.core.unfinished:
            return True
        return any([inbox.unfinished(self.host.local.min_time(segment)) for segment, inbox in self._cycles])

    def go_on(self, now_ns: int) -> Out:
        """Do one more portion of what min time has freed, and of what has come round in a loop."""
        out = self.moved((), now_ns) if self.core.unfinished else []
        for segment, inbox in self._cycles:
            out += self._process(inbox, inbox.go_on(self.host.local.min_time(segment)), now_ns)
        return out

    def end(self, epoch: int, now_ns: int) -> Out:
        """Check that the epoch's input was complete; return the marks for the next level."""
        self._intake.end(epoch)
        if self._last:
            return []
        return [(target, self._sealed(target, mark)) for target, mark in self._outbox.marks(epoch, now_ns)]

    def pulling(self) -> bool:
        """Return whether to read on from the source: its front is not stopped (R8), nor are all (R24)."""
        front = self.core.front
        return front is None or (front.pulling and time.monotonic() >= self._rests_until_s)

    def reached_ms(self) -> int | None:
        """Return the time of the log up to which the partition is read (ms since 1970); None for later levels."""
        front = self.core.front
        return None if front is None else front.heartbeat * self._deployment.plan.slack_ms

    def full(self) -> bool:
        """Return whether to read no more: the sinks have no room, or neighbours have not handled their frames."""
        if self.handed_bytes >= self._deployment.max_queued_bytes:
            return True
        if self._outputs is None:
            return False
        return self._outputs.full(sum([barrier.backlog for barrier in self.core.barriers.values()]))

    # -- what the host has received -----------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Return whether something can go on as soon as min time moves."""
        return any(self._early.values()) or self.core.waits

    def moved(self, floors: tuple[Floor, ...], now_ns: int) -> Out:
        """Follow min times that have moved; `floors` came with them.

        If they free nothing, the only work left is to forget: that is done now and then (`catch_up`).
        """
        core = self.core
        waiting = [(segment, early) for segment, early in self._early.items() if early]
        if not (floors or core.ready or waiting or core.pinned is not None):
            self.behind = True
            return []
        self.behind = False
        try:
            effects = core.moved(floors)
        except AtRecord as error:
            raise self._named(error) from None
        self._figures.released(core.min_time, now_ns)
        out = self._send(effects)
        for segment, early in waiting:
            out += self._process(early, early.due(self.host.local.min_time(segment)), now_ns)
        return out

    def catch_up(self) -> None:
        """Do what `moved` has left undone: it sends nothing."""
        self.behind = False
        effects = self.core.moved(())
        assert not effects.frames, "nothing was ready"
        assert not effects.bundles, "nothing was ready"
        assert not effects.questions, "nothing was ready"

    @property
    def settled(self) -> bool:
        """Return whether something of it has become durable since `settle`."""
        return self._share is not None and self._share.settled

    def settle(self) -> Out:
        """Take what has become durable in its sinks."""
        out: Out = []
        if self._outputs is not None:
            for sink, lane in self._outputs.settled():
                try:
                    effects = self.core.durable(sink, lane)
                except AtRecord as error:
                    raise self._named(error) from None
                out += self._send(effects)
        return out

    def answered(self, ask: int, answers: Sequence[Answered]) -> Out:
        """Take answers of an outside service."""
        try:
            return self._send(self.core.answered(ask, answers))
        except AtRecord as error:
            raise self._named(error) from None

    def keep_floors(self) -> Out:
        """Pass on floors that no bundle carries (R18)."""
        return self._send(self.core.keep_floors())

    @cached_property
    def _lookup(self) -> KeyLookup:
        return KeyLookup(self.core)

    def follow(self, order: WorkerOrder) -> None:
        """Follow an order of the service: a floor for the front, new source partitions, results of snapshots."""
        host = self.host
        match order:
            case BrokerNow(now_ms):
                self._broker_time.update(now_ms, time.monotonic())
            case Grant(front, offset, tick, now_ms):
                self._broker_time.update(now_ms, time.monotonic())
                if self.core.grant(Floor(front, offset, tick)):
                    host.dirty = True
            case NewFronts(fronts):
                self._fronts.update(fronts)
            case Look() | LookAround() | LookForLabels():
                host.report(self.name, self._lookup.answer(order))
            case Listened(for_s):
                host.listened(time.monotonic() + for_s)
            case Rest(for_s):
                self._rests_until_s = time.monotonic() + for_s
            case Forget(starts):
                self._forget(starts)
            case Committed() | Cancel():
                host.snapshot_over(self.name, order)

    def _forget(self, starts: Iterable[tuple[int, int]]) -> None:
        """Drop floors that a commit has made superfluous."""
        for front, offset in starts:
            self.core.forget_floors(front, offset)
            self.host.forget_floors(front, offset)

    def reached(self, now_s: float) -> Reached | None:
        """Return the offset that the front expects, and its state, if the service is to learn them now; else None."""
        front = self.core.front
        if front is None or self.reached_at_s() > now_s:
            return None
        self._woke_at, self._woke_s = front.next_offset, now_s
        return Reached(front.next_offset, front.heartbeat)

    def reached_at_s(self) -> float:
        """Return when the service is to learn the offset that the front expects; infinite if it knows it.

        Only where few records come does min time wait for what the service grants; others carry the time themselves.
        """
        front = self.core.front
        if front is None or front.next_offset == self._woke_at:
            return math.inf
        return self._woke_s + min(WAKE_S, RECORD_WAKE_S * (front.next_offset - self._woke_at))

    def gauges(self) -> WorkerGauges:
        """Return counts, and histograms of `HOPS` (bucket to records)."""
        core, share = self.core, self._share
        return replace(
            self._figures.gauges(self._waiting()),
            repairs=core.program.repairs,
            late={step: self._late(seen) for step, seen in core.program.late.items()} or None,
            kept={
                step: KeptGauges(what=kept.what, count=kept.number, bytes=kept.bytes)
                for step, kept in core.program.kept.items()
            }
            or None,
            calls={ask.ask.name: _calls(ask) for ask in core.program.asking.values()} or None,
            delivered_time=core.delivered_time,
            waiting=sum(map(len, core.barriers.values())),
            front=None if core.front is None else replace(front_gauges(core.front), pulling=self.pulling()),
            **({} if share is None else {"queued": share.queued} | share.gauges()),
        )

    def _waiting(self) -> Mapping[str, tuple[int, float]]:
        """Return what waits for each sink; see `Outputs.waiting`."""
        if self._outputs is None:
            return {}
        return self._outputs.waiting({sink: barrier.backlog for sink, barrier in self.core.barriers.items()})

    def _late(self, seen: LateSeen) -> LateGauges:
        """Return what was late, with the partition's name."""
        first = ""
        if seen.first is not None:
            front, offset = seen.first.front, seen.first.sequence
            partition = self._fronts.get(front, f"front {front}")
            first = clock_of(self.core.plan, seen.first) if front == CLOCK else f"{partition}, offset {offset}"
        return LateGauges(
            records=seen.records,
            closed=seen.closed,
            ahead=seen.ahead,
            most_ms=seen.most_us / 1_000,
            minute=seen.minute,
            first=first,
            first_ms=seen.first_us / 1_000,
        )

    def _named(self, error: AtRecord) -> AtRecord:
        """Return the error with the name of its source partition, whose number the core knows, and the record's key."""
        front = error.position.front
        error.name_clock(self.core.plan)
        error.name_key(self.core.plan)
        error.name_front(self._fronts.get(front, f"front {front}"))
        return error

    # -- output ----------------------------------------------------------------------------------------------------

    def _send(self, effects: Effects) -> Out:
        """Give bundles to the sinks and frames to neighbours; return frames for others."""
        for sink, bundle in effects.bundles:
            assert self._outputs is not None
            self._outputs.give(sink, bundle)
        if effects.questions:
            self.host.ask(self, effects.questions)
        out: Out = []
        for frame in effects.frames:
            self._figures.records_out += len(frame.batch)
            target = frame.target
            way = self._ways.get(frame.vertex)
            if way is not None:
                if not self.host.hand_over(self, frame, way.numbered(target)):
                    self.host.rounds.send(way, frame)
                continue
            if not self.host.hand_over(self, frame, self._numbered.get(target, 0)):
                out.append((target, self._sealed(target, self._outbox.records(target, frame, time.time_ns()))))
                self._numbered[target] = self._outbox.numbered(target)
        return out

    def _sealed(self, target: int, frame: bytes) -> bytes:
        """Return a frame that was numbered last, as it goes through Spark."""
        if self._seals is None:
            return frame
        return self._seals.seal(target, self._outbox.sender, self._outbox.numbered(target) - 1, frame)


def _calls(ask: CallNode) -> CallGauges:
    """Return the calls of a step."""
    return CallGauges(open=ask.open_calls, waiting=ask.waiting, reused=ask.reused, first=ask.first_open)
