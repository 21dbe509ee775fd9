"""The offsets at which a job's first start reads its sources: resolved once, kept in the front register."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from lowtide.conf import Conf
from lowtide.connectors.topics import Topic, Topics
from lowtide.core.fronts.register import FrontRegister
from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import KafkaSource
from lowtide.flow.formats.start import Start
from lowtide.flow.plan.plan import Plan

__all__ = ["Place", "first_offsets", "preload_ends", "refuse_other_starts", "refuse_to_come", "starts_of"]

V = TypeVar("V")
AHEAD_S = 60
"""How far a broker's clock may be ahead of this machine's, which replaces it before the job has begun."""
Place = tuple[str, int]
"""A topic and a partition."""


def starts_of(plan: Plan) -> dict[str, Start]:
    """By topic where it is read from; sources of one topic say the same."""
    return {v.step.source.topic: v.step.source.start for v in plan.sources()}


def _sources(plan: Plan) -> dict[str, KafkaSource]:
    """By topic a source that reads it."""
    return {v.step.source.topic: v.step.source for v in plan.sources()}


def preload_ends(plan: Plan, conf: Conf, topics: tuple[Topic, ...]) -> dict[Place, int]:
    """Return the current ends, by partition, of the topics that are preloaded (errors: ServiceUnavailable).

    Args:
        plan: What will run.
        conf: Where Kafka is.
        topics: Those that the job has not read before.
    """
    sources = _sources(plan)
    preloaded = [topic for topic in topics if sources[topic.name].preload]
    return Topics(conf.kafka).ends(preloaded) if preloaded else {}


def refuse_other_starts(plan: Plan, register: FrontRegister) -> None:
    """Compare a start with the first one, which everything read since depends on (errors: FlowError)."""
    for topic, start in starts_of(plan).items():
        first = next((entry for entry in register.entries if entry.partition.source == topic), None)
        if first is not None and first.start != str(start):
            raise FlowError(
                f'topic "{topic}" has start={start} now, but the job has read it from {first.start}',
                where="the front register in ZooKeeper",
                way_out=f"set start={first.start} again, or give the job another name: a new job chooses its own start",
            )
    for topic, source in _sources(plan).items():
        first = next((entry for entry in register.entries if entry.partition.source == topic), None)
        if first is not None and source.preload != (first.preloaded is not None):
            before, now = ("without ", "with ") if source.preload else ("with ", "without ")
            raise FlowError(
                f'topic "{topic}" is now read {now}preload=True, but the job has read it {before}it',
                where="the front register in ZooKeeper",
                way_out="set preload as before, or give the job another name: a new job chooses its own start",
            )


def first_offsets(plan: Plan, conf: Conf, topics: tuple[Topic, ...], earliest: Mapping[Place, int]) -> dict[Place, int]:
    """The first offset that each partition is read from, of topics that the job has not read before.

    Args:
        plan: What will run.
        conf: Where Kafka is.
        topics: The topics.
        earliest: The first offset of each partition that is still there.

    Raises:
        FlowError: an offset that a source names is not there, or a moment is still to come.
        ServiceUnavailable: Kafka does not answer.
    """
    kafka, starts = Topics(conf.kafka), starts_of(plan)
    found: dict[Place, int] = {}
    for topic in topics:
        start, there = starts[topic.name], _of(topic, earliest)
        if start == Start():
            found |= there
            continue
        ends = _of(topic, kafka.ends([topic]))
        if start.moment is not None:
            refuse_to_come(topic, start.moment, datetime.now(UTC))
            since = _of(topic, kafka.since([topic], round(start.moment.timestamp() * 1000)))
            found |= {place: ends[place] if offset < 0 else offset for place, offset in since.items()}
        elif start.offsets is not None:
            found |= {**there, **_named(topic, start.offsets, there, ends)}
        else:
            found |= ends
    return found


def refuse_to_come(topic: Topic, moment: datetime, now: datetime, *, word: str = "start") -> None:
    """Nobody knows yet which offset such a moment will have (errors: FlowError)."""
    if moment > now + timedelta(seconds=AHEAD_S):
        read = f"from start={moment.isoformat()} on" if word == "start" else f"to stop={moment.isoformat()}"
        other = 'start="latest" for what comes from now on' if word == "start" else 'stop="now" for what is there'
        raise FlowError(
            f'topic "{topic.name}" is to be read {read}, but it is only {now.isoformat()} now',
            way_out=f"name a moment in the past, or write {other}",
        )


def _named(
    topic: Topic, offsets: tuple[tuple[int, int], ...], there: Mapping[Place, int], ends: Mapping[Place, int]
) -> dict[Place, int]:
    named = {(topic.name, partition): offset for partition, offset in offsets}
    for place, offset in named.items():
        if place not in there or not there[place] <= offset <= ends[place]:
            have = f"has {there[place]} to {ends[place]}" if place in there else "is not there"
            raise FlowError(
                f'start= names offset {offset} of partition {place[1]} of topic "{topic.name}", which {have}',
                way_out="name existing offsets; partitions without one are read from their beginning",
            )
    return named


def _of(topic: Topic, offsets: Mapping[Place, V]) -> dict[Place, V]:
    return {place: value for place, value in offsets.items() if place[0] == topic.name}
