"""One worker's share of a level: bytes in, frames and deliveries out. Its only I/O is its sinks' producer."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from lowtide.connectors.kafka_producer import Headers, KafkaDelivery, Outgoing
from lowtide.connectors.kafka_rows import unpack, unpack_headers
from lowtide.errors import LifeEnded
from lowtide.frames import HEADER_BYTES, FrameKind, Header, Inbox, Outbox
from lowtide.fronts.floors import NO_TICK, Floors
from lowtide.fronts.labels import Clock, label
from lowtide.histogram import Histogram
from lowtide.operators.batch import Batch, exchange_schema
from lowtide.operators.dead_letter import Dead
from lowtide.operators.failure import AtRecord
from lowtide.operators.fault import act
from lowtide.operators.output import Deliver, Exchange, Faults, Hold, Output
from lowtide.operators.program import Program
from lowtide.operators.sink import SinkOperator
from lowtide.operators.source import SourceRows
from lowtide.schema import schema_of
from lowtide.steps import Read, Write
from lowtide.worker.deployment import Deployment
from lowtide.worker.limits import Limits

HOPS = ("pack", "exchange", "python")
"""Where a record's time goes: from the JVM's first look at it to level 0; between workers; in this worker's steps."""


class LevelStage:
    """Runs a level's program on what a worker is sent.

    Args:
        deployment: The plan and its settings.
        level: The level.
        name: The worker's name.
        number: The worker's number, which stands in its frames.
    """

    def __init__(self, deployment: Deployment, level: int, name: str, number: int) -> None:
        plan = deployment.plan
        self._deployment = deployment
        self._name = name
        self._program = Program(plan, level)
        self._sources = self._sources_of(name) if level == 0 else []
        self._front = self._front_of(name) if level == 0 else -1
        self._label = NO_TICK
        self._clock = Clock(plan.slack_ms, 0, sys.maxsize)  # Nothing here rests on labels yet: all are believed.
        self._workers = plan.worker_of_unit()
        self._last = level == plan.levels - 1
        self._limits = Limits(deployment, name)
        self._outbox = Outbox(number, plan.parallelism)
        self._inbox = Inbox(name)
        inputs = [vertex for vertex in plan.exchanges() if vertex.level == level]
        self._schemas = {vertex.id: schema_of(vertex.gives) for vertex in inputs}
        self._arrow = {vertex: exchange_schema(schema) for vertex, schema in self._schemas.items()}
        self._sinks = {
            vertex.id: SinkOperator(vertex.step.sink, plan)
            for vertex in plan.sinks()
            if vertex.level == level and isinstance(vertex.step, Write)
        }
        self._delivery: KafkaDelivery | None = None
        writes = any(isinstance(vertex.step, Write) and vertex.level == level for vertex in plan.vertices)
        if writes or plan.dead_letters is not None:
            self._delivery = KafkaDelivery(
                deployment.producer, deployment.delivery_limit_ms, deployment.max_frame_bytes
            )
        self._records_in = self._records_out = self._delivered = self._dead_letters = 0
        self._hops = {hop: Histogram() for hop in HOPS}

    def _sources_of(self, name: str) -> list[int]:
        topic = name.partition("/")[2].rpartition("-")[0]
        return [
            v.id for v in self._deployment.plan.sources() if isinstance(v.step, Read) and v.step.source.topic == topic
        ]

    def _front_of(self, name: str) -> int:
        partition = name.partition("/")[2]
        front = self._deployment.fronts.get(partition)
        if front is None:
            raise LifeEnded(
                f"source partition {partition} was added after the job had started",
                way_out="start the job again: it then knows all partitions",
            )
        return front

    # -- input -----------------------------------------------------------------------------------------------------

    def rows(self, message: bytes, now_ns: int) -> Iterator[tuple[int, bytes]]:
        """Take records of this worker's source partition, as the JVM packed them."""
        packed = unpack(message, self._front)
        if f"0/{packed.topic}-{packed.partition}" != self._name:
            raise LifeEnded(f"worker {self._name} was given records of {packed.topic}-{packed.partition}")
        rows = packed.rows
        self._records_in += len(rows)
        self._hops["pack"].add(now_ns - packed.born_ns, len(rows))
        outputs: list[Output] = []
        rows = self._labelled(rows)
        for source in self._sources:
            fitting, letters = self._limits.messages(rows, self._deployment.plan.vertices[source].name)
            for letter in letters:
                self._bury(letter)
            outputs += self._program.feed_source(source, fitting)
        return self._route(outputs, packed.born_ns, now_ns)

    def _labelled(self, rows: SourceRows) -> SourceRows:
        ticks, _ = label(
            self._front, rows.offsets, rows.timestamps, before=self._label, floors=Floors(), clock=self._clock
        )
        self._label = int(ticks[-1])
        return replace(rows, ticks=ticks)

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Iterator[tuple[int, bytes]]:
        """Take frames of the level before; those of one exchange that came together are dealt with together."""
        came = [(header, message) for message in messages if (header := self._count(message, now_ns))]
        for vertex, group in groupby(came, lambda frame: frame[0].vertex):
            frames = list(group)
            schema = self._schemas[vertex]
            batch = Batch.concat([Batch.from_arrow(schema, self._open(vertex, message)) for _, message in frames])
            born_ns = min(header.born_ns for header, _ in frames)
            yield from self._route(self._program.feed(vertex, batch), born_ns, now_ns)

    def _count(self, message: bytes, now_ns: int) -> Header | None:
        """Return the header of a frame with records, None for a mark."""
        header = Header.unpack(message)
        self._inbox.take(header)
        if header.kind is FrameKind.MARK:
            return None
        self._records_in += header.rows
        self._hops["exchange"].add(now_ns - header.sent_ns, header.rows)
        return header

    def _open(self, vertex: int, message: bytes) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(pa.py_buffer(memoryview(message)[HEADER_BYTES:]), self._arrow[vertex])

    def end(self, epoch: int, now_ns: int) -> list[tuple[int, bytes]]:
        """Check that the epoch's input was complete; return the marks for the next level."""
        self._inbox.end(epoch)
        return [] if self._last else self._outbox.marks(epoch, now_ns)

    def tick(self, _now_ns: int) -> list[tuple[int, bytes]]:
        """Serve the sinks; raises what went wrong there."""
        if self._delivery is not None:
            self._delivery.serve()
        return []

    def full(self) -> bool:
        """Return whether the sinks have no room, so that no more input should be read."""
        return self._delivery is not None and self._delivery.full()

    def gauges(self) -> dict[str, Any]:
        """Return counts and the histograms of `HOPS` (bucket to records)."""
        return {
            "records_in": self._records_in,
            "records_out": self._records_out,
            "delivered": self._delivered,
            "dead_letters": self._dead_letters,
            "hops": {hop: histogram.counts for hop, histogram in self._hops.items() if histogram.counts},
        }

    def close(self, timeout_s: float) -> int:
        """Deliver what the sinks hold, and return how many records were left after the time-out."""
        return 0 if self._delivery is None else self._delivery.close(timeout_s)

    @contextmanager
    def _named_fronts(self) -> Iterator[None]:
        """Let failures say source partitions by name: the program knows their numbers only."""
        try:
            yield
        except AtRecord as error:
            error.name_front(self._deployment.front_name(error.position.front))
            raise

    # -- output ----------------------------------------------------------------------------------------------------

    def _route(self, outputs: list[Output], born_ns: int, came_ns: int) -> Iterator[tuple[int, bytes]]:
        for output in outputs:
            if isinstance(output, Exchange):
                yield from self._frames(output, born_ns)
            elif isinstance(output, Deliver):
                self._deliver(output)
            elif isinstance(output, Faults):
                with self._named_fronts():
                    letters = act(self._deployment.plan, output.batch)
                for letter in letters:
                    self._bury(letter)
            else:
                raise AssertionError("steps that hold records need min time, and this job has none")
        self._hops["python"].add(time.time_ns() - came_ns, sum(_rows_of(output) for output in outputs))

    def _frames(self, output: Exchange, born_ns: int) -> Iterator[tuple[int, bytes]]:
        for target, part in output.batch.split(self._workers):
            for table in self._limits.frames(part.to_arrow(), self._deployment.plan.vertices[output.vertex].name):
                if isinstance(table, Dead):
                    self._bury(table)
                    continue
                self._records_out += table.num_rows
                header = self._outbox.records(target, output.vertex, table.num_rows, time.time_ns(), born_ns)
                yield target, header + table.serialize().to_pybytes()

    def _deliver(self, output: Deliver) -> None:
        assert self._delivery is not None
        step = self._deployment.plan.vertices[output.vertex].step
        assert isinstance(step, Write)
        topic, sink = step.sink.topic, self._sinks[output.vertex]
        messages = sink.encode(output.batch)
        partitions = sink.lanes(output.batch) % self._deployment.sink_partitions[topic]
        self._records_out += len(messages)
        self._delivered += len(messages)
        columns = (partitions.tolist(), messages.keys, messages.values, messages.timestamps.tolist())
        self._delivery.send((topic, *message, None) for message in zip(*columns, strict=True))

    def _bury(self, output: Dead) -> None:
        sink = self._deployment.plan.dead_letters
        assert self._delivery is not None
        assert sink is not None
        self._dead_letters += 1
        front = self._deployment.front_name(output.position.front).encode()
        headers: Headers = [*unpack_headers(output.headers), *output.describe()]
        headers.append(("lowtide.partition", front))
        partition = output.position.front % self._deployment.sink_partitions[sink.topic]
        letter: Outgoing = (sink.topic, partition, output.key, output.value, output.timestamp, headers)
        self._delivery.send(iter((letter,)))


def _rows_of(output: Output) -> int:
    return 0 if isinstance(output, Hold) else len(output.batch)
