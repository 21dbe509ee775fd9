"""Topics of a job's own that nobody may lose: made by the first life, and the same ones in each life after.

They get more partitions when the job gets more lanes (`flow/plan/lane_partitions.py`): by `lowtide lanes`, or if that
broke off, by the next start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.sender import SLACK_BYTES
from lowtide.connectors.topics import Topic, TopicExists, Topics
from lowtide.errors import FlowError, TopicUnknown
from lowtide.sinks.errors import LastsLost
from lowtide.sinks.kafka.lasts import GONE_S, asked_again
from lowtide.sinks.staged.growth import end_carriers
from lowtide.wording import count_of

__all__ = ["OwnTopic", "open_topics"]

CONFIG = {
    "cleanup.policy": "delete",
    # Lowtide cuts the topic below what is needed; nothing else may.
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}

NEVER_USED = "delete the topic before the job's first start: that start creates it"


class OwnTopic(NamedTuple):
    """A topic with a partition for each lane.

    Attributes:
        name: Its name.
        holds: Its content, as in "in which HOLDS".
        step: The sink or step that it is of, as in errors.
        unknown: The meaning of records in it that the job knows nothing of, with what to do.
        lost: What to do if it is gone.
        carried: Whether carriers read it: those of lives with fewer lanes have to end before there are more partitions.
    """

    name: str
    holds: str
    step: str
    unknown: str
    lost: str
    carried: bool = False


def open_topics(
    topics: Mapping[str, OwnTopic],
    kafka: KafkaConf,
    lanes: int,
    known: Mapping[str, str],
    max_record_bytes: int,
    grown: Sequence[int] = (),
) -> dict[str, str]:
    """See that topics are there and are the ones they were; make those that are new, and widen those of fewer lanes.

    Args:
        topics: The topics by sink or step.
        kafka: The way in.
        lanes: Number of lanes.
        known: What an earlier life's call returned.
        max_record_bytes: The largest record.
        grown: The numbers of lanes that the job had before.

    Returns:
        By sink or step the cluster's id of its topic.

    Raises:
        LastsLost: a topic is gone, or another one.
        FlowError: a topic does not fit.
        ServiceUnavailable: no broker answers in time.
        TopicRefused: Kafka does not allow a topic to be made, or to have more partitions.
    """
    access, found = Topics(kafka), dict[str, str]()
    for key, own in topics.items():
        denied_s = GONE_S
        if key not in known:
            denied_s = kafka.reach_limit_ms / 1000
            with suppress(TopicExists):
                config = {**CONFIG, "max.message.bytes": str(max_record_bytes + SLACK_BYTES)}
                access.create(own.name, partitions=lanes, config=config)
        topic = asked_again(partial(_described, access, own.name), denied_s)
        if topic is None:
            raise _lost(own, "is gone", kafka)
        if known.get(key, topic.id) != topic.id:
            raise _lost(own, "has been replaced by another", kafka)
        _refuse_unfit(topic, lanes, grown, own.lost if key in known else NEVER_USED)
        if topic.partitions < lanes:
            # Carriers begin only after a topic is known; and one that is not must have no message.
            if own.carried and key in known:
                end_carriers(librdkafka_settings(kafka), own.name, topic.partitions, lanes, denied_s)
            access.widen(own.name, lanes)
        if key not in known and any(access.ends([topic], undecided=True).values()):
            raise FlowError(
                f'topic "{own.name}" has records, but the job has written none: they are of another job of this name, '
                "or of this one before its nodes in ZooKeeper were lost",
                where=own.step,
                way_out=own.unknown,
            )
        found[key] = topic.id
    return found


def _described(access: Topics, name: str) -> Topic | None:
    with suppress(TopicUnknown):
        return access.describe(name)
    return None


def _refuse_unfit(topic: Topic, lanes: int, grown: Sequence[int], way_out: str) -> None:
    if topic.partitions not in (*grown, lanes):
        raise FlowError(
            f'topic "{topic.name}" has {count_of(topic.partitions, "partition")}, and the job '
            f"{count_of(lanes, 'lane')}: each lane has a partition, which only Lowtide may add",
            way_out=way_out,
        )
    for what, is_, wanted in (
        ("cleanup.policy", topic.cleanup, "delete"),
        ("message.timestamp.type", topic.timestamps, "CreateTime"),
    ):
        if is_ != wanted:
            raise FlowError(
                f'topic "{topic.name}" has {what}={is_}, not {wanted}',
                way_out=f"set {what}={wanted} for it; only Lowtide writes this topic",
            )


def _lost(own: OwnTopic, how: str, kafka: KafkaConf) -> LastsLost:
    return LastsLost(
        f'the topic "{own.name}", in which {own.holds}, {how}',
        where=f"Kafka at {kafka.bootstrap_servers}",
        way_out=own.lost,
    )
