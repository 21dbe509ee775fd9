"""Kafka and Spark as a job meets them: every topic there, partitions, slots and executors enough."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lowtide.conf import Conf
from lowtide.conf.store_access import store_setting
from lowtide.connectors.acls import Acl
from lowtide.connectors.topics import Topic, Topics
from lowtide.driver.compacted import least_lag_ms, refuse_compacted
from lowtide.driver.query import topics_of
from lowtide.errors import FlowError, TooFewSlots
from lowtide.flow.plan.own_topics import name_beside
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.graph import FlowGraph
from lowtide.process.lent_store import MEMORY
from lowtide_snapshots.stores import open_store

LOG = logging.getLogger(__name__)


def sink_topics(plan: Plan) -> list[str]:
    """Return the topics that a plan writes, dead letters included."""
    sinks = [sink.topic for _, sink in plan.kafka_sinks()]
    if plan.dead_letters is not None:
        sinks.append(plan.dead_letters.topic)
    return sinks


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that a flow needs.

    Attributes:
        name: Its name.
        partitions: How many it needs.
        config: Its settings, as Kafka has them.
    """

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


def needed_topics(plan: Plan, conf: Conf, *, sources: int | None = None) -> list[NewTopic]:
    """Return the topics that a plan reads and writes, each once, in the flow's order.

    Args:
        plan: The plan.
        conf: The conf of its job.
        sources: How many partitions a source gets; by default one per lane that the conf names, or worker, as a sink.
    """
    partitions = conf.job.lanes or plan.parallelism
    lag_ms = least_lag_ms(conf.snapshots.max_commit_age_s)
    compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(lag_ms)}
    found: dict[str, NewTopic] = {}
    for vertex in plan.sources():
        source = vertex.step.source
        config = compacted if source.compacted else {}
        found[source.topic] = NewTopic(source.topic, sources or partitions, config)
    letters = plan.dead_letters.topic if plan.dead_letters is not None else None
    for topic in sink_topics(plan):
        found[topic] = NewTopic(topic, 1 if topic == letters else partitions)
    return list(found.values())


def needed_acls(plan: Plan) -> list[Acl]:
    """Return what a plan's job must be allowed in Kafka, and no more: its sources, its sinks and what is its own.

    Its own topics, groups and transactional ids are those whose names begin with `lowtide.NAME.`.
    """
    looked_at = ("Describe", "DescribeConfigs")
    sources = list(dict.fromkeys(vertex.step.source.topic for vertex in plan.sources()))
    # Two, if the job's name has characters that take another form in most topics' names.
    own = dict.fromkeys((f"lowtide.{plan.name}.", f"{name_beside(plan.name, 'any').rpartition('.')[0]}."))
    return [
        *(Acl("topic", topic, ("Read", *looked_at)) for topic in sources),
        *(Acl("topic", topic, ("Write", *looked_at)) for topic in sink_topics(plan)),
        *(
            Acl(resource, prefix, operations, prefixed=True)
            for prefix in own
            for resource, operations in (
                ("topic", ("All",)),
                ("group", ("Read", "Describe")),
                ("transactional-id", ("Write", "Describe")),
            )
        ),
    ]


def letters_topic(flow: FlowGraph) -> str:
    """Return the topic of a flow's dead letters (errors: FlowError if it has none)."""
    if flow.dead_letters is None:
        raise FlowError(
            f'flow "{flow.name}" has no dead letters',
            way_out='give it a topic for them: lt.Flow(..., dead_letters=lt.kafka("letters", lt.raw()))',
        )
    return flow.dead_letters.topic


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The topics that Kafka has for a plan.

    Attributes:
        sources: The topics that are read.
        sinks: The number of partitions of each topic that is written.
        earliest: The first offset that is still there, by topic and partition, of the sources.
    """

    sources: tuple[Topic, ...]
    sinks: Mapping[str, int]
    earliest: Mapping[tuple[str, int], int]

    @property
    def fronts(self) -> int:
        """The number of source partitions."""
        return len(self.earliest)


def look(plan: Plan, conf: Conf) -> Surroundings:
    """Ask Kafka for everything that a plan reads and writes.

    Raises:
        ServiceUnavailable: no broker answers.
        TopicUnknown: a topic is not there.
        FlowError: a topic cannot be read or written as the flow needs.
    """
    sources, sinks = topics_of(plan), sink_topics(plan)
    topics = Topics(conf.kafka)
    known = {topic.name: topic for topic in topics.describe_all(list(dict.fromkeys([*sources, *sinks])))}
    both = sorted(set(sources) & set(sinks))
    if both:
        raise FlowError(
            f'the flow reads and writes topic "{both[0]}": it would read its own output for ever',
            way_out="write to another topic",
        )
    found = tuple(known[name] for name in sources)
    refuse_compacted(plan, found, conf.snapshots.max_commit_age_s)
    _refuse_dated_by_others(plan, known)
    _refuse_dated(known[name] for name in sinks)
    return Surroundings(found, {name: known[name].partitions for name in sinks}, topics.earliest(found))


def check_store(conf: Conf) -> None:
    """Refuse a store of snapshots that its processes could not open; nothing is asked of it yet.

    Raises:
        StoreRefused: the settings name none, or what it needs is not installed or not said.
    """
    if conf.snapshots.url != MEMORY:
        open_store(store_setting(conf.snapshots)).close()


def _refuse_dated_by_others(plan: Plan, topics: Mapping[str, Topic]) -> None:
    """Refuse sources whose records are dated by others than the flow says: log time would follow another clock."""
    for vertex in plan.sources():
        source, topic = vertex.step.source, topics[vertex.step.source.topic]
        if source.timestamps not in (None, topic.dated_by):
            wanted = "LogAppendTime" if source.timestamps == "broker" else "CreateTime"
            raise FlowError(
                f'source "{vertex.name}" says that the {source.timestamps} dates the records of topic "{topic.name}", '
                f"but the {topic.dated_by} does",
                where=f"{vertex.site}; the topic's message.timestamp.type is {topic.timestamps}",
                way_out=f'set message.timestamp.type={wanted} for the topic; or say timestamps="{topic.dated_by}", if '
                "log time may follow that clock",
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


POLL_S = 0.1
EXECUTORS_LIMIT = "spark.scheduler.maxRegisteredResourcesWaitingTime"
"""Spark's own setting of how long it waits for executors; where it does, it counts some that take no tasks yet."""
EXECUTORS_LIMIT_S = "30s"


def slots_needed(plan: Plan, fronts: int) -> int:
    """Return how many slots a plan takes: one per source partition, then `parallelism` per level."""
    return fronts + (plan.levels - 1) * plan.parallelism


def slots_offered(master: str) -> int | None:
    """Return how many slots a local master has; None where only the cluster knows."""
    if master == "local":
        return 1
    if match := re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master):
        return os.cpu_count() or 1 if match[1] == "*" else int(match[1])
    if match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(match[1]) * int(match[2])
    return None


def check_slots(plan: Plan, fronts: int, have: int | None, master: str) -> None:
    """Refuse a start that could never run all levels.

    Raises:
        TooFewSlots: with both figures and what to change.
    """
    need = slots_needed(plan, fronts)
    if have is None or have >= need:
        return
    later = plan.levels - 1
    way_out = f"set spark.master to local[{need}] (slots are not cores: two cores can run many)"
    if not master.startswith("local["):
        way_out = f"give Spark {need} slots (executors times cores), or lower job.parallelism"
    raise TooFewSlots(
        f"the flow needs {need} slots at once, Spark has {have}: {fronts} for the source's partitions and "
        f"{later} x {plan.parallelism} for the later levels",
        where=f"spark.master = {master}",
        way_out=way_out,
    )


def wait_for_slots(session: Any, need: int, limit_s: float, say: Callable[[str], None]) -> None:
    """Wait until executors have brought so many slots: Spark refuses a query that it cannot run at once.

    Those that do not come in time are not missed here but by Spark, which says what it has.

    Args:
        session: The SparkSession.
        need: How many slots.
        limit_s: How long, at most.
        say: Called with what it waits for.
    """
    context = session.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    deadline = time.monotonic() + limit_s
    said = False
    while (have := context.maxNumConcurrentTasks(profile)) < need and time.monotonic() < deadline:
        if not said:
            say(f"waiting for executors, which have {have} of {need} slots")
            said = True
        time.sleep(POLL_S)


def executors_asked(settings: Mapping[str, str]) -> int:
    """Return how many executors a session has asked for; 0 where it has none of its own, or takes what there is.

    Args:
        settings: Spark's settings, with `spark.master`.
    """
    master = settings.get("spark.master", "")
    if match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,.*\]", master):
        return int(match[1])
    if settings.get("spark.dynamicAllocation.enabled", "false") == "true":
        return 0
    if master.startswith("spark://"):
        most, each = settings.get("spark.cores.max", "0"), settings.get("spark.executor.cores", "1")
        # Without a number for each, there is one executor on each host, with all of its cores.
        return int(most) // int(each) if "spark.executor.cores" in settings else 0
    return int(settings.get("spark.executor.instances", "2")) if master.startswith(("yarn", "k8s://")) else 0


def wait_for_executors(asked: int, there: Callable[[], int], limit_s: float, say: Callable[[str], None]) -> None:
    """Wait until all executors have come: those that come first have slots enough, and would get all workers.

    Args:
        asked: How many were asked for.
        there: Returns how many have come.
        limit_s: How long, at most; then the job does without the others.
        say: Called with what it waits for.
    """
    deadline = time.monotonic() + limit_s
    said = False
    while (have := there()) < asked:
        if time.monotonic() >= deadline:
            LOG.warning(
                "only %d of %d executors came within %.0f s: all workers run on these until the job is started again",
                have, asked, limit_s,
            )  # fmt: skip
            return
        if not said:
            say(f"waiting for executors: {have} of {asked} have come")
            said = True
        time.sleep(POLL_S)
