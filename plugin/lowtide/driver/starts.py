"""Where sources are read from at a job's first start: resolved once, and kept in the front register."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from lowtide.conf import Conf
from lowtide.connectors.topics import Topic, Topics
from lowtide.core.fronts.register import FrontRegister
from lowtide.errors import FlowError
from lowtide.flow.plan import Plan
from lowtide.flow.start import Start
from lowtide.flow.steps import Read

__all__ = ["first_offsets", "refuse_other_starts", "starts_of"]

V = TypeVar("V")
AHEAD_S = 60
"""By how much a broker's clock may be ahead of this machine's, which stands for it before the job has begun."""
Place = tuple[str, int]
"""A topic and a partition."""


def starts_of(plan: Plan) -> dict[str, Start]:
    """By topic where it is read from; sources of one topic say the same."""
    return {v.step.source.topic: v.step.source.start for v in plan.sources() if isinstance(v.step, Read)}


def refuse_other_starts(plan: Plan, register: FrontRegister) -> None:
    """Hold what a start says against what the first one said: what was read since hangs on it (errors: FlowError)."""
    for topic, start in starts_of(plan).items():
        first = next((entry for entry in register.entries if entry.partition.source == topic), None)
        if first is not None and first.start != str(start):
            raise FlowError(
                f'topic "{topic}" is now to be read from start={start}, and the job has read it from {first.start} on',
                where="the front register in ZooKeeper",
                way_out=f"say start={first.start} again, or give the job another name: it then starts anew",
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
            _refuse_to_come(topic, start.moment, datetime.now(UTC))
            since = _of(topic, kafka.since([topic], round(start.moment.timestamp() * 1000)))
            found |= {place: ends[place] if offset < 0 else offset for place, offset in since.items()}
        elif start.offsets is not None:
            found |= {**there, **_named(topic, start.offsets, there, ends)}
        else:
            found |= ends
    return found


def _refuse_to_come(topic: Topic, moment: datetime, now: datetime) -> None:
    """No record is there from such a moment on, and what comes until then would be read all the same."""
    if moment > now + timedelta(seconds=AHEAD_S):
        raise FlowError(
            f'topic "{topic.name}" is to be read from start={moment.isoformat()} on, and it is {now.isoformat()} now',
            way_out='name a moment that has passed, or say start="latest" for what comes from now on',
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
                way_out="name offsets that are there; partitions that are not named are read from their beginning",
            )
    return named


def _of(topic: Topic, offsets: Mapping[Place, V]) -> dict[Place, V]:
    return {place: value for place, value in offsets.items() if place[0] == topic.name}
