"""The workers of one life, as far as no other life sees what they do: real cores, and the real tracker between them.

What happens inside a life is the simulation's (`tests/simulation`): here frames and notices arrive at once, and a life
is what has happened in it. The order of *that* is what the model tries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from programs import source_rows

from lowtide import Flow, json, kafka
from lowtide.core.effects import Effects, Snapshot
from lowtide.core.fronts.floors import Floors
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.order.bundle import Bundle
from lowtide.core.operators.order.order import FIRST_TICK, OrderKey, Position
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.schema.fields import kept
from lowtide.local.run import Message
from lowtide_tracker import Floor, Graph, LocalTracker, Notice, Tracker

from .access import JOB

IN, OUT = "in", "out"


@dataclass(frozen=True)
class Event:
    key: str
    number: int


def in_order(state: int, event: Event) -> tuple[int, Event]:
    """Another output for each order of the records."""
    state = state * 10 + event.number
    return state, Event(event.key, state)


@cache
def plan() -> Plan:
    """One grouping and one lane, so that all order and all state show in one sequence."""
    flow = Flow(JOB)
    events = flow.read(IN, kafka(IN, json(Event))).key_by("key")
    events.scan("numbers", in_order, 0).write(OUT, kafka(OUT, json(Event)))
    return compile_flow(flow, parallelism=1, units=2, lanes=1, slack_ms=1)


(_sink,) = plan().sinks()
SINK = _sink.id


@cache
def encoder() -> SinkEncoder:
    return SinkEncoder(_sink, plan().slack_ms)


def message(front: int, offset: int, tick: int, key: str, number: int) -> Message:
    """A record of the log."""
    return Message(Position(front, offset), tick, None, msgspec.json.encode(Event(key, number)))


Log = tuple[tuple[Message, ...], ...]
"""By front its records."""


@dataclass(frozen=True)
class Begun:
    """What a life goes on from.

    Attributes:
        number: The incarnation.
        last: Of the lane, packed; empty if nothing was delivered.
        floors: Those that are durable.
        unreported: Those that commits alone know.
        relied_on: As the opening says.
        start: The tick at which it begins.
        starts: By front where it is read from, and the label before; None for none.
        openings: By front its opening floor.
        base: The id and tick of the commit that it was loaded from; None for none.
        state: By vertex and unit the keys with their state.
        topic: Where it keeps its `last`.
        generation: Of the output.
        manifest: That of the commit, as JSON; empty for none.
    """

    number: int
    last: tuple[Any, ...] | None
    floors: tuple[Floor, ...]
    unreported: tuple[Floor, ...]
    relied_on: int
    start: int
    starts: tuple[tuple[int, int | None], ...]
    openings: tuple[int, ...]
    state: tuple[tuple[str, int, tuple[Any, ...]], ...]
    topic: str
    generation: int
    manifest: str


class Machine:
    """The workers and the tracker of a life, after all that has happened in it.

    Attributes:
        bundle: What the lane has in flight; None if nothing.
        before: The lane's packed `last` before it.
        bundles: How many there have been.
        requests: By number the T of the snapshots that were asked for.
        captured: By number what each worker has captured.
        floors: All that min time rests on.
    """

    def __init__(self, begun: Begun, log: Log) -> None:
        self.log = log
        self.begun = begun
        segments = segments_of(plan())
        (self._segment,) = segments.of_exchange.values()
        known = [*begun.floors, *begun.unreported]
        last = {} if begun.last is None else {(SINK, 0): OrderKey(*begun.last)}
        self.tracker = Tracker(
            Graph(segments.inbound),
            dict(enumerate(begun.openings)),
            start=begun.start,
            capacity_ticks=64,
            dues=segments.dues,
        )
        self.locals = [LocalTracker(worker, begun.number, start=begun.start) for worker in range(len(log) + 1)]
        self.cores: list[WorkerCore] = []
        for number, ((offset, before), opening) in enumerate(zip(begun.starts, begun.openings, strict=True)):
            front = Front(
                number,
                FrontLimits(plan().slack_ms, Window(64, 1 << 20), 1_000),
                KnownFloors(
                    opening, begun.floors, begun.unreported, begun.relied_on, max([0, *(floor.tick for floor in known)])
                ),
                offset=offset,
                **({} if before is None else {"before": before}),
                stop=len(log[number]),
            )
            self.cores.append(WorkerCore(plan(), 0, 0, tracker=self.locals[number], front=front, last=last))
        core = WorkerCore(plan(), 1, 0, tracker=self.locals[-1], last=last)
        captured: dict[str, dict[int, list[Any]]] = {}
        for vertex, unit, entries in begun.state:
            captured.setdefault(vertex, {})[unit] = list(entries)
        if begun.manifest:
            core.restore(captured, begun.start)
        core.report_due()
        self.cores.append(core)
        self.bundle: Bundle | None = None
        self.before = b""
        self._put = b"" if begun.last is None else OrderKey(*begun.last).packed()
        self.bundles = 0
        self.requests: dict[int, int] = {}
        self.captured: dict[int, list[Snapshot]] = {}
        self.floors = Floors(known)
        self._settle()

    @property
    def worker(self) -> WorkerCore:
        """The worker with the state and the lane."""
        return self.cores[-1]

    @property
    def delivered_time(self) -> int:
        return self.worker.delivered_time

    def open(self, floor_tick: int) -> list[str]:
        """What can happen now that no other life sees: records are read, a floor is granted, floors are kept."""
        left = [self._front(number).next_offset < len(records) for number, records in enumerate(self.log)]
        found = [f"r{number}" for number, there in enumerate(left) if there]
        # Only the last front is ever quiet: with others it would be the same again.
        if left[-1] and self._front(len(left) - 1).heartbeat < floor_tick and not self._was_there():
            found.append(f"g{len(left) - 1}")
        if self.bundle is None and self.worker.barriers[SINK].floors_to_keep and not any(left[:-1]):
            found.append("k")
        return found

    def _was_there(self) -> bool:
        """True if the next record of the last front had been delivered when the life began, so that it is not news."""
        if self.begun.last is None:
            return False
        front = self._front(len(self.log) - 1)
        record = self.log[-1][front.next_offset]
        floor = self.floors.tick_at(front.number, front.next_offset)
        return (max(record.timestamp, floor), front.number, front.next_offset) <= self.begun.last[:3]

    def happen(self, happening: str, floor_tick: int) -> None:
        """A record is read (`r0`), a floor granted (`g1`), floors are kept (`k`), a bundle is durable (`d`), a snapshot
        is asked for (`q1`) and captured (`c1`, or `c1:5` of what has changed since a commit at 5)."""
        said, _, since = happening.partition(":")
        kind, number = said[0], int(said[1:] or 0)
        match kind:
            case "r":
                front = self._front(number)
                core = self.cores[number]
                # The front says which one comes next, and its offsets are places in the log.
                self._spread(core.rows(source_rows([self.log[number][front.next_offset]]), 0))
            case "g":
                core = self.cores[number]
                core.grant(Floor(number, self._front(number).next_offset, floor_tick))
            case "k":
                self._spread(self.worker.keep_floors())
            case "d":
                self.bundle = None
                self._spread(self.worker.durable(SINK, 0))
            case "q":
                notice = self.tracker.request(number)
                assert notice.request is not None
                self.requests[number] = notice.request.tick
                self._tell(notice)
            case "c":
                base = int(since) if since else FIRST_TICK
                self.captured[number] = [core.snapshot(base) for core in self.cores]
                for core in self.cores:
                    core.unpin()
        self._settle()

    def _front(self, number: int) -> Front:
        front = self.cores[number].front
        assert front is not None
        return front

    def _settle(self) -> None:
        """All that is under way in the life arrives."""
        moved = True
        while moved:
            moved = False
            for core in self.cores:
                flush = core.flush()
                if flush is None:
                    continue
                moved = True
                for notice in self.tracker.receive(flush):
                    self._tell(notice)
                core.tracker.applied(flush.number)

    def _tell(self, notice: Notice) -> None:
        self.floors.merge(notice.floors)
        for core in self.cores:
            self._spread(core.notice(notice))

    def _spread(self, effects: Effects) -> None:
        for frame in effects.frames:
            rows = kept(plan().vertices[frame.vertex].gives, frame.batch.rows, frame.payload)
            frame.batch = frame.batch.with_rows(rows)
            self._spread(self.worker.frame(frame))
        for sink, bundle in effects.bundles:
            if sink != SINK:
                continue
            assert self.bundle is None, "R13: the lane has two bundles in flight"
            self.bundle = bundle
            self.before, self._put = self._put, bundle.last
            self.bundles += 1
