"""The topics of staged logs on real Kafka: made once, and refused when they are not the ones that were written."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from staged_to import StagedTo
from tests.conftest import unique
from tests.waiting import HANGS_S, wait_until

import lowtide as lt
from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import Topics
from lowtide.errors import FlowError, TopicUnknown
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.own_topics import staged_topic
from lowtide.sinks.errors import LastsLost, Overtaken
from lowtide.sinks.own_topics import open_topics
from lowtide.sinks.staged.partitions import Partitions, carrier_group
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


def test_a_log_gets_a_partition_for_each_new_lane_and_ends_the_carriers_of_earlier_lives(
    conf: Conf, kafka: Kafka
) -> None:
    """R20: what these read may be less than all there is, and they must not take it for all."""
    made = plan(unique("staged"), lanes=2)
    found = open_topics(staged_topics(made), conf.kafka, 2, {}, RECORD_BYTES)
    name, settings = staged_topic(made.name, "lake"), librdkafka_settings(conf.kafka)

    def carrying(lanes: int) -> Partitions:
        partitions = Partitions(settings, name, carrier_group(made.name, "lake"), lanes, HANGS_S)
        partitions.claim()
        partitions.assign(dict.fromkeys(range(lanes), 0))
        return partitions

    def numbers(partitions: Partitions, count: int) -> list[str]:
        read: list[str] = []

        def there() -> bool:
            read.extend(row.value.decode() for piece in partitions.read(0.1) for row in piece.rows)
            return len(read) >= count

        wait_until(there, HANGS_S, f"{count} rows are read")
        return sorted(read)

    kafka.produce(name, [b"0"], 0)
    kafka.produce(name, [b"1"], 1)
    with closing(carrying(2)) as earlier, closing(carrying(2)) as asleep:
        assert numbers(earlier, 2) == ["0", "1"]
        for _ in range(2):
            assert open_topics(staged_topics(made), conf.kafka, 6, found, RECORD_BYTES, (2,)) == found
            assert Topics(conf.kafka).describe(name).partitions == 6
        kafka.produce(name, [b"2"], 0)
        kafka.produce(name, [b"5"], 5)
        for each in (earlier, asleep):
            with pytest.raises(Overtaken, match=r"the job has 6 lanes by now, .* of a life with 2 lanes"):
                numbers(each, 3)
    with pytest.raises(Overtaken, match="the job has 6 lanes by now"):
        carrying(2)
    with closing(carrying(6)) as current:
        assert numbers(current, 4) == ["0", "1", "2", "5"]
    with pytest.raises(FlowError, match="has 6 partitions, and the job 8 lanes") as refused:
        open_topics(staged_topics(made), conf.kafka, 8, found, RECORD_BYTES, (2, 4))
    assert "delete" not in str(refused.value), "it has records"


def test_a_log_that_no_life_has_noted_gets_the_partitions_of_new_lanes_and_nothing_else(conf: Conf) -> None:
    """A start ended before it was noted, then the job grew: no carrier has begun, and a message is a stranger's."""
    made = plan(unique("staged"), lanes=2)
    found = open_topics(staged_topics(made), conf.kafka, 2, {}, RECORD_BYTES)
    for _ in range(2):
        assert open_topics(staged_topics(made), conf.kafka, 6, {}, RECORD_BYTES, (2,)) == found
    assert Topics(conf.kafka).describe(staged_topic(made.name, "lake")).partitions == 6


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
