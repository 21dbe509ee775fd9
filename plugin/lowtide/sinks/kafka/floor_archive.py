"""The archive of a job's floors, for those that no start from the last commit needs.

A start reads the whole lasts topic, and each moment at which a partition is quiet adds a floor: starts would take
longer and longer. So floors below the newest commit's start offsets are moved, once, into another topic,
`lowtide.NAME.floors`. Only a start that begins below reads it: from an older commit, or without state.

The order makes it safe to break off at any point: the archive gets the floors, then the lasts topic records that, then
it loses them. It needs no fence: floors below a commit are decided, so every life moves the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.core.fronts.floors import Steps
from lowtide.errors import ServiceUnavailable
from lowtide.sinks.kafka.lasts import TOPIC_CONFIG, LastsLost, made_id, name_beside, newest, topic_id, write
from lowtide.sinks.kafka.lasts_records import Archived, Durable, archived_record, durable_of, floor_of, floor_records
from lowtide_tracker import Floor

CONFIG = {**TOPIC_CONFIG, "segment.bytes": str(64 << 20)}


@dataclass(frozen=True, slots=True)
class Tidied:
    """The result of tidying.

    Attributes:
        kept: The number of floors that a start from the newest commit needs.
        archived: The number of floors moved.
        removed: The number of records removed from the lasts topic.
    """

    kept: int
    archived: int
    removed: int


def archive_of(job: str) -> str:
    """The name of a job's archive; its output generations share it."""
    return name_beside(job, "floors")


def tidy(
    settings: Mapping[str, str], job: str, topic: str, below: Mapping[int, int], incarnation: int, limit_s: float
) -> Tidied:
    """Move the floors that no start from a commit needs out of a lasts topic; O(what is in it).

    Args:
        settings: librdkafka's, of the way in.
        job: The job's name.
        topic: Its lasts topic.
        below: By front the offset from which that commit reads it.
        incarnation: The life that asks for it.
        limit_s: How long Kafka may give or take nothing.

    Raises:
        LastsLost: A topic is gone; nothing was removed.
        LastsUnreadable: Another version wrote it.
        ServiceUnavailable: Kafka does not answer; what is left is done the next time.
    """
    table = newest(settings, topic, limit_s)
    durable = durable_of(table, topic)
    needed = Steps(durable.floors)
    for front, offset in below.items():
        needed.cut(front, offset)
    kept = set(needed)
    old = [floor for floor in durable.floors if floor not in kept]
    if old:
        archive = archive_of(job)
        archived = Archived(_opened(settings, archive, durable.archived, limit_s), below).beyond(durable.archived)
        write(settings, archive, floor_records(old, incarnation), limit_s)
        write(settings, topic, [archived_record(archived, incarnation)], limit_s)
    # Also what others cover, and what an earlier version has written once per lane.
    wanted = dict(floor_records(kept, incarnation))
    removed = [key for key, value in table.items() if key not in wanted and floor_of(key, value) is not None]
    absent = [(key, value) for key, value in wanted.items() if key not in table]
    write(settings, topic, absent, limit_s)
    write(settings, topic, [(key, None) for key in removed], limit_s)
    return Tidied(len(kept), len(old), len(removed))


def read_archived(
    kafka: KafkaConf,
    job: str,
    durable: Durable,
    start: Mapping[int, int],
    limit_s: float,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Floor, ...]:
    """All floors that a start needs: those of the lasts topic, and where it begins below, those of the archive.

    Args:
        kafka: The way in.
        job: The job's name.
        durable: What its lasts topic says.
        start: By front the offset from which it is read; fronts that are missing are read from their beginning.
        limit_s: How long Kafka may give nothing.
        say: Called with its progress.

    Raises:
        LastsLost: The archive is gone, or another one.
        ServiceUnavailable: Kafka does not answer.
    """
    archived = durable.archived
    if archived is None or not archived.has(start):
        return durable.floors
    settings, archive = librdkafka_settings(kafka), archive_of(job)
    _opened(settings, archive, archived, limit_s)
    say(f'reading the floors below the last commit, in topic "{archive}"')
    floors = Steps(durable_of(newest(settings, archive, limit_s, say=say), archive).floors)
    floors.merge(durable.floors)
    return tuple(floors)


def _opened(settings: Mapping[str, str], archive: str, known: Archived | None, limit_s: float) -> str:
    """The archive's id; the topic is made at its first use."""
    if known is None and topic_id(settings, archive, limit_s) is None:
        _make(settings, archive, limit_s)
        found = made_id(settings, archive, limit_s, limit_s)
    else:
        found = made_id(settings, archive, limit_s)
    if found is None or (known is not None and found != known.topic_id):
        raise LastsLost(
            f'the topic "{archive}", which has the floors of everything delivered before the last commit, '
            + ("is gone" if found is None else "has been replaced by another"),
            where=f"Kafka at {settings['bootstrap.servers']}",
            way_out="restore the topic; or begin from the last commit, which does not need it",
        )
    return found


def _make(settings: Mapping[str, str], archive: str, limit_s: float) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    client: Any = AdminClient({**settings, "log_level": 0})
    new = NewTopic(archive, num_partitions=1, replication_factor=-1, config=CONFIG)
    try:
        client.create_topics([new], operation_timeout=limit_s, request_timeout=limit_s)[archive].result(2 * limit_s)
    except KafkaException as caught:
        error = caught.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise ServiceUnavailable(
                f'cannot create the topic "{archive}": {error.str()}',
                where=f"Kafka at {settings['bootstrap.servers']}",
                way_out="let the job's user create it, or create it with one partition and cleanup.policy=compact",
            ) from caught
