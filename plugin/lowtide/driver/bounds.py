"""The offsets from which and up to which a job reads its sources: resolved at its first start, kept in the register."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lowtide.conf import Conf
from lowtide.connectors.topics import Topic, Topics
from lowtide.core.fronts.register import FrontRegister
from lowtide.errors import FlowError
from lowtide.flow.formats.bounds import EARLIEST, Bound
from lowtide.flow.formats.endpoints import KafkaSource
from lowtide.flow.plan.plan import Plan

AHEAD_S = 60
"""Limit on a broker's clock being ahead of this machine's, which replaces it before the job has begun."""
Offsets = Mapping[tuple[str, int], int]
"""Offsets by topic and partition."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of topics that the job has not read before.

    Attributes:
        firsts: The first offset that each partition is read from.
        stops: The first that is not read, of partitions that end.
        preloaded: The current ends of partitions that are preloaded.
    """

    firsts: Offsets
    stops: Offsets
    preloaded: Offsets


def bounds_of(plan: Plan, conf: Conf, topics: tuple[Topic, ...], earliest: Offsets) -> Bounds:
    """Return the bounds of topics that the job has not read before; the arguments and errors are `first_offsets`'."""
    firsts = first_offsets(plan, conf, topics, earliest)
    preloaded = [topic for topic in topics if _sources(plan)[topic.name].preload]
    return Bounds(
        firsts,
        stops=last_offsets(plan, conf, topics, {**earliest, **firsts}),
        preloaded=Topics(conf.kafka).ends(preloaded) if preloaded else {},
    )


def starts_of(plan: Plan) -> dict[str, Bound]:
    """By topic where it is read from; sources of one topic say the same."""
    return {v.step.source.topic: v.step.source.start for v in plan.sources()}


def stops_of(plan: Plan) -> dict[str, Bound]:
    """By topic where it ends, of those that do; sources of one topic say the same."""
    found = {v.step.source.topic: v.step.source.stop for v in plan.sources()}
    return {topic: stop for topic, stop in found.items() if stop is not None}


def has_an_end(plan: Plan) -> bool:
    """Return whether all sources end, and so the job does."""
    topics = {vertex.step.source.topic for vertex in plan.sources()}
    return topics == stops_of(plan).keys()


def _sources(plan: Plan) -> dict[str, KafkaSource]:
    """By topic a source that reads it."""
    return {v.step.source.topic: v.step.source for v in plan.sources()}


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


def first_offsets(plan: Plan, conf: Conf, topics: tuple[Topic, ...], earliest: Offsets) -> dict[tuple[str, int], int]:
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
    found: dict[tuple[str, int], int] = {}
    for topic in topics:
        start, there = starts[topic.name], _of(topic, earliest)
        if start == EARLIEST:
            found |= there
            continue
        ends = _of(topic, kafka.ends([topic]))
        if start.moment is not None:
            refuse_to_come(topic, start.moment, datetime.now(UTC))
            since = _of(topic, kafka.since([topic], round(start.moment.timestamp() * 1000)))
            found |= {at: ends[at] if offset < 0 else offset for at, offset in since.items()}
        elif start.offsets is not None:
            found |= {**there, **_named("start", topic, start.offsets, there, ends)}
        else:
            found |= ends
    return found


def last_offsets(plan: Plan, conf: Conf, topics: tuple[Topic, ...], firsts: Offsets) -> dict[tuple[str, int], int]:
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
    found: dict[tuple[str, int], int] = {}
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
            ends = {at: whole[at] if offset < 0 else offset for at, offset in since.items()}
        elif stop.offsets is not None:
            ends |= _named("stop", topic, stop.offsets, firsts, ends)
        # What was asked for may have begun after it ends: then there is nothing to read.
        found |= {at: max(offset, firsts[at]) for at, offset in ends.items()}
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
    argument: str, topic: Topic, offsets: tuple[tuple[int, int], ...], firsts: Offsets, ends: Offsets
) -> dict[tuple[str, int], int]:
    """Return the offsets of the partitions that a user names (errors: FlowError)."""
    named = {(topic.name, partition): offset for partition, offset in offsets}
    others = "are read from their beginning" if argument == "start" else "end where they do now"
    for at, offset in named.items():
        if at not in ends or not firsts[at] <= offset <= ends[at]:
            have = f"is read from {firsts[at]} on and ends at {ends[at]}" if at in ends else "is not there"
            raise FlowError(
                f'{argument}= names offset {offset} of partition {at[1]} of topic "{topic.name}", which {have}',
                way_out=f"name existing offsets; partitions without one {others}",
            )
    return named


def _of(topic: Topic, offsets: Offsets) -> dict[tuple[str, int], int]:
    return {at: value for at, value in offsets.items() if at[0] == topic.name}


def _to(said: str) -> str:
    return f"to stop={said}" if said else "without stop="
