"""Ends the carriers of lives with fewer lanes, before a staged log gets more partitions, and then marks them all.

A carrier of an earlier life may go on for a while, as when its service hangs. It would take all it reads for all there
is: say, write down that a folder of files is complete, without those of new lanes. So each partition gets a message,
before anything that a life with more lanes writes, at which such a carrier ends. One that begins after it finds more
partitions than it has lanes.

The next life marks all partitions. Until then, carriers that find none in those that are new would know nothing of how
far they are, and readers of the store would not hear of what these carriers make visible: so each partition is marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide.sinks.kafka.lasts import write_messages
from lowtide.sinks.staged.encoder import MARK

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
    headers = [(LANES, str(lanes).encode())]
    write_messages(settings, topic, ({"partition": each, "headers": headers} for each in range(partitions)), limit_s)


def mark_all(settings: Mapping[str, Any], topic: str, marks: Mapping[int, int], limit_s: float) -> None:
    """Write into partitions that nothing below a log time follows; there may be such a mark already, or a later one.

    Args:
        settings: librdkafka's, of the way in.
        topic: The staged log.
        marks: By partition the log time, in ms.
        limit_s: How long Kafka may take.

    Raises:
        ServiceUnavailable: Kafka did not take all of them.
    """
    said = ({"partition": each, "headers": [(MARK, str(time_ms).encode())]} for each, time_ms in marks.items())
    write_messages(settings, topic, said, limit_s)
