"""One transaction at a time, for all packets that wait: exactly once (R13, W10)."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from lowtide.connectors.sender import PERMANENT, Outgoing, Sender, refusal, too_slow
from lowtide.errors import LowtideError
from lowtide.sinks.contract import Packet
from lowtide.sinks.kafka.claimant import Claimant, Marks
from lowtide.sinks.kafka.claims import pair_of
from lowtide.sinks.kafka.ends import denied, fenced, unknown

SLICE_S = 0.5
"""Limit on one call; then it is resumed, unless time is up."""
RETRY_S = 0.01
ABORT_S = 2.0
"""Time for which an ending life tries to abort its open transaction, for whose end readers wait."""
MARGIN_MS = 10_000
"""By which Kafka's own limit for a transaction is later than ours, so that ours is the one that is met."""
LONGEST_MS = 900_000
"""The limit that brokers grant by default."""
FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
DENIED = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)
ENDING = ("EndTxn", "end transaction")
"""In librdkafka's words for a failure that came after Kafka had been asked for the commit."""


class Transactions:
    """The way of `ExactlyOnce`; see there for the arguments.

    A transaction that fails before its commit was asked for is aborted, and the same packets go into the next one. If
    the commit was asked for, only Kafka knows: the same commit is asked for again, and if that cannot be done the life
    ends. The next one claims, and then reads what was committed.

    Kafka's protocol before KIP-890, which librdkafka speaks, tells the transactions of one id apart by the producer's
    epoch alone. When a connection breaks, librdkafka sends a request to end a transaction again; the first request, if
    it comes late, ends the id's next transaction. So an id whose producer has lost its coordinator is claimed again
    before it is used: what is still on its way has the epoch of before, and Kafka refuses it.

    Kafka compares no mark with the one that a delivery names (R19): `Marks` does.
    """

    protocol = "v1"

    def __init__(
        self, settings: Mapping[str, Any], claimant: Claimant, delivery_limit_ms: int, max_record_bytes: int
    ) -> None:
        self.end_by = math.inf
        self._claimant = claimant
        self._ids = pair_of(claimant.transactional_id)
        self._limit_ms = delivery_limit_ms
        self._max_record_bytes = max_record_bytes
        longest = max(delivery_limit_ms, min(LONGEST_MS, delivery_limit_ms + MARGIN_MS))
        self._settings = {"transaction.timeout.ms": longest} | dict(settings)
        self._deadline = math.inf
        self._begun = False
        self._marks = Marks(claimant, str(settings.get("bootstrap.servers")))
        self._turns: deque[Sender] = deque()
        self._producing: Sender

    def open(self) -> None:
        """Claim the id, *then* see that this life is still the one: a claim that comes late is the last one, too."""
        self._deadline = time.monotonic() + self._limit_ms / 1000
        for name in self._ids:
            self._turns.append(self._sender(name))
            self._next()
            # This starts a claim in the background; the wait below collects it: both ids claim at the same time.
            with suppress(KafkaException):
                self._producer.init_transactions(0.001)
        try:
            for _ in self._ids:
                self._next()
                self._call(self._producer.init_transactions, "grant the transactional id")
        except KafkaException as caught:
            raise self._ended(caught.args[0]) from caught
        self._claimant.check()

    def deliver(self, packets: Sequence[Packet]) -> None:
        """Commit all packets with their lasts, together."""
        moved = self._marks.moved(packets)
        self._deadline = time.monotonic() + self._limit_ms / 1000
        self._producing.reason = ""
        try:
            while not self._committed(packets):
                self._call(self._producer.abort_transaction, "abort a transaction")
                self._begun = False
                self._producing.failed = None
                self._patience()
                time.sleep(RETRY_S)
        except KafkaException as caught:
            raise self._ended(caught.args[0]) from caught
        self._marks.update(moved)

    @property
    def trouble(self) -> str:
        """Return why Kafka takes nothing now, as a broker or the last transaction has said; empty if unknown."""
        return self._turns[0].trouble if self._turns else ""

    def close(self) -> None:
        """Abort what is open, if Kafka is there."""
        if self._begun:
            self.end_by = self._deadline = time.monotonic() + ABORT_S
            with suppress(LowtideError, KafkaException):
                self._call(self._producer.abort_transaction, "abort a transaction")

    def _committed(self, packets: Sequence[Packet]) -> bool:
        """Return whether a transaction with these packets was committed; if not, it has to be aborted."""
        if self._producing.lost_coordinator():
            self._claim_again()
        self._call(lambda _: self._producer.begin_transaction(), "begin a transaction")
        self._begun = True
        whole = self._produced(packets)
        try:
            # Of a transaction that has failed this does nothing but say why.
            self._call(self._producer.commit_transaction, "commit a transaction")
        except KafkaException as caught:
            error = caught.args[0]
            if not error.txn_requires_abort() or any(words in error.str() for words in ENDING):
                raise
            refused = self._producing.refused()
            if refused is not None:
                raise refused from caught
            if error.code() in PERMANENT:
                raise refusal(error, None, None, 0, self._producing.brokers) from caught
            self._producing.reason = error.str()
            return False
        assert whole, "a producer that takes no record commits none"
        self._begun = False
        self._next()
        return True

    def _sender(self, name: str) -> Sender:
        return Sender(self._settings | {"transactional.id": name}, self._limit_ms, self._max_record_bytes)

    def _claim_again(self) -> None:
        """Give the id of this turn a new epoch: a late message can then end no transaction.

        A claim is the last one to be made, not that of the newest life: this one is held against the job's before it,
        lest it ends a newer one, and after it, as every claim is (W10).
        """
        self._claimant.check()
        self._turns[0] = self._producing = self._sender(self._producing.transactional_id)
        self._producer = self._producing.producer
        # With a broker known it begins at once; else librdkafka looks again only half a second later.
        with suppress(KafkaException):
            self._producer.list_topics(self._claimant.lasts_topic, SLICE_S)
        self._call(self._producer.init_transactions, "grant the transactional id again")
        self._claimant.check()

    def _next(self) -> None:
        """Let the other id take its turn, whose last transaction has had one of the other's time to end."""
        self._turns.rotate(1)
        self._producing = self._turns[0]
        self._producer = self._producing.producer

    def _produced(self, packets: Sequence[Packet]) -> bool:
        try:
            for packet in packets:
                self._producing.produce(packet.messages, self._patience)
                self._producing.produce(self._lasts(packet), self._patience)
        except KafkaException:
            return False
        return True

    def _lasts(self, packet: Packet) -> Iterable[Outgoing]:
        """Return the lane's mark as messages for the lasts topic."""
        return self._claimant.lasts(packet.mark)

    def _call(self, call: Callable[[float], None], what: str) -> None:
        """Call, and call again as long as that may help."""
        while True:
            try:
                call(SLICE_S)
                return
            except KafkaException as caught:
                error = caught.args[0]
                if not error.retriable():
                    raise
                self._producer.poll(0)  # For what is said of the brokers meanwhile.
                self._patience(what, error.str())
                if error.code() != KafkaError._TIMED_OUT:
                    time.sleep(RETRY_S)

    def _patience(self, what: str = "take the records of a transaction", reason: str = "") -> None:
        """Raise if this takes too long (errors: ServiceUnavailable)."""
        if time.monotonic() > min(self._deadline, self.end_by):
            reason = self._producing.reason or reason or "it is too slow"
            raise too_slow(what, self._limit_ms, reason, self._producing.brokers)

    def _ended(self, error: KafkaError) -> LowtideError:
        """Return our error for one after which this producer can do nothing."""
        where = f"broker {self._producing.brokers}, transactional ids {' and '.join(self._ids)}"
        if error.code() in FENCED:
            return fenced(error.str(), where)
        if error.code() in DENIED:
            return denied(error.str(), where)
        return unknown(error.str(), where)
