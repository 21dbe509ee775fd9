"""Turns bundles into messages for the sinks, with the lanes' records of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from lowtide.assignment.deployment import Deployment
from lowtide.connectors.sender import Outgoing
from lowtide.core.barriers import strands_of
from lowtide.core.operators.faults.failure import Dead, clock_of
from lowtide.core.operators.order.bundle import NO_KEY, Bundle
from lowtide.core.operators.order.order import CLOCK
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.flow.formats.endpoints import is_staged
from lowtide.flow.schema.headers import Headers, unpack_headers
from lowtide.flow.steps.steps import Answers
from lowtide.sinks.answers.encoder import AnswersEncoder
from lowtide.sinks.contract import Encoder, Mark, Packet, Sinks, lane_name, strand_name
from lowtide.sinks.staged.encoder import StagedEncoder
from lowtide.sinks.stores import is_direct
from lowtide.worker.figures import Figures, span

_TEXTS = frozenset((bytes, str))
MAX_QUEUED_RECORDS = 100_000
"""The largest number of records that may wait for the sinks, however small they are."""


class Outputs:
    """The sinks of one worker.

    Args:
        deployment: The plan and its settings.
        level: The worker's level.
        delivery: The worker's share of the way to Kafka.
        figures: Counts deliveries.
        fronts: Source partitions' names by number; the caller may add to it.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        level: int,
        delivery: Sinks,
        figures: Figures,
        fronts: dict[int, str],
    ) -> None:
        self._deployment = deployment
        self._level = level
        self._delivery = delivery
        self._figures = figures
        self._fronts = fronts
        self._record_bytes = 0.0
        plan = deployment.plan
        self._lane_of_unit: list[int] = plan.lane_of_unit().tolist()
        self._sinks: dict[int, Encoder] = {}
        self._staged: dict[int, StagedEncoder] = {}
        self._answers = {each.id for each in plan.those(Answers)}
        for log in plan.those(Answers):
            self._sinks[log.id] = AnswersEncoder(plan, log)
        for vertex in plan.sinks():
            sink = vertex.step.sink
            if is_staged(sink):
                self._sinks[vertex.id] = self._staged[vertex.id] = StagedEncoder(plan, vertex)
            elif is_direct(sink):
                self._sinks[vertex.id] = sink.encoder(vertex, plan.slack_ms)
        for vertex, topic in plan.kafka_sinks():
            partitions = plan.partition_of_unit(deployment.sink_partitions[topic.topic]).tolist()
            self._sinks[vertex.id] = SinkEncoder(vertex, plan.slack_ms, partitions)
        strands = strands_of(plan)
        self._last = {each: key.packed() for each, key in deployment.last.items() if each[0] not in strands}
        self._begun = {name: key.packed() for name, key in deployment.strands.items()}
        # (sink, lane) -> the bundle under way there: first tick, last tick, rows; the time it was put; its bytes.
        self._under_way: dict[tuple[int, int], tuple[tuple[int, int, int], int, int]] = {}

    def give(self, sink: int, bundle: Bundle) -> None:
        """Hand a bundle to Kafka; `settled` reports when it is durable."""
        messages = self._letters(bundle) if sink < 0 else self._messages(sink, bundle)
        if bundle.mark is not None:
            messages = [*messages, *self._staged[sink].marks(bundle)]
        size = _bytes_of(messages)
        self._under_way[sink, bundle.lane] = span(bundle), time.time_ns(), size
        mark = self._mark(sink, bundle) if self._deployment.delivery == "exactly_once" else None
        self._delivery.put(Packet(sink, bundle.lane, messages, mark, leads=sink in self._answers))
        if messages:
            # A running mean in which the last bundle counts for one half, as sizes may change.
            self._record_bytes = (self._record_bytes + size / len(messages)) / 2

    def full(self, backlog: int) -> bool:
        """Return whether the sinks have no room for more, with this many records released and not durable.

        Records that wait for a bundle are assumed to be as large as the last ones put.
        """
        most = self._deployment.max_queued_bytes
        return backlog >= MAX_QUEUED_RECORDS or backlog * self._record_bytes >= most

    def waiting(self, backlogs: Mapping[int, int]) -> dict[str, tuple[int, float]]:
        """Return by sink the records that its store has not taken yet, and for how long the oldest has waited in s.

        Records that wait for a bundle of their lane count as long as it does: it may have floors alone.

        Args:
            backlogs: By sink the records that its barrier has released and that are not durable.
        """
        found: dict[str, tuple[int, float]] = {}
        now = time.time_ns()
        for (sink, _), (_, put_ns, _) in self._under_way.items():
            if sink in self._sinks and sink not in self._answers and backlogs[sink]:
                name = self._deployment.plan.vertices[sink].name
                waited_s = found[name][1] if name in found else 0.0
                found[name] = backlogs[sink], max(waited_s, (now - put_ns) / 1e9)
        return found

    def settled(self) -> list[tuple[int, int]]:
        """Return the `(sink, lane)` whose bundles have become durable since the last call.

        Raises:
            LowtideError: a bundle could not be delivered.
        """
        settled = self._delivery.durable()
        now = time.time_ns()
        for lane_key in settled:
            ticks, put_ns, size = self._under_way.pop(lane_key)
            sink = lane_key[0]
            if sink in self._answers:
                continue
            self._figures.durable(ticks, self._deployment.plan.slack_ms, put_ns, now)
            if sink >= 0:
                self._figures.delivered_to(self._deployment.plan.vertices[sink].name, ticks, size)
        return settled

    def _mark(self, sink: int, bundle: Bundle) -> Mark:
        """Return what becomes durable with a bundle."""
        plan = self._deployment.plan
        vertex = plan.vertices[sink] if sink >= 0 else None
        if bundle.width:
            name = strand_name(vertex, self._level, plan.units_of_lanes(bundle.lane, bundle.lane + bundle.width))
        else:
            name = lane_name(vertex, self._level, bundle.lane)
        lane_key = sink, bundle.lane
        before = self._last[lane_key] if lane_key in self._last else self._begun.get(name, NO_KEY)
        self._last[lane_key] = bundle.last
        return Mark(name, bundle.last, before, bundle.floors, bundle.covered)

    def _messages(self, sink: int, bundle: Bundle) -> Sequence[Any]:
        if not len(bundle):
            return []
        if sink not in self._answers:
            self._figures.records_out += len(bundle)
        return self._sinks[sink].encode(bundle.lane, bundle.pieces)

    def _letters(self, bundle: Bundle) -> list[Outgoing]:
        lanes = [bundle.lane] * len(bundle)
        if bundle.width > 1:
            lanes = [self._lane_of_unit[unit] for piece in bundle.pieces for unit in piece.units]
        letters: list[Dead] = bundle.rows
        return [self._letter(letter, lane) for letter, lane in zip(letters, lanes, strict=True)]

    def _letter(self, letter: Dead, lane: int) -> Outgoing:
        sink = self._deployment.plan.dead_letters
        assert sink is not None, "without dead letters a record that fails ends the job"
        front = letter.position.front
        headers: Headers = [*unpack_headers(letter.headers), *letter.describe()]
        plan = self._deployment.plan
        name = clock_of(plan, letter.position) if front == CLOCK else self._fronts.get(front, f"front {front}")
        headers.append(("lowtide.partition", name.encode()))
        at = name if front == CLOCK else f"{name}, offset {letter.position.sequence}"
        self._figures.dead(letter.vertex, letter.timestamp // plan.slack_ms, at, letter.error)
        partition = lane % self._deployment.sink_partitions[sink.topic]
        return (sink.topic, partition, letter.key, letter.value, letter.timestamp, headers)


def _bytes_of(messages: Sequence[Any]) -> int:
    """Return about how large messages are: their texts and bytes."""
    return sum(map(len, [part for part in chain.from_iterable(messages) if type(part) in _TEXTS]))
