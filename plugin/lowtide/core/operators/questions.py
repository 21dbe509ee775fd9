"""Questions to outside services, and their answers, as values."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

from lowtide.core.operators.order.order import CLOCK, position_of
from lowtide.flow.schema.fields import encode_rows
from lowtide.flow.steps.steps import CallFailed

TICK_BYTES = 8
ASKED_BYTES = 8


class Question(NamedTuple):
    """A record to be asked about.

    Attributes:
        ask: The step's vertex.
        at: The record's packed order key, by which it is answered.
        row: The record.
    """

    ask: int
    at: bytes
    row: Any


class Answer(NamedTuple):
    """An answer as it is kept.

    Attributes:
        value: The answer, encoded by `encode_rows` in a list of its own; empty if there is none.
        failure: Why there is none.
        asked: `asked_of` the record that was asked about; empty if that is not known.
    """

    value: bytes
    failure: CallFailed | None = None
    asked: bytes = b""


class Answered(NamedTuple):
    """The answer to a question.

    Attributes:
        at: The question's.
        answer: The answer.
    """

    at: bytes
    answer: Answer


def asked_of(row: Any) -> bytes:
    """Return the digest of a record that is asked about, 8 bytes: another record at its place has another one."""
    return blake2b(encode_rows([row]), digest_size=ASKED_BYTES).digest()


def place_of(at: bytes) -> bytes:
    """Return the name of a record within a call: its order key, without the tick where it has another name."""
    return at if position_of(at).front == CLOCK else at[TICK_BYTES:]


def call_key(job_id: str, step: str, at: bytes) -> str:
    """Return the key of a call: 32 characters, the same in every life, as the record's place in its log is.

    Args:
        job_id: The job's id for good.
        step: The step's name.
        at: The record's packed order key.

    Example:
        >>> len(call_key("1f0c", "score", OrderKey(7, 0, 41).packed()))
        32
    """
    return blake2b(f"{job_id}\n{step}\n".encode() + place_of(at), digest_size=16).hexdigest()
