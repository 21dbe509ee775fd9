"""What is asked of Kafka before a job starts: every topic there, every partition by its number."""

from __future__ import annotations

from collections.abc import Iterable

from lowtide.compiler import compile_job
from lowtide.conf import Conf
from lowtide.errors import FlowError
from lowtide.flow import Flow
from lowtide.plan import Plan
from lowtide.spark.query import topics_of
from lowtide.steps import WORD, Write
from lowtide.topics import Topic, Topics


def sink_topics(plan: Plan) -> list[str]:
    """Return the topics that a plan writes, dead letters included."""
    sinks = [vertex.step.sink.topic for vertex in plan.sinks() if isinstance(vertex.step, Write)]
    if plan.dead_letters is not None:
        sinks.append(plan.dead_letters.topic)
    return list(dict.fromkeys(sinks))


def plan_job(flow: Flow, conf: Conf) -> Plan:
    """Lay out a flow for a job on Spark.

    Raises:
        FlowRefused: names everything that does not fit.
        FlowError: names the steps that a job cannot run.
    """
    plan = compile_job(flow, conf)
    refuse_tracked(plan)
    return plan


def refuse_tracked(plan: Plan) -> None:
    """Refuse a flow whose output is right only in order: so far a job on Spark has no min time to go by.

    Raises:
        FlowError: names the steps.
    """
    steps = [f'{WORD[type(vertex.step)]} "{vertex.name}"' for vertex in plan.needs_tracking()]
    if steps:
        raise FlowError(
            f"a job on Spark cannot run these steps yet, since it does not track min time: {', '.join(steps)}",
            way_out="run the flow with flow.run_locally(...), or leave these steps out",
        )


def look(plan: Plan, conf: Conf) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of every source partition, by `topic-partition`, and the partitions of every sink's topic.

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
    _refuse_compacted(known[name] for name in sources)
    names = [f"{name}-{partition}" for name in sources for partition in range(known[name].partitions)]
    fronts = {name: number for number, name in enumerate(names)}
    return fronts, {name: known[name].partitions for name in sinks}


def _refuse_compacted(topics: Iterable[Topic]) -> None:
    for topic in topics:
        if "compact" in topic.cleanup:
            raise FlowError(
                f'topic "{topic.name}" is compacted: read again, it would not give the same records (R3)',
                where=f"its cleanup.policy is {topic.cleanup}",
                way_out="read a topic with cleanup.policy=delete",
            )
