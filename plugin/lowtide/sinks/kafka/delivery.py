"""The two ways of a host into Kafka: exactly once, in transactions, and at least once.

*Exactly once* is as a reader with isolation.level=read_committed sees it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException

from lowtide.connectors.sender import Sender
from lowtide.sinks.contract import Packet, Way
from lowtide.sinks.courier import Courier
from lowtide.sinks.kafka.claimant import Claimant
from lowtide.sinks.kafka.java_transactions import JavaTransactions, TransactionsTooOld
from lowtide.sinks.kafka.transactions import Transactions
from lowtide.sinks.kafka.versions import VersionTwo

LOG = logging.getLogger(__name__)
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
        version_two: For transactions of version 2, where the brokers have them; None for version 1.
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
        version_two: VersionTwo | None = None,
    ) -> None:
        limits = (claimant, delivery_limit_ms, max_record_bytes)
        way: Way = Transactions(settings, *limits)
        if version_two is not None:
            newer = JavaTransactions(version_two.properties, *limits)
            way = newer if version_two.required else _NewerIfThere(newer, way)
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


class _NewerIfThere:
    """The way of `ExactlyOnce` that takes transactions of version 2 where they are to be had."""

    def __init__(self, newer: JavaTransactions, older: Way) -> None:
        self._way: Way = newer
        self._older = older

    @property
    def protocol(self) -> str:
        """The version in use; of version 1 with the reason, once it is known."""
        return getattr(self._way, "protocol", "")

    @property
    def trouble(self) -> str:
        """Return why Kafka takes nothing now, as far as the way in use knows; empty if unknown."""
        return getattr(self._way, "trouble", "")

    @property
    def end_by(self) -> float:
        """The time at which whatever is under way has to be given up."""
        return self._way.end_by

    @end_by.setter
    def end_by(self, at: float) -> None:
        self._way.end_by = self._older.end_by = at

    def open(self) -> None:
        try:
            self._way.open()
        except TransactionsTooOld as missing:
            self._way.close()
            LOG.warning("transactions of version 1, because %s", missing.what)
            self._way = self._older
            self._way.open()

    def deliver(self, packets: Sequence[Packet]) -> None:
        self._way.deliver(packets)

    def close(self) -> None:
        self._way.close()


class _Acknowledged:
    """The way of `AtLeastOnce`: what was put is produced, and then acknowledged."""

    def __init__(self, settings: Mapping[str, Any], delivery_limit_ms: int, max_record_bytes: int) -> None:
        self.end_by = math.inf
        self._arguments = (settings, delivery_limit_ms, max_record_bytes)
        self._open = False

    def open(self) -> None:
        self._producing = Sender(*self._arguments)
        self._open = True

    def deliver(self, packets: Sequence[Packet]) -> None:
        try:
            for packet in packets:
                self._producing.produce(packet.messages, self._patience)
        except KafkaException as caught:
            raise self._producing.ended(caught.args[0]) from caught
        while self._producing.producer.flush(SLICE_S):
            self._patience()
        self._patience()

    @property
    def trouble(self) -> str:
        """Return why Kafka takes nothing now, as a broker's connection has said; empty if unknown."""
        return self._producing.trouble if self._open else ""

    def close(self) -> None:
        pass

    def _patience(self) -> None:
        """Raise if a record was not taken, or time is up; how long one may take is librdkafka's to see."""
        self._producing.check("take a record")
        if time.monotonic() > self.end_by:
            raise self._producing.too_slow("take a record", "it is too slow")
