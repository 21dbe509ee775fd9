"""The offsets at which sources end: resolved at a job's first start, kept in the front register."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from lowtide.conf import Conf
from lowtide.connectors.topics import Topic, Topics
from lowtide.core.fronts.register import FrontRegister
from lowtide.driver.starts import Place, refuse_to_come
from lowtide.errors import FlowError
from lowtide.flow.formats.stop import Stop
from lowtide.flow.plan.plan import Plan

__all__ = ["has_an_end", "last_offsets", "refuse_other_stops", "stops_of"]


def stops_of(plan: Plan) -> dict[str, Stop]:
    """By topic where it ends, of those that do; sources of one topic say the same."""
    found = {v.step.source.topic: v.step.source.stop for v in plan.sources()}
    return {topic: stop for topic, stop in found.items() if stop is not None}


def has_an_end(plan: Plan) -> bool:
    """Return whether all sources end, and so the job does."""
    topics = {vertex.step.source.topic for vertex in plan.sources()}
    return topics == stops_of(plan).keys()


def refuse_other_stops(plan: Plan, register: FrontRegister) -> None:
    """Hold what a start says against what the first one said: windows were closed by it (errors: FlowError)."""
    stops = stops_of(plan)
    topics = {vertex.step.source.topic for vertex in plan.sources()}
    for topic in sorted(topics):
        first = next((entry for entry in register.entries if entry.partition.source == topic), None)
        now = str(stops.get(topic, ""))
        if first is not None and first.ends != now:
            raise FlowError(
                f'topic "{topic}" is now to be read {_to(now)}, but the job began to read it {_to(first.ends)}',
                where="the front register in ZooKeeper",
                way_out=f"{f'set stop={first.ends} again' if first.ends else 'leave stop= out'}, or give the job "
                "another name: a new job chooses its own stop",
            )


def last_offsets(plan: Plan, conf: Conf, topics: tuple[Topic, ...], firsts: Mapping[Place, int]) -> dict[Place, int]:
    """The first offset that is not read, of each partition of topics that end and have not been read before.

    Args:
        plan: What will run.
        conf: Where Kafka is.
        topics: The topics.
        firsts: The first offset that each partition is read from.

    Raises:
        FlowError: an offset that a source names is not there or comes before its start, or a moment is still to come.
        ServiceUnavailable: Kafka does not answer.
    """
    kafka, stops = Topics(conf.kafka), stops_of(plan)
    found: dict[Place, int] = {}
    for topic in topics:
        stop = stops.get(topic.name)
        if stop is None:
            continue
        ends = kafka.ends([topic])
        if stop.moment is not None:
            refuse_to_come(topic, stop.moment, datetime.now(UTC), word="stop")
            # Records before the moment in a transaction that is open now are read once it is committed.
            whole = kafka.ends([topic], undecided=True)
            since = kafka.since([topic], round(stop.moment.timestamp() * 1000), undecided=True)
            ends = {place: whole[place] if offset < 0 else offset for place, offset in since.items()}
        elif stop.offsets is not None:
            ends |= _named(topic, stop.offsets, firsts, ends)
        # What was asked for may have begun after it ends: then there is nothing to read.
        found |= {place: max(offset, firsts[place]) for place, offset in ends.items()}
    return found


def _named(
    topic: Topic, offsets: tuple[tuple[int, int], ...], firsts: Mapping[Place, int], ends: Mapping[Place, int]
) -> dict[Place, int]:
    named = {(topic.name, partition): offset for partition, offset in offsets}
    for place, offset in named.items():
        if place not in ends or not firsts[place] <= offset <= ends[place]:
            have = f"is read from {firsts[place]} on and has {ends[place]}" if place in ends else "is not there"
            raise FlowError(
                f'stop= names offset {offset} of partition {place[1]} of topic "{topic.name}", which {have}',
                way_out="name existing offsets; partitions without one end where they do now",
            )
    return named


def _to(said: str) -> str:
    return f"to stop={said}" if said else "without stop="
