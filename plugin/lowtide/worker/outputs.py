"""Turns bundles into messages for the sinks, with the lanes' records of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from lowtide.assignment.deployment import Deployment
from lowtide.connectors.delivery import Headers, Outgoing, Packet, Sinks
from lowtide.connectors.lasts import records_of
from lowtide.connectors.lasts_records import lane_name
from lowtide.core.operators.faults.failure import Dead, clock_of
from lowtide.core.operators.order.bundle import Bundle
from lowtide.core.operators.order.order import CLOCK
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.flow.schema.headers import unpack_headers
from lowtide.worker.figures import Figures, span

__all__ = ["Outputs"]

MAX_QUEUED_RECORDS = 100_000
"""The largest number of records that may wait for the sinks, however small they are."""


class Outputs:
    """The sinks of one worker.

    Args:
        deployment: The plan and its settings.
        level: The worker's level.
        incarnation: The life's number; goes with every `last`.
        delivery: The worker's share of the way to Kafka.
        figures: Counts deliveries.
        fronts: Source partitions' names by number; the caller may add to it.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        level: int,
        incarnation: int,
        delivery: Sinks,
        figures: Figures,
        fronts: dict[int, str],
    ) -> None:
        self._deployment = deployment
        self._level = level
        self._incarnation = incarnation
        self._delivery = delivery
        self._figures = figures
        self._fronts = fronts
        self._record_bytes = 0.0
        plan = deployment.plan
        self._sinks = {vertex.id: SinkEncoder(vertex, plan.slack_ms) for vertex in plan.sinks()}
        # (sink, lane) -> the bundle under way there: first tick, last tick, rows, the time it was put.
        self._under_way: dict[tuple[int, int], tuple[tuple[int, int, int], int]] = {}

    def give(self, sink: int, bundle: Bundle) -> None:
        """Hand a bundle to Kafka; `settled` reports when it is durable."""
        messages = self._letters(bundle) if sink < 0 else self._messages(sink, bundle)
        lasts: Sequence[tuple[bytes, bytes | None]] = ()
        if self._deployment.lasts_topic:
            name = lane_name(self._deployment.plan.vertices[sink] if sink >= 0 else None, self._level, bundle.lane)
            lasts = records_of(name, bundle.last_key, bundle.floors, self._incarnation, bundle.covered)
        self._under_way[sink, bundle.lane] = span(bundle), time.time_ns()
        self._delivery.put(Packet(sink, bundle.lane, messages, lasts))
        if messages:
            # A running mean in which the last bundle counts for one half, as sizes may change.
            self._record_bytes = (self._record_bytes + sum(map(_size, messages)) / len(messages)) / 2

    def full(self, backlog: int) -> bool:
        """Return whether the sinks have no room for more, with this many records released and not durable.

        Records that wait for a bundle are assumed to be as large as the last ones put.
        """
        most = self._deployment.max_queued_bytes
        return backlog >= MAX_QUEUED_RECORDS or backlog * self._record_bytes >= most

    def settled(self) -> list[tuple[int, int]]:
        """Return the `(sink, lane)` whose bundles have become durable since the last call.

        Raises:
            LowtideError: a bundle could not be delivered.
        """
        settled = self._delivery.durable()
        now = time.time_ns()
        for place in settled:
            ticks, put_ns = self._under_way.pop(place)
            self._figures.durable(ticks, self._deployment.plan.slack_ms, put_ns, now)
        return settled

    def _messages(self, sink: int, bundle: Bundle) -> Sequence[Outgoing]:
        if not len(bundle):
            return []
        self._figures.records_out += len(bundle)
        return self._sinks[sink].encode(bundle.lane, bundle.pieces)

    def _letters(self, bundle: Bundle) -> list[Outgoing]:
        letters: list[Dead] = bundle.rows
        self._figures.dead_letters += len(letters)
        return [self._letter(letter, bundle.lane) for letter in letters]

    def _letter(self, letter: Dead, lane: int) -> Outgoing:
        sink = self._deployment.plan.dead_letters
        assert sink is not None, "without dead letters a record that fails ends the job"
        front = letter.position.front
        headers: Headers = [*unpack_headers(letter.headers), *letter.describe()]
        plan = self._deployment.plan
        name = clock_of(plan, letter.position) if front == CLOCK else self._fronts.get(front, f"front {front}")
        headers.append(("lowtide.partition", name.encode()))
        partition = lane % self._deployment.sink_partitions[sink.topic]
        return (sink.topic, partition, letter.key, letter.value, letter.timestamp, headers)


def _size(message: Outgoing) -> int:
    return len(message[2] or b"") + len(message[3] or b"")
