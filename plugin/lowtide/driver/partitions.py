"""The number of partitions that a sink writes: decided with its first delivery, as a key stays in its partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lowtide.errors import FlowError
from lowtide.flow.plan.plan import Plan
from lowtide.sinks.contract import LaneName
from lowtide.wording import count_of


def written_partitions(
    plan: Plan, known: Mapping[str, int], found: Mapping[str, int], delivered: Collection[LaneName]
) -> dict[str, int]:
    """Return how many partitions of its topic each sink writes, by topic; those of earlier sinks too.

    A record's partition follows from its hash unit and this number. A sink that is new writes all partitions, but no
    more than the job has lanes. One with a delivery of an earlier version had a partition for each lane.

    Args:
        plan: The plan.
        known: What an earlier start has decided.
        found: How many partitions the topics have.
        delivered: The lanes and strands to which something was delivered.

    Raises:
        FlowError: a topic has fewer partitions than its sink writes.
    """
    written = dict(known)
    by_lane = {name.sink for name in delivered if not name.end}
    for vertex, sink in plan.kafka_sinks():
        has = found[sink.topic]
        fresh = plan.lanes if vertex.name in by_lane else min(plan.lanes, has)
        wanted = written.setdefault(sink.topic, fresh)
        if has < wanted:
            raise FlowError(
                f'topic "{sink.topic}" has {count_of(has, "partition")}, but the job has written {wanted} of them: '
                "keys would move to other partitions",
                where=f'sink "{vertex.name}"',
                way_out=f"give the topic {count_of(wanted, 'partition')} again; or give the flow another name and "
                "another output topic: a new job writes the partitions that there are",
            )
    return written
