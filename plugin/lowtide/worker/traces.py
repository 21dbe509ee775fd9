"""Makes spans of sampled records as they pass one worker.

Which records are sampled, and the id of a record's trace, is a hash of the job and the record's position in the log:
the same in every process and life, so nothing about it travels with records. A trace's id has 128 bits; as with
OpenTelemetry's `TraceIdRatioBased`, a record is sampled if the lower 64 are below the ratio. What time alone brings,
such as a window's result, has no position of its own and is not traced.

One record's spans are `source`, which all others belong to; one for each level and worker it passes; and below that for
each bundle `wait`, before the barrier, and `deliver`, until the sink has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import xxhash

from lowtide.core.effects import Frame
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.bundle import Bundle
from lowtide.core.operators.order.order import SIGN_32, SIGN_64, position_of, tick_of
from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.steps import Write
from lowtide.worker.exporting import Span

_POSITION = Struct(">IQ")
_MASK = (1 << 64) - 1


class _Stay:
    """A sampled record in this worker.

    A call with `order="answer"` gives what it answers a later tick: what has gone may come again at one, which is
    another stay, and what is here may have several.
    """

    __slots__ = ("came_ns", "first", "last", "left_ns", "received", "sent", "taken_ns", "trace", "waits")

    def __init__(self, trace: int, tick: int, came_ns: int) -> None:
        self.trace = trace
        self.first = self.last = tick
        self.came_ns = self.taken_ns = self.left_ns = came_ns
        self.received = self.sent = 0
        self.waits: dict[int, int] = {}
        """By sink, since when something of it waits there."""


class Sampling:
    """Decides which records are traced, and names their traces.

    Args:
        job: The job's name and id, the same in every life.
        ratio: The share of records, 0 to 1.
    """

    def __init__(self, job: str, ratio: float) -> None:
        self._seed = xxhash.xxh3_64_intdigest(job.encode())
        self._bound = round(ratio * (1 << 64))

    def trace_of(self, position: bytes) -> int | None:
        """Return the id of a record's trace; None if it is not sampled. 0.2 µs.

        Args:
            position: Front and sequence as in its packed order key.
        """
        trace = xxhash.xxh3_128_intdigest(position, self._seed)
        return trace if trace & _MASK < self._bound else None


class Traces:
    """Watches one worker's core (`Watcher`).

    Args:
        plan: The plan.
        worker: The worker's name.
        level: Its level.
        incarnation: The life's number.
        sampling: Says which records are traced.
        put: Takes a span.
        now_ns: The time, ns since 1970.
    """

    def __init__(
        self,
        plan: Plan,
        worker: str,
        level: int,
        incarnation: int,
        sampling: Sampling,
        put: Callable[[Span], None],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._level = level
        self._life = incarnation
        self._sampling = sampling
        self._put = put
        self._now_ns = now_ns
        self._steps = tuple(vertex.name for vertex in plan.vertices if vertex.level == level)
        self._here: dict[bytes, _Stay] = {}
        """By position, sampled records that are here."""
        self._delivering: dict[tuple[int, int], list[tuple[int, int, int, int, Bundle]]] = {}
        """By sink and lane, of the bundle under way each trace, its parent, its records and when it was given."""

    def came(self, frames: Sequence[Frame], now_ns: int) -> None:
        """Note that frames have come to the worker; they may wait before its steps take them."""
        trace_of, here = self._sampling.trace_of, self._here
        for frame in frames:
            for at in frame.batch.ats:
                position = at[8:20]
                if position in here:
                    stay = here[position]
                    stay.received += 1
                    stay.last = max(stay.last, tick_of(at))
                elif (trace := trace_of(position)) is not None and position_of(at).front >= 0:
                    here[position] = _Stay(trace, tick_of(at), now_ns)
                    here[position].received = 1

    def admits(self, rows: SourceRows) -> None:
        """As of `Watcher`: a source's span ends, the one of level 0 begins."""
        trace_of, now, front = self._sampling.trace_of, self._now_ns(), rows.front + SIGN_32
        for index, offset in enumerate(rows.offsets):
            position = _POSITION.pack(front, offset + SIGN_64)
            trace = trace_of(position)
            if trace is None:
                continue
            self._here[position] = stay = _Stay(trace, rows.ticks[index], now)
            stay.received = 1
            of_kafka = {
                "messaging.system": "kafka",
                "messaging.operation.name": "poll",
                "messaging.operation.type": "receive",
                "messaging.destination.name": rows.topic,
                "messaging.destination.partition.id": str(rows.partition),
                "messaging.kafka.offset": offset,
            }
            start = min(rows.timestamps[index] * 1_000_000, now)
            self._span("source", "consumer", trace, "source", 0, start, now, of_kafka)

    def takes(self, batch: Batch) -> None:
        """As of `Watcher`."""
        if self._here:
            now = self._now_ns()
            for stay in self._stays(batch.ats):
                stay.taken_ns = stay.left_ns = max(stay.left_ns, now)

    def sends(self, batch: Batch) -> None:
        """As of `Watcher`."""
        if self._here:
            now = self._now_ns()
            for stay in self._stays(batch.ats):
                stay.left_ns = now
                stay.sent += 1

    def waits(self, sink: int, batch: Batch) -> None:
        """As of `Watcher`."""
        if self._here:
            now = self._now_ns()
            for stay in self._stays(batch.ats):
                stay.left_ns = now
                stay.sent += 1
                stay.waits.setdefault(sink, now)

    def gives(self, sink: int, bundle: Bundle) -> None:
        """As of `Watcher`: waiting ends, delivery begins."""
        if not self._here:
            return
        counts: dict[bytes, int] = {}
        for piece in bundle.pieces:
            for at in piece.ats:
                position = at[8:20]
                if position in self._here:
                    counts[position] = counts.get(position, 0) + 1
        if not counts:
            return
        now = self._now_ns()
        for position, records in counts.items():
            stay = self._here[position]
            parent = self._id(stay.trace, self._place(stay))
            place = f"wait {sink} {bundle.lane} {bundle.number}"
            of = {"lowtide.step": self._sink_name(sink), "lowtide.lane": bundle.lane, "lowtide.records": records}
            self._span("wait", "internal", stay.trace, place, parent, stay.waits.get(sink, now), now, of)
            under_way = self._delivering.setdefault((sink, bundle.lane), [])
            under_way.append((stay.trace, parent, records, now, bundle))

    def durable(self, sink: int, lane: int) -> None:
        """As of `Watcher`: delivery ends."""
        under_way = self._delivering.pop((sink, lane), None)
        if under_way is None:
            return
        now = self._now_ns()
        for trace, parent, records, since, bundle in under_way:
            of = {
                "lowtide.step": self._sink_name(sink),
                "lowtide.lane": lane,
                "lowtide.bundle": bundle.number,
                "lowtide.records": records,
                **self._sink_attributes(sink),
            }
            place = f"deliver {sink} {lane} {bundle.number}"
            self._span("deliver", "producer", trace, place, parent, since, now, of)

    def gone(self, below: int) -> None:
        """As of `Watcher`: the spans of the level end."""
        if not self._here:
            return
        over = [position for position, stay in self._here.items() if stay.last < below]
        for position in over:
            self._leave(self._here.pop(position))

    def close(self) -> None:
        """End the spans of the records that are still here; their ways go on in the next life."""
        while self._here:
            self._leave(self._here.popitem()[1])

    def _stays(self, ats: Sequence[bytes]) -> list[_Stay]:
        here = self._here
        return [here[position] for at in ats if (position := at[8:20]) in here]

    def _leave(self, stay: _Stay) -> None:
        of = {
            "lowtide.steps": self._steps,
            "lowtide.records.in": stay.received,
            "lowtide.records.out": stay.sent,
        }
        parent = self._id(stay.trace, "source")
        name, events = f"level {self._level}", (("taken", stay.taken_ns),)
        self._span(name, "internal", stay.trace, self._place(stay), parent, stay.came_ns, stay.left_ns, of, events)

    def _span(
        self,
        name: str,
        kind: str,
        trace: int,
        place: str,
        parent: int,
        start_ns: int,
        end_ns: int,
        attributes: dict[str, Any],
        events: tuple[tuple[str, int], ...] = (),
    ) -> None:
        of = {
            "lowtide.job": self._plan.name,
            "lowtide.life": self._life,
            "lowtide.level": self._level,
            "lowtide.worker": self._worker,
        }
        id_ = self._id(trace, place)
        self._put(Span(name, kind, trace, id_, parent, start_ns, end_ns, {**of, **attributes}, events))

    def _place(self, stay: _Stay) -> str:
        return f"level {self._worker} {stay.first}"

    def _id(self, trace: int, place: str) -> int:
        """Return the id of the span of a place: other processes of the life give a source's the same one."""
        return xxhash.xxh3_64_intdigest(f"{trace:x} {self._life} {place}".encode()) or 1

    def _sink_name(self, sink: int) -> str:
        return "dead letters" if sink < 0 else self._plan.vertices[sink].name

    def _sink_attributes(self, sink: int) -> dict[str, Any]:
        step = self._plan.vertices[sink].step if sink >= 0 else None
        to = step.sink if isinstance(step, Write) else self._plan.dead_letters
        if not isinstance(to, KafkaSink):
            return {"lowtide.store": to.store} if to is not None else {}
        return {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": to.topic,
        }
