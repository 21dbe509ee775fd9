"""Claims: after several processes initialise a transactional id, only the last can commit under it (W10)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.errors import ServiceUnavailable

AT_ONCE = 8
"""Producers at a time: each has a connection and several threads."""
RETRY_S = 0.05
FIRST_CALL_S, LONGEST_CALL_S = 0.03, 2.0
"""Limits of one call, doubled from each to the next: librdkafka looks for the coordinator when a call begins, or half a
second later, and at the first call it has no broker yet."""


def transactional_id(job: str, level: int, lane: int) -> str:
    """The name of the ids under which a host delivers: its first delivering worker's, for that one's first lane.

    Different for different arguments.

    Args:
        job: The job's name.
        level: The worker's.
        lane: The first of its lanes; at level 0 its front.
    """
    return f"lowtide.{job}.{level}.{lane}"


def pair_of(name: str) -> tuple[str, str]:
    """The two ids that a host takes in turn where one was named.

    Kafka writes a transaction's markers after it has granted the commit, and refuses the same id a new one until it
    has; librdkafka asks again only 20 ms later. Under the other id the next transaction begins at once.
    """
    return f"{name}.a", f"{name}.b"


def claim(kafka: KafkaConf, ids: Iterable[str], limit_s: float) -> None:
    """Claim transactional ids, each a pair: open transactions are aborted, and earlier holders can no longer commit.

    When it returns, all that was ever committed under these ids can be read. A claim is the last one to be made, not
    the one of the newest life: check the incarnation afterwards.

    Args:
        kafka: The way in.
        ids: All that may ever have been used.
        limit_s: How long it may take altogether.

    Raises:
        ServiceUnavailable: Kafka did not grant one of them in time, or does not allow it.
    """
    wanted = sorted({each for name in ids for each in pair_of(name)})
    if not wanted:
        return
    settings = librdkafka_settings(kafka)
    deadline = time.monotonic() + limit_s
    with ThreadPoolExecutor(min(AT_ONCE, len(wanted)), "claim") as threads:
        for granted in [threads.submit(_claim, settings, name, deadline, limit_s) for name in wanted]:
            granted.result()


def _claim(settings: dict[str, str], name: str, deadline: float, limit_s: float) -> None:
    from confluent_kafka import KafkaError, KafkaException, Producer

    config: dict[str, Any] = {"transactional.id": name, "log_level": 0, "error_cb": lambda _: None}
    config |= {"retry.backoff.ms": 1, "retry.backoff.max.ms": 4, "reconnect.backoff.max.ms": 500}
    producer = Producer(settings | config)
    call_s = FIRST_CALL_S
    while True:
        try:
            producer.init_transactions(max(0.001, min(call_s, deadline - time.monotonic())))
            return
        except KafkaException as caught:
            error = caught.args[0]
            if error.code() == KafkaError._TIMED_OUT and time.monotonic() < deadline:
                call_s = min(2 * call_s, LONGEST_CALL_S)  # The call that follows goes on with what has begun.
                continue
            if not error.retriable() or time.monotonic() + RETRY_S > deadline:
                raise ServiceUnavailable(
                    f'Kafka did not grant the transactional id "{name}" within {limit_s:g} s: {error.str()}',
                    where=f"Kafka at {settings['bootstrap.servers']} ([kafka].bootstrap_servers)",
                    way_out="check that the broker runs, has its topic __transaction_state and allows this id, then "
                    "start the job again",
                ) from caught
            time.sleep(RETRY_S)
