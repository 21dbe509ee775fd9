"""The two ways of a host into Kafka: exactly once, in transactions, and at least once.

*Exactly once* is as a reader with isolation.level=read_committed sees it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException

from lowtide.connectors.sender import Sender
from lowtide.sinks.contract import Packet
from lowtide.sinks.courier import Courier
from lowtide.sinks.kafka.transactions import Claimant, Transactions

MAX_RECORD_BYTES = 1_000_000
"""librdkafka's own default."""
SLICE_S = 0.5


class ExactlyOnce(Courier):
    """Delivers in transactions: all packets that wait, with their lasts, become visible together, or never.

    It claims its transactional ids as soon as it is made, and delivers nothing before `check` has been passed.

    Args:
        settings: librdkafka's, with the bootstrap servers and the security; they win over our own.
        claimant: Who delivers; its transactional ids are among those that the next life claims.
        delivery_limit_ms: How long Kafka may take for one transaction, or to grant the ids.
        max_record_bytes: What key and value of one record may have; whether its topic takes it is the broker's word.
        pace_ms: The least time between the beginnings of two transactions while little waits.
        full_records: As of `Courier`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        claimant: Claimant,
        *,
        delivery_limit_ms: int,
        max_record_bytes: int = MAX_RECORD_BYTES,
        pace_ms: int = 0,
        full_records: int | None = None,
    ) -> None:
        way = Transactions(settings, claimant, delivery_limit_ms, max_record_bytes)
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

    def open(self) -> None:
        self._producing = Sender(*self._arguments)

    def deliver(self, packets: Sequence[Packet]) -> None:
        try:
            for packet in packets:
                self._producing.produce(packet.messages, self._patience)
        except KafkaException as caught:
            raise self._producing.ended(caught.args[0]) from caught
        while self._producing.producer.flush(SLICE_S):
            self._patience()
        self._patience()

    def close(self) -> None:
        pass

    def _patience(self) -> None:
        """Raise if a record was not taken, or time is up; how long one may take is librdkafka's to see."""
        self._producing.check("take a record")
        if time.monotonic() > self.end_by:
            raise self._producing.too_slow("take a record", "it is too slow")
