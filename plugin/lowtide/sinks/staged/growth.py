"""Ends the carriers of lives with fewer lanes, before a staged log gets more partitions.

A carrier of an earlier life may go on for a while, as when its service hangs. It would take all it reads for all there
is: say, write down that a folder of files is complete, without those of new lanes. So each partition gets a message,
before anything that a life with more lanes writes, at which such a carrier ends. One that begins after it finds more
partitions than it has lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide.errors import ServiceUnavailable
from lowtide.wording import count_of

LANES = "lowtide.lanes"
"""The header of a message without key and value that says how many lanes the job has from here on."""


def end_carriers(settings: Mapping[str, Any], topic: str, partitions: int, lanes: int, limit_s: float) -> None:
    """Write into each partition that there are more lanes; it may be there already.

    Args:
        settings: librdkafka's, of the way in.
        topic: The staged log.
        partitions: How many it has.
        lanes: How many lanes the job has.
        limit_s: How long Kafka may take.

    Raises:
        ServiceUnavailable: Kafka did not take all of them.
    """
    from confluent_kafka import Producer

    lost: list[str] = []

    def settled(error: Any, _: object) -> None:
        if error is not None:
            lost.append(str(error.str()))

    own = {"enable.idempotence": True, "log_level": 0, "message.timeout.ms": str(int(limit_s * 1000))}
    producer: Any = Producer({**settings, **own})
    for partition in range(partitions):
        producer.produce(topic, partition=partition, headers=[(LANES, str(lanes).encode())], on_delivery=settled)
    left = producer.flush(limit_s + 1)
    if left or lost:
        raise ServiceUnavailable(
            f'Kafka did not accept {count_of(left + len(lost), "message")} for topic "{topic}" within {limit_s:g} s'
            + (f": {lost[0]}" if lost else ""),
            where=f"Kafka at {settings['bootstrap.servers']}",
            way_out="check that the broker runs, then do this again",
        )
