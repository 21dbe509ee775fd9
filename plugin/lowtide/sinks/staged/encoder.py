"""Makes of records, and of marks, the messages of a staged log."""

from __future__ import annotations

from dataclasses import replace

from lowtide.core.operators.order.bundle import Bundle
from lowtide.core.operators.plain.sink import Message, SinkEncoder
from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.formats.formats import JsonFormat
from lowtide.flow.plan.lane_partitions import partition_of_lane
from lowtide.flow.plan.own_topics import staged_topic
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Write

MARK = "lowtide.mark"
"""The header of a mark: a message without key and value that says up to which log time, in ms, its lane is complete."""


class StagedEncoder:
    """The encoder of a staged sink's records: as JSON, each with its log time as the message's.

    Args:
        plan: The plan.
        vertex: What writes.
    """

    def __init__(self, plan: Plan, vertex: Vertex[Write]) -> None:
        sink = vertex.step.sink
        self._topic = staged_topic(plan.name, vertex.name)
        self._slack_ms = plan.slack_ms
        self._partitions = partition_of_lane(plan.lane_counts)
        log = KafkaSink(self._topic, JsonFormat(sink.record), sink.key_column)
        staged = replace(vertex, step=replace(vertex.step, sink=log))
        by_unit = [self._partitions[lane] for lane in plan.lane_of_unit().tolist()]
        self.encode = SinkEncoder(staged, plan.slack_ms, by_unit).encode

    def marks(self, bundle: Bundle) -> list[Message]:
        """Return the messages that say that nothing of the bundle's lanes below its mark follows, one for each lane."""
        if bundle.mark is None:
            return []
        said = str(bundle.mark * self._slack_ms).encode()
        lanes = range(bundle.lane, bundle.lane + max(1, bundle.width))
        return [(self._topic, self._partitions[lane], None, None, 0, [(MARK, said)]) for lane in lanes]
