"""Makes messages of kept answers, and answers of messages."""

from __future__ import annotations

from typing import Any

import msgspec

from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import delivered_ms
from lowtide.core.operators.plain.sink import Message
from lowtide.core.operators.questions import Answer
from lowtide.flow.plan.lane_partitions import partition_of_lane
from lowtide.flow.plan.own_topics import answers_topic
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Answers, CallFailed

ASKED = "lowtide.asked"
"""The header of the digest of the record that was asked about."""
FAILED = "lowtide.failed"
"""The header of a failure, whose value is a `CallFailed` as JSON."""


class AnswersEncoder:
    """The encoder of a call's answers: keyed by the packed order key of the record, with its log time.

    Args:
        plan: The plan.
        vertex: What keeps the answers.
    """

    def __init__(self, plan: Plan, vertex: Vertex[Answers]) -> None:
        self._topic = answers_topic(plan.name, plan.vertices[vertex.parents[0]].name)
        self._slack_ms = plan.slack_ms
        self._partitions = partition_of_lane(plan.lane_counts)

    def encode(self, lane: int, pieces: list[Piece]) -> list[Message]:
        """Return the answers of a lane's pieces as messages, in order."""
        messages: list[Message] = []
        partition = self._partitions[lane]
        for piece in pieces:
            timestamp = delivered_ms(piece.tick, self._slack_ms)
            for at, answer in zip(piece.ats, piece.rows, strict=True):
                failure = answer.failure
                value = answer.value if failure is None else msgspec.json.encode(failure)
                headers: Any = [(ASKED, answer.asked)]
                if failure is not None:
                    headers.append((FAILED, b"1"))
                messages.append((self._topic, partition, at, value, timestamp, headers))
        return messages


def answer_of(message: Any) -> tuple[bytes, Answer]:
    """Return the packed order key of a record, and its answer."""
    headers = dict(message.headers() or ())
    asked = headers.get(ASKED) or b""
    if FAILED in headers:
        return message.key(), Answer(b"", msgspec.json.decode(message.value(), type=CallFailed), asked)
    return message.key(), Answer(message.value(), asked=asked)
