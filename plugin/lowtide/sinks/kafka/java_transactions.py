"""Transactions of version 2 (KIP-890): each has an epoch of its own, so no request ends another one (R13, W10)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from lowtide.connectors.sender import SLACK_BYTES, Outgoing, too_large, too_slow
from lowtide.errors import (
    FrameTooLarge,
    JarDamaged,
    JarMissing,
    JavaMissing,
    LifeEnded,
    LowtideError,
    ServiceUnavailable,
)
from lowtide.sinks.contract import Packet
from lowtide.sinks.kafka.claimant import Claimant, Marks
from lowtide.sinks.kafka.claims import pair_of
from lowtide.sinks.kafka.ends import denied, fenced, unknown
from lowtide.sinks.kafka.java_producer import JavaProducer, Kind, Outcome
from lowtide.sinks.kafka.versions import VersionTwo

RETRY_S = 0.01
BUFFER_BYTES = 32 << 20
LINGER_MS = 100
"""A commit sends what is there at once, all of it in one request to each broker; before it nothing is worth sending
but full batches."""
UNKNOWN_MS = 10_000
"""Time for which a broker that has just learnt of a topic, or has just started, may not know it."""
REQUEST_MS = 30_000
MARGIN_MS = 10_000
LONGEST_MS = 900_000
PROPERTIES = {
    "acks": "all",
    "enable.idempotence": "true",
    "batch.size": str(128 << 10),
    "linger.ms": str(LINGER_MS),
    # As for librdkafka: a broker has the next transaction wait for the last one's markers.
    "retry.backoff.ms": "1",
    "retry.backoff.max.ms": "4",
    "reconnect.backoff.max.ms": "500",
    "enable.metrics.push": "false",
}


class TransactionsTooOld(ServiceUnavailable):
    """Use [kafka] transactions = "auto" or "v1", or let the cluster take transactions of version 2."""


class JavaTransactions:
    """A way of `ExactlyOnce`, over Kafka's own producer in a process of its own.

    A transaction that fails before its commit was asked for is aborted, and the same packets go into the next one. A
    commit that was asked for is asked for until it is answered: under version 2 that can end no other transaction, so
    no id has to be claimed again when a connection breaks.

    Args:
        properties: The Java client's, with the bootstrap servers and the security; they win over our own.
        claimant: As for `ExactlyOnce`.
        delivery_limit_ms: As for `ExactlyOnce`.
        max_record_bytes: As for `ExactlyOnce`.
    """

    protocol = "v2"

    def __init__(
        self, properties: Mapping[str, str], claimant: Claimant, delivery_limit_ms: int, max_record_bytes: int
    ) -> None:
        self.end_by = math.inf
        self._claimant = claimant
        self._ids = pair_of(claimant.transactional_id)
        self._limit_ms = delivery_limit_ms
        self._max_record_bytes = max_record_bytes
        self._brokers = properties["bootstrap.servers"]
        self._buffer_bytes = max(BUFFER_BYTES, 2 * max_record_bytes)
        self._properties = properties_of(properties, delivery_limit_ms, max_record_bytes, self._buffer_bytes)
        self._marks = Marks(claimant, self._brokers)
        self._deadline = math.inf
        self._doing, self._reason = "", ""
        self._producer: JavaProducer | None = None

    def open(self) -> None:
        """Claim the ids, *then* see that this life is still the one: a claim that comes late is the last one, too.

        Raises:
            TransactionsTooOld: The brokers, or this host, have no transactions of version 2.
        """
        self._expect("grant the transactional id")
        self._producer = self._started()
        self._claim(self._ids)
        self._claimant.check()

    def probe(self) -> None:
        """Claim nothing, and see that there are transactions of version 2 (errors as of `open`)."""
        self._expect("tell its features")
        self._producer = self._started()
        self._claim(())

    def deliver(self, packets: Sequence[Packet]) -> None:
        """Commit all packets with their lasts, together."""
        assert self._producer is not None, "it is open"
        moved = self._marks.moved(packets)
        self._expect("commit a transaction")
        while True:
            outcome = self._producer.transact(packets, self._lasts, self._patience)
            if outcome.kind is Kind.DONE:
                break
            if outcome.kind is not Kind.ABORTED:
                raise self._ended(outcome)
            self._reason = outcome.text
            self._patience()
            time.sleep(RETRY_S)
        self._marks.update(moved)

    @property
    def trouble(self) -> str:
        """Return where the brokers are, and why the last transaction was aborted; empty if it was not."""
        return f"Kafka at {self._brokers}: {self._reason}" if self._reason else ""

    def close(self) -> None:
        """End the process: a transaction that it had to abort it has aborted before it said so."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _started(self) -> JavaProducer:
        try:
            return JavaProducer(self._buffer_bytes)
        except (JarMissing, JarDamaged, JavaMissing) as missing:
            raise _too_old(missing.what, missing.where, missing.way_out) from missing

    def _claim(self, ids: Sequence[str]) -> None:
        assert self._producer is not None, "it is started"
        try:
            claimed = self._producer.open(ids, self._properties, self._max_record_bytes, self._patience)
        except LifeEnded as ended:
            # Whatever it has claimed, the next claim takes over.
            raise _too_old(ended.what, ended.where, "see that Java can run on this host") from ended
        if claimed.kind is Kind.OLD:
            way_out = "raise that feature to 2 by Kafka's own tool, if all brokers are Kafka 4 or newer"
            raise _too_old(f"the cluster's feature {claimed.text}", f"broker {self._brokers}", way_out)
        if claimed.kind is not Kind.DONE:
            raise self._ended(claimed)

    def _lasts(self, packet: Packet) -> Iterable[Outgoing]:
        """Return the lane's mark as messages for the lasts topic."""
        return self._claimant.lasts(packet.mark)

    def _expect(self, what: str) -> None:
        self._doing, self._reason = what, ""
        self._deadline = time.monotonic() + self._limit_ms / 1000

    def _patience(self) -> None:
        """Raise if this takes too long (errors: ServiceUnavailable)."""
        if time.monotonic() > min(self._deadline, self.end_by):
            raise too_slow(self._doing, self._limit_ms, self._reason or "it is too slow", self._brokers)

    def _ended(self, outcome: Outcome) -> LowtideError:
        """Return our error for an outcome after which the same packets would fare no better."""
        where = f"broker {self._brokers}, transactional ids {' and '.join(self._ids)}"
        match outcome.kind:
            case Kind.TOO_LARGE if not outcome.text:
                return too_large(outcome.topic, outcome.partition, outcome.bytes, self._max_record_bytes, self._brokers)
            case Kind.TOO_LARGE:
                return FrameTooLarge(
                    f'topic "{outcome.topic}" does not accept a record of {outcome.bytes} bytes',
                    where=f"broker {self._brokers}, partition {outcome.partition}",
                    way_out="raise the topic's max.message.bytes, or make the record smaller",
                )
            case Kind.REFUSED:
                return ServiceUnavailable(
                    f'Kafka refuses a record for topic "{outcome.topic}": {outcome.text}',
                    where=f"broker {self._brokers}, partition {outcome.partition}",
                    way_out="check that the topic exists, has its partitions and may be written, "
                    "then start the job again",
                )
            case Kind.FENCED:
                return fenced(outcome.text, where)
            case Kind.DENIED:
                return denied(outcome.text, where)
            case _:
                return unknown(outcome.text, where)


def properties_of(
    properties: Mapping[str, str], delivery_limit_ms: int, max_record_bytes: int, buffer_bytes: int
) -> dict[str, str]:
    """Return all properties of the producers; the transactional id apart."""
    own = PROPERTIES | dict(properties)
    # A record may take as long as all of the delivery; Kafka wants one request to take less.
    linger_ms = min(LINGER_MS, delivery_limit_ms // 2)
    request_ms = min(int(own.get("request.timeout.ms", REQUEST_MS)), delivery_limit_ms - linger_ms)
    return own | {
        "linger.ms": str(linger_ms),
        "delivery.timeout.ms": str(delivery_limit_ms),
        "request.timeout.ms": str(request_ms),
        "max.block.ms": str(min(UNKNOWN_MS, max(1, delivery_limit_ms // 2))),
        "transaction.timeout.ms": str(max(delivery_limit_ms, min(LONGEST_MS, delivery_limit_ms + MARGIN_MS))),
        "max.request.size": str(max(1 << 20, max_record_bytes + SLACK_BYTES)),
        "buffer.memory": str(buffer_bytes),
    }


def _too_old(what: str, where: str, way_out: str) -> TransactionsTooOld:
    return TransactionsTooOld(
        f"there are no transactions of version 2: {what}",
        where=where,
        way_out=f'{way_out}; or set [kafka] transactions = "v1"',
    )


def see_version_two(wanted: VersionTwo, limit_ms: int) -> None:
    """See that this host and the brokers have transactions of version 2; claims nothing.

    Raises:
        TransactionsTooOld: They have not.
        ServiceUnavailable: No broker answers.
    """
    way = JavaTransactions(wanted.properties, Claimant("", "", 0, lambda: None), limit_ms, 1)
    with closing(way):
        way.probe()
