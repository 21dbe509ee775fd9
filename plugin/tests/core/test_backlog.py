"""A backlog of older records that came while a job was down: one tick of it is bounded, though floors lie above it."""

from __future__ import annotations

from itertools import count

from core_rig import Event, total

from lowtide import Flow, json, kafka
from lowtide.core.effects import Effects
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.fronts.source_rows import ROW_BYTES, SourceRows
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.schema.fields import kept
from lowtide_tracker import Floor, Graph, LocalTracker, Tracker

SLACK_MS = 2
BACKLOG = 200_000
PORTION = 1_000
NOW_MS = 1_000_000
ENDED = (NOW_MS - 60_000) // SLACK_MS
"""The last tick that the life before has delivered."""
VALUE = b'{"key":"a","number":1}'
WINDOW = Window(2_500, 1 << 20)
HELD = WINDOW.max_bytes // (ROW_BYTES + len(VALUE)) + 2 * PORTION


class Life:
    """A life of two partitions, one worker each, and one that counts; everything that is sent arrives at once."""

    def __init__(self) -> None:
        flow = Flow("test")
        events = flow.read("events", kafka("events", json(Event)))
        events.key_by("key").scan("count", total, 0).write("out", kafka("out", json(Event)))
        self._plan = compile_flow(flow, parallelism=1, units=8, lanes=1, slack_ms=SLACK_MS)
        inbound = segments_of(self._plan).inbound
        self.tracker = Tracker(Graph(inbound), {0: 0, 1: 0}, start=0, capacity_ticks=1 << 20)
        # Partition 0 was quiet when the life before ended, and 1 had come further by then.
        floors = [Floor(0, 0, ENDED + 1), Floor(1, 0, ENDED + 20)]
        self.fronts = [
            Front(
                number,
                FrontLimits(SLACK_MS, WINDOW, 60_000),
                KnownFloors(0, floors, relied_on=ENDED + 1, highest=ENDED + 20),
            )
            for number in (0, 1)
        ]
        locals_ = [LocalTracker(number, 1, start=0) for number in range(3)]
        self._readers = [WorkerCore(self._plan, 0, n, tracker=locals_[n], front=self.fronts[n]) for n in (0, 1)]
        self._counter = WorkerCore(self._plan, 1, 0, tracker=locals_[2])
        self._offsets = [count(), count()]
        self.delivered = 0

    @property
    def held(self) -> int:
        """Number of results that wait for min time."""
        return sum(map(len, self._counter.barriers.values()))

    def read(self, partition: int, stamp_ms: int, records: int, now_ms: int) -> None:
        offsets = [next(self._offsets[partition]) for _ in range(records)]
        rows = SourceRows(partition, offsets, [stamp_ms] * records, [None] * records, [VALUE] * records)
        self._happened(self._readers[partition].rows(rows, now_ms))

    def flush(self) -> None:
        """All tell the tracker what they have done, and hear what it makes of it."""
        cores = (*self._readers, self._counter)
        for core in cores:
            core.report()
            flush = core.flush()
            for notice in self.tracker.receive(flush) if flush else ():
                for other in cores:
                    self._happened(other.notice(notice))

    def _happened(self, effects: Effects) -> None:
        for frame in effects.frames:
            gives = self._plan.vertices[frame.vertex].gives
            frame.batch = frame.batch.with_rows(kept(gives, frame.batch.rows, frame.payload))
            self._happened(self._counter.frame(frame))
        for sink, bundle in effects.bundles:
            self.delivered += len(bundle)
            self._happened(self._counter.durable(sink, bundle.lane))


def test_what_a_backlog_from_before_the_life_holds_is_bounded() -> None:
    """Its label is that of a floor that the life before has left: nothing of it was let out, so its tick is closed."""
    life, now_ms, most = Life(), NOW_MS, 0
    for _ in range(BACKLOG // PORTION):
        now_ms += 10
        while not life.fronts[0].pulling:
            before = life.tracker.global_min
            life.flush()
            assert life.tracker.global_min > before, "it has stopped for good"
        life.read(0, NOW_MS - 3_600_000, PORTION, now_ms)
        life.read(1, now_ms, 1, now_ms)  # The other one is live.
        life.flush()
        most = max(most, life.held)
    for _ in range(5):  # Nothing more comes.
        for front in life.fronts:
            front.grant(Floor(front.number, front.next_offset, (now_ms + 1_000) // SLACK_MS))
        life.flush()
    assert life.delivered == BACKLOG + BACKLOG // PORTION
    assert most <= HELD + BACKLOG // PORTION
