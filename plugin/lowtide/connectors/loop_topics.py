"""The topics of loops whose records change their key: their names, how they are made, and where a life begins in them.

Only the life that wrote a frame has a use for it: the next one reads its sources again from its commit. So a life notes
where each partition ends before its workers write, and reads from there. What an older life still writes after that
carries the older number, and is skipped (R7); so is what another job of the name writes, under another ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from lowtide.conf import Conf
from lowtide.connectors.sender import SLACK_BYTES
from lowtide.connectors.topics import Topic, TopicExists, Topics
from lowtide.errors import FlowError, TopicUnknown
from lowtide.flow.plan.own_topics import loop_topics
from lowtide.flow.plan.plan import Plan

KEPT_MS = 3_600_000
"""Least retention of frames; they are read within seconds, or their life ends."""


@dataclass(frozen=True, slots=True)
class LoopTopic:
    """A loop's topic as a life begins with it.

    Attributes:
        name: Its name.
        ends: By worker of the head's level, which each have a partition, the offset from which this life reads.
    """

    name: str
    ends: tuple[int, ...]


def open_loops(plan: Plan, conf: Conf) -> Mapping[int, LoopTopic]:
    """See that the topics are there, and note where they end, before any worker of this life writes.

    Raises:
        FlowError: a topic is compacted.
        ServiceUnavailable: no broker answers in time.
        TopicRefused: Kafka does not allow a topic to be made, or to have as many partitions as there are workers.
    """
    names = loop_topics(plan)
    if not names:
        return {}
    topics = Topics(conf.kafka)
    config = {
        "cleanup.policy": "delete",
        "retention.ms": str(KEPT_MS),
        "segment.ms": str(KEPT_MS // 4),
        # A frame's age is that of its record in the log, whatever its records' times are.
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(conf.exchange.max_frame_bytes + SLACK_BYTES),
    }
    for name in names.values():
        try:
            topics.describe(name)
        except TopicUnknown:
            with suppress(TopicExists):
                topics.create(name, partitions=plan.lanes, config=config)
    found = {id_: _wide(topics, name, plan) for id_, name in names.items()}
    for topic in found.values():
        way_out = "delete the topic: the next start creates it, and needs nothing of an earlier life from it"
        if topic.cleanup != "delete":
            raise FlowError(f'topic "{topic.name}" has cleanup.policy={topic.cleanup}, not delete', way_out=way_out)
    ends = topics.ends(found.values())
    workers = range(plan.parallelism)
    return {id_: LoopTopic(topic.name, tuple(ends[topic.name, n] for n in workers)) for id_, topic in found.items()}


def _wide(topics: Topics, name: str, plan: Plan) -> Topic:
    """Return a topic, with more partitions if the job has got more lanes, and more workers since."""
    topic = topics.describe(name)
    if topic.partitions < plan.parallelism:
        topics.widen(name, plan.lanes)
        topic = replace(topic, partitions=plan.lanes)
    return topic
