"""Programs of all levels in one place, with exchanges and barriers between them, and no tracker: for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide.core.fronts.labels import Clock, label
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.faults.failure import Dead, ends_life, error_of, letters
from lowtide.core.operators.held.pending import Pending
from lowtide.core.operators.node import Feed, Parcel
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.core.operators.program import Program
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.fields import kept
from lowtide.flow.steps.steps import Read
from lowtide.local.run import Message

END = 1 << 62
"""Above every tick of a test."""

Sent = tuple[Any, ...]
"""A sink's messages: key, value, timestamp, and each header."""

Choose = Callable[[int], int]
"""The channel that delivers next, of so many."""


class Programs:
    """All workers of a plan; frames of one sender to one target stay in order, all else is as `choose` says.

    Args:
        plan: The plan.
        choose: Given how many channels have something, says which one delivers.
        grouping: The mode, if not the plan's.

    Attributes:
        delivered: By sink and lane what came out, in order; complete after `finish`.
        dead: The dead letters, level by level and worker by worker, in order; complete after `finish`.
        owners: By sink and lane the workers that delivered there.
    """

    def __init__(self, plan: Plan, choose: Choose = lambda _: 0, grouping: str | None = None) -> None:
        self.plan = plan
        self._choose = choose
        self.sources = Program(plan, 0, grouping)
        self.levels = [
            [Program(plan, level, grouping) for _ in range(plan.parallelism)] for level in range(1, plan.levels)
        ]
        self._channels: dict[tuple[Any, int, int], deque[Parcel]] = {}
        self._labels: dict[int, int] = {}
        self._barriers: dict[tuple[int, int], Pending] = {}
        self._faults: dict[tuple[int, int], Pending] = {}
        self.delivered: dict[str, dict[int, list[Sent]]] = {vertex.name: {} for vertex in plan.sinks()}
        self.dead: list[Dead] = []
        self.owners: dict[tuple[str, int], set[int]] = {}

    @property
    def repairs(self) -> int:
        return sum(program.repairs for level in self.levels for program in level)

    def feed(self, source: str, messages: Sequence[Message]) -> None:
        """Read messages of one front, by all sources of the topic that this one reads."""
        rows = self.labelled(source_rows(messages))
        for name in beside(self.plan, source):
            vertex = next(vertex for vertex in self.plan.sources() if vertex.name == name)
            self._take((0, rows.front), 0, self.sources.feed_source(vertex.id, rows))

    def labelled(self, rows: SourceRows) -> SourceRows:
        before = self._labels.get(rows.front, NO_TICK)
        clock = Clock(self.plan.slack_ms, 0, END)
        rows.ticks, _ = label(rows.front, rows.offsets, rows.timestamps, before=before, floors=Floors(), clock=clock)
        self._labels[rows.front] = rows.ticks[-1]
        return rows

    def run(self) -> None:
        """Deliver all frames that are under way."""
        while self.step():
            pass

    def step(self) -> bool:
        """Deliver one frame; whether there was one."""
        busy = [key for key, frames in self._channels.items() if frames]
        if not busy:
            return False
        key = busy[self._choose(len(busy)) % len(busy)]
        _, level, target = key
        parcel = self._channels[key].popleft()
        record = self.plan.vertices[parcel.vertex].gives
        received = parcel.batch.with_rows(kept(record, parcel.batch.rows, parcel.payload))
        self._take((level, target), level, self.levels[level - 1][target].feed(parcel.vertex, received))
        return True

    def finish(self) -> None:
        """Let everything through: what ordered groupings hold, level by level, then barriers."""
        self.run()
        for level, programs in enumerate(self.levels, 1):
            for place, program in enumerate(programs):
                for node in program.holding:
                    node.time_ends()
                self._take((level, place), level, program.advance(END))
            self.run()
        for (sink, place), barrier in sorted(self._barriers.items()):
            self._release(sink, place, barrier)
        for faults in (self._faults[key] for key in sorted(self._faults)):
            for batch in faults.release(END):
                for at, fault in zip(batch.ats, batch.rows, strict=True):
                    if ends_life(self.plan, fault):
                        raise error_of(at, fault)
                self.dead += letters(self.plan, batch.ats, batch.rows)

    def _take(self, sender: tuple[int, int], level: int, feed: Feed) -> None:
        place = sender[1]
        for parcel in feed.parcels:
            to = self.plan.vertices[parcel.vertex].level
            # What goes back to a loop's head takes another way than what goes on: neither is in order with the other.
            key = ((sender, level), to, parcel.target)
            self._channels.setdefault(key, deque()).append(parcel)
        for sink, batch in feed.delivers:
            self._barriers.setdefault((sink, place), Pending("a test's barrier")).add(batch)
        for batch in feed.faults:
            self._faults.setdefault((level, place), Pending("a test's faults")).add(batch)

    def _release(self, sink: int, place: int, barrier: Pending, tick: int = END) -> None:
        (vertex,) = (each for each in self.plan.sinks() if each.id == sink)
        lane_of_unit = self.plan.lane_of_unit().tolist()
        encoder = SinkEncoder(vertex, self.plan.slack_ms)
        for batch in barrier.release(tick):
            messages = encoder.encode(0, [Piece(batch.ticks[0], batch.ats, batch.rows)])
            for unit, (_, _, key, value, timestamp, headers) in zip(batch.units, messages, strict=True):
                lane = lane_of_unit[unit]
                self.delivered[vertex.name].setdefault(lane, []).append((key, value, timestamp, *(headers or ())))
                self.owners.setdefault((vertex.name, lane), set()).add(place)


def beside(plan: Plan, source: str) -> list[str]:
    """The sources that read the topic of this one, itself included."""
    topics = {vertex.name: vertex.step.source.topic for vertex in plan.sources() if isinstance(vertex.step, Read)}
    return [name for name, topic in topics.items() if topic == topics[source]]


def source_rows(messages: Sequence[Message]) -> SourceRows:
    """Messages of one front as the worker gets them."""
    (front,) = {message.position.front for message in messages}
    return SourceRows(
        front,
        [message.position.sequence for message in messages],
        [message.timestamp for message in messages],
        [message.key for message in messages],
        [message.value for message in messages],
        [message.headers for message in messages] if any(message.headers for message in messages) else None,
        topic=messages[0].topic,
        partition=messages[0].partition,
    )


def rows_of_values(values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()) -> SourceRows:
    """Messages with these values, of which nothing else matters."""
    count = len(values)
    return SourceRows(0, list(range(count)), [0] * count, list(keys) or [None] * count, list(values))


def by_lane(delivered: Mapping[str, Sequence[Any]]) -> dict[str, dict[int, list[Sent]]]:
    """The interpreter's deliveries, as `Programs.delivered` has it."""
    lanes: dict[str, dict[int, list[Sent]]] = {name: {} for name in delivered}
    for name, messages in delivered.items():
        for one in messages:
            lanes[name].setdefault(one.lane, []).append((one.key, one.value, one.timestamp, *one.headers))
    return lanes
