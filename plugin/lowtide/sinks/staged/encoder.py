"""Makes of records, and of marks, the messages of a staged log."""

from __future__ import annotations

from dataclasses import replace

from lowtide.core.operators.plain.sink import Message, SinkEncoder
from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.formats.formats import JsonFormat
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
        log = KafkaSink(self._topic, JsonFormat(sink.record), sink.key_column)
        self.encode = SinkEncoder(replace(vertex, step=replace(vertex.step, sink=log)), plan.slack_ms).encode

    def mark(self, lane: int, tick: int) -> Message:
        """Return the message that says that nothing of the lane below a tick follows."""
        return self._topic, lane, None, None, 0, [(MARK, str(tick * self._slack_ms).encode())]
