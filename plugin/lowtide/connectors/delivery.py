"""One host's way to Kafka: packets go in, and come back as durable.

*Exactly once* is as a reader with isolation.level=read_committed sees it. A worker that writes output and `last` in one
transaction, and reads `last` only after a claim, delivers each record once, whatever dies (R13).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from lowtide.connectors.courier import Courier
from lowtide.connectors.sender import Headers, Outgoing, Packet, Sender, too_slow
from lowtide.connectors.transactions import Transactions
from lowtide.errors import LifeEnded

__all__ = ["MAX_RECORD_BYTES", "AtLeastOnce", "Delivery", "ExactlyOnce", "Headers", "Outgoing", "Packet", "Sinks"]

MAX_RECORD_BYTES = 1_000_000
"""librdkafka's own default."""
SLICE_S = 0.5


class Sinks(Protocol):
    """The sinks, as one worker sees them."""

    def put(self, packet: Packet, /) -> None:
        """Take a packet."""

    def durable(self) -> list[tuple[int, int]]:
        """The (sink, lane) of its packets that became durable since the last call."""


class Delivery(Protocol):
    """The sinks, as a host sees them; only `close` waits."""

    def put(self, *packets: Packet) -> None:
        """Take packets, which go together."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `durable` has news."""

    def durable(self) -> list[tuple[int, int]]:
        """The (sink, lane) of packets that became durable since the last call (errors: what ended the delivery)."""

    @property
    def queued(self) -> int:
        """Records that were put and are not durable."""

    def gauges(self) -> dict[str, Any]:
        """Counts since the beginning."""

    def close(self, timeout_s: float) -> int:
        """Deliver what was put, as far as it can be done in time, and return how many records were left."""


class ExactlyOnce(Courier):
    """Delivers in transactions: all packets that wait, with their lasts, become visible together, or never.

    It claims its transactional ids as soon as it is made, and delivers nothing before `check` has been passed.

    Args:
        settings: librdkafka's, with the bootstrap servers and the security; they win over our own.
        transactional_id: The name of the pair of ids (`claims.pair_of`) that it uses in turn; listed before use among
            those that the next life claims.
        lasts_topic: The job's.
        check: Called in another thread once the ids are claimed; raises if this life is not the job's newest (W10).
        delivery_limit_ms: How long Kafka may take for one transaction, or to grant the ids.
        max_record_bytes: What key and value of one record may have; whether its topic takes it is the broker's word.
        pace_ms: The least time between the beginnings of two transactions while little waits.
        full_records: As of `Courier`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        transactional_id: str,
        lasts_topic: str,
        check: Callable[[], None],
        delivery_limit_ms: int,
        max_record_bytes: int = MAX_RECORD_BYTES,
        pace_ms: int = 0,
        full_records: int | None = None,
    ) -> None:
        way = Transactions(
            settings,
            transactional_id=transactional_id,
            lasts_topic=lasts_topic,
            check=check,
            delivery_limit_ms=delivery_limit_ms,
            max_record_bytes=max_record_bytes,
        )
        super().__init__(way, "exactly once", pace_ms, full_records)


class AtLeastOnce(Courier):
    """Delivers without transactions: what a new life reads again it delivers again, and lasts are not written.

    Args:
        settings: As for `ExactlyOnce`.
        delivery_limit_ms: How long Kafka may take for one record.
        max_record_bytes: As for `ExactlyOnce`.
        pace_ms: As for `ExactlyOnce`.
        full_records: As for `ExactlyOnce`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        delivery_limit_ms: int,
        max_record_bytes: int = MAX_RECORD_BYTES,
        pace_ms: int = 0,
        full_records: int | None = None,
    ) -> None:
        super().__init__(
            _Acknowledged(settings, delivery_limit_ms, max_record_bytes), "at least once", pace_ms, full_records
        )


class _Acknowledged:
    """The way of `AtLeastOnce`: what was put is produced, and then acknowledged."""

    def __init__(self, settings: Mapping[str, Any], delivery_limit_ms: int, max_record_bytes: int) -> None:
        self.end_by = math.inf
        self._arguments = (settings, delivery_limit_ms, max_record_bytes)
        self._limit_ms = delivery_limit_ms

    def open(self) -> None:
        self._producing = Sender(*self._arguments)

    def deliver(self, packets: Sequence[Packet]) -> None:
        try:
            for packet in packets:
                self._producing.produce(packet.messages, self._patience)
        except KafkaException as caught:
            raise self._ended(caught.args[0]) from caught
        while self._producing.producer.flush(SLICE_S):
            self._patience()
        self._patience()

    def close(self) -> None:
        pass

    def _patience(self) -> None:
        """Raise if a record was not taken, or time is up; how long one may take is librdkafka's to see."""
        producing = self._producing
        refused = producing.refused()
        if refused is not None:
            raise refused
        if producing.failed is not None:
            error = producing.failed[0]
            if error.fatal():
                raise self._ended(error)
            raise too_slow("take a record", self._limit_ms, producing.reason or error.str(), producing.brokers)
        if time.monotonic() > self.end_by:
            raise too_slow("take a record", self._limit_ms, producing.reason or "it is too slow", producing.brokers)

    def _ended(self, error: KafkaError) -> LifeEnded:
        return LifeEnded(
            f"Kafka's client has failed: {error.str()}",
            where=f"broker {self._producing.brokers}",
            way_out="start the job again",
        )
