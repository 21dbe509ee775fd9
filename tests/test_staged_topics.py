"""The topics of staged logs on real Kafka: made once, and refused when they are not the ones that were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from staged_to import StagedTo
from tests.conftest import unique
from tests.waiting import HANGS_S, wait_until

import lowtide as lt
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.errors import FlowError, TopicUnknown
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.own_topics import staged_topic
from lowtide.sinks.errors import LastsLost
from lowtide.sinks.own_topics import open_topics
from lowtide.sinks.staged.topics import staged_topics

if TYPE_CHECKING:
    from tests.conftest import Kafka

    from lowtide.flow.plan.plan import Plan

pytestmark = [pytest.mark.kafka]
RECORD_BYTES = 4 << 20


@dataclass(frozen=True)
class Order:
    user: str


def plan(name: str, lanes: int = 3) -> Plan:
    flow = lt.Flow(name)
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order)))
    orders.write("lake", StagedTo("a lake", Order))
    orders.write("out", lt.kafka("out", lt.json(Order)))
    return compile_flow(flow, parallelism=1, lanes=lanes)


@pytest.fixture(name="conf")
def _conf(kafka: Kafka) -> Conf:
    return Conf.load(None, {"kafka.bootstrap_servers": kafka.address})


def test_a_log_has_a_partition_for_each_lane_and_is_known_again(conf: Conf) -> None:
    made = plan(unique("staged"))
    found = open_topics(staged_topics(made), conf.kafka, made.lanes, {}, RECORD_BYTES)
    topic = Topics(conf.kafka).describe(staged_topic(made.name, "lake"))
    assert (found, topic.partitions, topic.cleanup) == ({"lake": topic.id}, 3, "delete")
    assert open_topics(staged_topics(made), conf.kafka, made.lanes, found, RECORD_BYTES) == found
    assert open_topics(staged_topics(made), conf.kafka, made.lanes, {}, RECORD_BYTES) == found, (
        "a start that ended before it was noted"
    )


def test_a_log_that_is_gone_or_another_one_is_refused(conf: Conf) -> None:
    made = plan(unique("staged"))
    found = open_topics(staged_topics(made), conf.kafka, made.lanes, {}, RECORD_BYTES)
    topics, name = Topics(conf.kafka), staged_topic(made.name, "lake")
    topics.delete(name)

    def gone() -> bool:
        try:
            topics.describe(name)
        except TopicUnknown:
            return True
        return False

    wait_until(gone, HANGS_S, "the topic is deleted")
    with pytest.raises(LastsLost, match=f'"{name}", in which the records of sink "lake" wait for their store, is gone'):
        open_topics(staged_topics(made), conf.kafka, made.lanes, found, RECORD_BYTES)
    topics.create(name, partitions=3)
    with pytest.raises(LastsLost, match="has been replaced by another"):
        open_topics(staged_topics(made), conf.kafka, made.lanes, found, RECORD_BYTES)


def test_a_log_with_records_that_nobody_staged_is_refused(conf: Conf, kafka: Kafka) -> None:
    made = plan(unique("staged"))
    open_topics(staged_topics(made), conf.kafka, made.lanes, {}, RECORD_BYTES)
    name = staged_topic(made.name, "lake")
    kafka.produce(name, [{"user": "ann"}])
    with pytest.raises(FlowError, match=f'topic "{name}" has records, but the job has written none'):
        open_topics(staged_topics(made), conf.kafka, made.lanes, {}, RECORD_BYTES)


@pytest.mark.parametrize(
    ("partitions", "config", "fault"),
    [
        (2, {}, r"has 2 partitions, and the job 3 lanes"),
        (3, {"cleanup.policy": "compact"}, r"has cleanup\.policy=compact, not delete"),
        (3, {"message.timestamp.type": "LogAppendTime"}, r"has message\.timestamp\.type=LogAppendTime, not CreateTime"),
    ],
)
def test_a_log_that_does_not_fit_is_refused(conf: Conf, partitions: int, config: dict[str, str], fault: str) -> None:
    made = plan(unique("staged"))
    Topics(conf.kafka).create(staged_topic(made.name, "lake"), partitions=partitions, config=config)
    with pytest.raises(FlowError, match=fault):
        open_topics(staged_topics(made), conf.kafka, made.lanes, {}, RECORD_BYTES)
