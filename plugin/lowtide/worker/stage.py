"""One worker's share of a level: bytes in, frames and deliveries out; drives the worker's core.

Its I/O is the line to the tracker and the sinks' own thread; the loop watches both descriptors for it. All that a call
has caused goes out before the loop waits again: frames at once, acks and heartbeats with the next flush, `FLUSH_S`
after the one before at the earliest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lowtide.connectors.kafka_rows import open_rows
from lowtide.errors import LifeEnded
from lowtide.frames import Outbox
from lowtide.fronts.source_rows import SourceRows
from lowtide.operators.failure import AtRecord
from lowtide.worker.birth import Birth
from lowtide.worker.building import make_core, make_delivery, make_saver
from lowtide.worker.deployment import Deployment
from lowtide.worker.early import Early
from lowtide.worker.effects import Effects, Frame
from lowtide.worker.figures import Figures
from lowtide.worker.intake import Intake
from lowtide.worker.looking import Looking
from lowtide.worker.optimism import Optimism
from lowtide.worker.outputs import Outputs
from lowtide.worker.protocol import Frames
from lowtide.worker.tracker_line import TrackerLine
from lowtide.worker.welcome import Welcome
from lowtide_tracker import Floor, LocalTracker

FLUSH_S = 0.002
"""Least time between two flushes to the tracker (T4): it bounds what tracking adds to a record's latency."""
MEND_S = 0.005
"""How often a line that is broken is looked after."""
KEEP_FLOORS_S = 1.0
"""How often floors are handed on that no bundle carries, where a sink is idle (R18)."""
HEAR_S = 0.01
"""How often a worker hears what the tracker says though nothing of it waits for that."""
WAKE_S = 0.02
"""How often the service is told that somebody waits for min time."""


class LevelStage:
    """Runs a level's core on what a worker is sent.

    Args:
        deployment: The plan and its settings.
        birth: Who the worker is.
        welcome: What the service told it.
    """

    def __init__(self, deployment: Deployment, birth: Birth, welcome: Welcome) -> None:
        plan, level = deployment.plan, birth.level
        self._deployment = deployment
        self._name = birth.name
        self._fronts = dict(welcome.fronts)
        self._clock_ahead_ms = welcome.clock_ahead_ms
        local = LocalTracker(birth.number, birth.incarnation, start=deployment.start)
        self._core = make_core(deployment, birth, welcome.front, local)
        self._line: TrackerLine | None = None
        if deployment.tracking:
            self._line = TrackerLine(
                welcome.tracker, secret=birth.secret, incarnation=birth.incarnation, local=local, name=birth.name
            )
            self._line.connect()
        first = deployment.optimism if deployment.tracking else None
        self._optimism = None if first is None else Optimism(first)
        self._early = Early(self._optimism, deployment.max_queued_bytes)
        self._last = level == plan.levels - 1
        self._outbox = Outbox(birth.number, plan.parallelism)
        self._figures = Figures()
        self._intake = Intake(plan, birth.name, level, self._core.place, self._figures)
        self._delivery = make_delivery(deployment, birth, self._core)
        self._saver = make_saver(deployment, birth)
        self._says: list[dict[str, Any]] = []
        self._outputs: Outputs | None = None
        if self._delivery is not None:
            self._outputs = Outputs(
                deployment,
                level=level,
                incarnation=birth.incarnation,
                delivery=self._delivery,
                figures=self._figures,
                fronts=self._fronts,
            )
        self._delivers = self._delivery is not None and level > 0 and deployment.tracking
        self._dirty = True
        self._flushed_s = self._kept_s = self._heard_s = self._woke_s = 0.0
        self._woke_at = -1

    # -- input -----------------------------------------------------------------------------------------------------

    def rows(self, message: bytes, now_ns: int) -> Iterator[tuple[int, bytes]]:
        """Take records of this worker's source partition, as the JVM packed them."""
        assert self._core.front is not None
        packed = open_rows(message)
        if f"0/{packed.topic}-{packed.partition}" != self._name:
            raise LifeEnded(f"worker {self._name} was given records of {packed.topic}-{packed.partition}")
        count = len(packed.offsets)
        self._figures.records_in += count
        self._figures.hops["pack"].add(now_ns - packed.born_ns, count)
        self._dirty = True
        with self._named_fronts():
            effects = self._core.rows(
                SourceRows(
                    self._core.front.number,
                    packed.offsets,
                    packed.timestamps,
                    packed.keys,
                    packed.values,
                    packed.headers,
                ),
                now_ns // 1_000_000 + self._clock_ahead_ms,
            )
        yield from self._send(effects)
        self._figures.hops["python"].add(time.time_ns() - now_ns, count)

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Iterator[tuple[int, bytes]]:
        """Take frames of the level before; those of one exchange that came together are dealt with together."""
        came = self._intake.open(messages, now_ns)
        yield from self._process(self._early.take(came, self._core.min_time), now_ns)
        if came and self._delivers:
            rows = sum([len(frame.batch) for frame in came])
            self._figures.waits(max([frame.ticks[-1] for frame in came]), rows, time.time_ns())

    def _process(self, groups: Iterable[list[Frame]], now_ns: int) -> Frames:
        """Let the core deal with frames, those of one exchange together."""
        for frames in groups:
            self._dirty = True
            repairs = self._core.program.repairs
            with self._named_fronts():
                effects = self._core.frame(*frames)
            yield from self._send(effects)
            records = sum([len(frame.batch) for frame in frames])
            if self._optimism is not None:
                self._optimism.worked(records, self._core.program.repairs - repairs)
            self._figures.hops["python"].add(time.time_ns() - now_ns, records)

    def rest(self, now_ns: int) -> Frames:
        """There is nothing else to do: work further ahead of min time, if that pays."""
        return self._process(self._early.rest(self._core.min_time), now_ns)

    def end(self, epoch: int, now_ns: int) -> list[tuple[int, bytes]]:
        """Check that the epoch's input was complete; return the marks for the next level."""
        self._intake.end(epoch)
        return [] if self._last else self._outbox.marks(epoch, now_ns)

    def pulling(self) -> bool:
        """Whether the source is to be read on: its front is not stopped (R8)."""
        return self._core.front is None or self._core.front.pulling

    def full(self) -> bool:
        """Whether the sinks have no room, so that no more input should be read."""
        if self._outputs is None:
            return False
        return self._outputs.full(sum(barrier.backlog for barrier in self._core.barriers.values()))

    # -- tracker, sinks, service -----------------------------------------------------------------------------------

    def descriptors(self) -> tuple[int, ...]:
        """What the loop is to watch; `hear` is to be called when there is something to read on one.

        While nothing here waits for min time, or all lanes are busy with what it has released before, notices are taken
        now and then, together.
        """
        found = [] if self._line is None or not self._waits else [self._line.fileno()]
        if self._delivery is not None:
            found.append(self._delivery.fileno())
        if self._saver is not None:
            found += self._saver.descriptors()
        return tuple(descriptor for descriptor in found if descriptor >= 0)

    def hear(self) -> Frames:
        """Take what the tracker and the sinks have said."""
        yield from self._settle()
        if self._line is None:
            return
        notices = self._line.receive()
        if not notices:
            return
        now = time.time_ns()
        with self._named_fronts():
            effects = self._core.notice(*notices)
        # What was held is let go, or a stopped front goes on; most notices fold nothing.
        self._dirty = self._dirty or self._core.front is not None or self._core.tracker.unflushed
        self._figures.released(self._core.min_time, now)
        yield from self._send(effects)
        yield from self._process(self._early.due(self._core.min_time), now)
        if self._core.pinned is not None:
            self._save()

    def _save(self) -> None:
        """Let what a snapshot asks for be written, by a process that is forked for it."""
        if self._saver is None:
            self._core.unpin()
        else:
            self._says += ({"snapshot": said} for said in self._saver.begin(self._core))

    def told(self, message: dict[str, Any]) -> None:
        """Take what the service says: a floor for the front, new source partitions, what became of snapshots."""
        if "grant" in message:
            self._clock_ahead_ms = message["ahead"]
            if self._core.grant(Floor(*message["grant"])):
                self._dirty = True
        if "fronts" in message:
            self._fronts.update({int(number): name for number, name in message["fronts"].items()})
        if "look" in message:
            self._says.append({"looked": Looking(self._core).look(message["look"])})
        for front, offset in message.get("forget", ()):
            self._core.forget_floors(front, offset)
        if self._saver is not None and "committed" in message:
            self._saver.committed(message["committed"])
        if self._saver is not None and "cancel" in message:
            self._saver.cancel(message["cancel"])

    def asks(self, now_s: float) -> list[dict[str, Any]]:
        """What the service is to be told: who waits for min time, which offset this front expects, what was saved."""
        if self._saver is not None:
            self._says += ({"snapshot": said} for said in self._saver.hear(self._core))
        asks, self._says = self._says, []
        front = self._core.front
        if front is not None and front.next_offset != self._woke_at and now_s - self._woke_s >= WAKE_S:
            self._woke_at, self._woke_s = front.next_offset, now_s
            asks.append({"at": front.next_offset, "tick": front.heartbeat})
        return asks

    def tick(self, now_s: float) -> Frames:
        """Do what is due."""
        if now_s - self._heard_s >= HEAR_S and not self._waits:
            self._heard_s = now_s
            yield from self.hear()
        else:
            yield from self._settle()
        if now_s - self._kept_s >= KEEP_FLOORS_S:
            self._kept_s = now_s
            yield from self._send(self._core.keep_floors())
        line = self._line
        if line is None:
            return
        if line.fileno() < 0 and not line.mend(now_s):
            return
        if self._dirty and now_s - self._flushed_s >= FLUSH_S:
            flush = self._core.flush()
            self._flushed_s = now_s
            # None also says that too much waits to be applied; then what is left goes later.
            self._dirty = flush is None and self._core.tracker.unflushed
            line.flush(flush)

    def due_s(self, now_s: float) -> float:
        """In how many seconds `tick` has something to do."""
        if self._line is None:
            return 1.0
        if self._line.fileno() < 0:
            return MEND_S
        return max(0.0, self._flushed_s + FLUSH_S - now_s) if self._dirty else 1.0

    def gauges(self) -> dict[str, Any]:
        """Counts, and histograms of `HOPS` (bucket to records)."""
        core = self._core
        gauges = self._figures.as_json() | {"repairs": core.program.repairs, "delivered_time": core.delivered_time}
        gauges["waiting"] = sum(map(len, core.barriers.values()))
        if self._delivery is not None:
            gauges |= {"queued": self._delivery.queued} | self._delivery.gauges()
        if core.front is not None:
            front = core.front
            gauges["front"] = {
                "front": front.number,
                "heartbeat": front.heartbeat,
                "next_offset": front.next_offset,
                "parked": front.parked,
                "pulling": front.pulling,
            }
        return gauges

    def close(self, timeout_s: float) -> int:
        """Deliver what the sinks were given, and return how many records were left after the time-out."""
        if self._saver is not None:
            self._saver.close()
        return 0 if self._delivery is None else self._delivery.close(timeout_s)

    @property
    def _waits(self) -> bool:
        """Whether something can go on as soon as min time moves."""
        return bool(self._early) or self._core.waits

    @contextmanager
    def _named_fronts(self) -> Iterator[None]:
        """Let failures say source partitions by name: the core knows their numbers only."""
        try:
            yield
        except AtRecord as error:
            front = error.position.front
            error.name_front(self._fronts.get(front, f"front {front}"))
            raise

    # -- output ----------------------------------------------------------------------------------------------------

    def _settle(self) -> Frames:
        if self._outputs is None:
            return
        for sink, lane in self._outputs.settled():
            with self._named_fronts():
                effects = self._core.durable(sink, lane)
            yield from self._send(effects)

    def _send(self, effects: Effects) -> Frames:
        """Give bundles to the sinks, and frames to the caller."""
        for sink, bundle in effects.bundles:
            assert self._outputs is not None
            self._outputs.give(sink, bundle)
        for frame in effects.frames:
            self._figures.records_out += len(frame.batch)
            yield frame.target, self._outbox.records(frame.target, frame, time.time_ns())
