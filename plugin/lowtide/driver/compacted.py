"""Compacted topics: where they are refused, since read again they would not give the records of the life before (R3).

A table takes only the newest row of each key, so it may lose older ones, but not those that records still have to see:
what a life reads again must not have been compacted since. Compaction leaves alone what is younger than
min.compaction.lag.ms, and drops nothing for the sake of it. So what is read again has to be younger; that commits are
taken twice as often sees to it. What is preloaded stands at one place, where only the newest rows count, and these
compaction keeps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from lowtide.conf import KafkaConf
from lowtide.connectors.topics import Topic, Topics
from lowtide.core.fronts.register import FrontEntry, FrontRegister, SourceTooShort
from lowtide.errors import FlowError
from lowtide.flow.plan.plan import Plan

YOUNG = 0.75
"""Of the lag: the rest is left for reading what is young enough when a life begins."""
Place = tuple[str, int]


def is_compacted(topic: Topic) -> bool:
    """Return whether Kafka may drop older records of a key."""
    return "compact" in topic.cleanup


def least_lag_ms(max_commit_age_s: float) -> int:
    """Return the min.compaction.lag.ms that a compacted topic needs at least: twice the age of a commit."""
    return round(2_000 * max_commit_age_s)


def refuse_compacted(plan: Plan, topics: Sequence[Topic], max_commit_age_s: float) -> None:
    """Refuse compacted topics but those of tables that say so and have a lag (errors: FlowError)."""
    said = {v.step.source.topic for v in plan.sources() if v.step.source.compacted}
    for topic in filter(is_compacted, topics):
        where = f"its cleanup.policy is {topic.cleanup}"
        if topic.name not in said:
            raise FlowError(
                f'topic "{topic.name}" is compacted: reading it again would not give the same records (R3)',
                where=where,
                way_out="read a topic with cleanup.policy=delete; or, if its records are the rows of a table, write "
                "lt.kafka(..., compacted=True)",
            )
        need_ms = least_lag_ms(max_commit_age_s)
        if not need_ms or topic.compaction_lag_ms < need_ms:
            raise FlowError(
                f'topic "{topic.name}" is compacted after {topic.compaction_lag_ms:,} ms, and '
                + (
                    f"the job may have to read the last {need_ms:,} ms again"
                    if need_ms
                    else "the job takes no commits of its own"
                ),
                where=f"{where}, its min.compaction.lag.ms {topic.compaction_lag_ms}, and [snapshots] max_commit_age_s "
                f"{max_commit_age_s:g}",
                way_out=f"set the topic's min.compaction.lag.ms to {need_ms} at least, or max_commit_age_s to "
                f"{topic.compaction_lag_ms / 2_000:g} at most"
                if need_ms
                else "set max_commit_age_s, and the topic's min.compaction.lag.ms to twice as much",
            )


def refuse_compacted_replay(
    kafka: KafkaConf,
    register: FrontRegister,
    topics: Sequence[Topic],
    offsets: Mapping[int, int],
    *,
    commit: bool,
    delivered: bool,
) -> None:
    """See that compaction has left all that a life reads again and the one before has read (errors: SourceTooShort).

    Args:
        kafka: Where Kafka is.
        register: The fronts.
        topics: The sources.
        offsets: By front, the offset of the commit that the life continues from.
        commit: Whether there is one.
        delivered: True if anything depends on what was read.
    """
    compacted = [topic for topic in topics if is_compacted(topic)]
    if not compacted or not (commit or delivered):
        return
    asked, ends = Topics(kafka), Topics(kafka).ends(compacted)
    now_ms = time.time_ns() // 1_000_000
    young: dict[Place, int] = {}
    for topic in compacted:
        since = asked.since([topic], now_ms - round(YOUNG * topic.compaction_lag_ms))
        young |= {partition: ends[partition] if offset < 0 else offset for partition, offset in since.items()}
    faults = replay_faults(register.entries, offsets, young)
    if faults:
        raise SourceTooShort(
            "; ".join(faults),
            where="a compacted topic may have lost rows that the previous life read",
            way_out="start a job under another name, which reads the tables from scratch, with preload=True if it "
            "needs them from the beginning; and keep commits younger than half of min.compaction.lag.ms",
        )


def replay_faults(entries: Sequence[FrontEntry], offsets: Mapping[int, int], young: Mapping[Place, int]) -> list[str]:
    """Return the parts that would be read again although they may be compacted by now.

    Args:
        entries: The fronts.
        offsets: The commit's offsets by front; the register has the others.
        young: By partition, the first offset from which all records are too young for compaction.
    """
    found = []
    for entry in entries:
        safe = young.get((entry.partition.source, entry.partition.partition))
        again = max(offsets.get(entry.number, entry.offset), entry.preloaded or 0)
        if safe is not None and again < safe:
            found.append(f"{entry.partition} is read again from offset {again}, but is compacted up to {safe}")
    return found
