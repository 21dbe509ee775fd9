"""What is asked of Kafka before a job starts: every topic there, every partition by its number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lowtide.conf import Conf
from lowtide.connectors.topics import Topic, Topics
from lowtide.driver.query import topics_of
from lowtide.errors import FlowError
from lowtide.flow.plan import Plan
from lowtide.flow.steps import Write


def sink_topics(plan: Plan) -> list[str]:
    """Return the topics that a plan writes, dead letters included."""
    sinks = [vertex.step.sink.topic for vertex in plan.sinks() if isinstance(vertex.step, Write)]
    if plan.dead_letters is not None:
        sinks.append(plan.dead_letters.topic)
    return list(dict.fromkeys(sinks))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What Kafka has for a plan.

    Attributes:
        sources: The topics that are read.
        sinks: How many partitions each topic has that is written.
        earliest: The first offset that is still there, by topic and partition, of the sources.
    """

    sources: tuple[Topic, ...]
    sinks: Mapping[str, int]
    earliest: Mapping[tuple[str, int], int]

    @property
    def fronts(self) -> int:
        """How many source partitions there are."""
        return len(self.earliest)


def look(plan: Plan, conf: Conf) -> Surroundings:
    """Ask Kafka for everything that a plan reads and writes.

    Raises:
        ServiceUnavailable: no broker answers.
        TopicUnknown: a topic is not there.
        FlowError: a topic cannot be read or written as the flow wants it.
    """
    sources, sinks = topics_of(plan), sink_topics(plan)
    topics = Topics(conf.kafka)
    known = {topic.name: topic for topic in topics.describe_all(list(dict.fromkeys([*sources, *sinks])))}
    both = sorted(set(sources) & set(sinks))
    if both:
        raise FlowError(
            f'the flow reads and writes topic "{both[0]}", so it would read its own output for ever',
            way_out="write to another topic",
        )
    _refuse_shared(plan)
    found = tuple(known[name] for name in sources)
    _refuse_compacted(found)
    _refuse_narrow(plan, known)
    _refuse_dated(known[name] for name in sinks)
    return Surroundings(found, {name: known[name].partitions for name in sinks}, topics.earliest(found))


def _refuse_shared(plan: Plan) -> None:
    """Refuse two sinks on one topic: which of them writes first would be by chance."""
    writers: dict[str, str] = {}
    for vertex in plan.sinks():
        assert isinstance(vertex.step, Write)
        topic = vertex.step.sink.topic
        letters = plan.dead_letters is not None and plan.dead_letters.topic == topic
        other = writers.setdefault(topic, "dead letters" if letters else vertex.name)
        if other != vertex.name:
            raise FlowError(
                f'sink "{vertex.name}" and sink "{other}" both write topic "{topic}": which of them writes first would '
                "be by chance",
                way_out="merge the streams before one sink, or give each a topic of its own",
            )


def _refuse_narrow(plan: Plan, topics: Mapping[str, Topic]) -> None:
    """Refuse a sink's topic with fewer partitions than lanes: each lane owns a partition, so that it has an order."""
    for vertex in plan.sinks():
        assert isinstance(vertex.step, Write)
        topic = topics[vertex.step.sink.topic]
        if topic.partitions < plan.lanes:
            raise FlowError(
                f'topic "{topic.name}" has {topic.partitions} partition{"s" * (topic.partitions > 1)}, and the job '
                f"{plan.lanes} lanes: each lane writes a partition of its own",
                where=f'sink "{vertex.name}"',
                way_out=f"give the topic {plan.lanes} partitions, or set job.parallelism and job.lanes to "
                f"{topic.partitions}",
            )


def _refuse_compacted(topics: Iterable[Topic]) -> None:
    for topic in topics:
        if "compact" in topic.cleanup:
            raise FlowError(
                f'topic "{topic.name}" is compacted: read again, it would not give the same records (R3)',
                where=f"its cleanup.policy is {topic.cleanup}",
                way_out="read a topic with cleanup.policy=delete",
            )


def _refuse_dated(sinks: Iterable[Topic]) -> None:
    """Refuse sinks' topics whose broker dates the records: their timestamps would differ from life to life (R13)."""
    for topic in sinks:
        if topic.timestamps != "CreateTime":
            raise FlowError(
                f'topic "{topic.name}" is written, and the broker gives its records timestamps of its own instead of '
                "their ticks': they would not be the same when records are delivered again",
                where=f"its message.timestamp.type is {topic.timestamps}",
                way_out="set message.timestamp.type=CreateTime for the topic",
            )
