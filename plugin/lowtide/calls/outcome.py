"""Questions and their answers."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from lowtide.flow.steps.ask import CallFailed

__all__ = ["Answered", "CallFailed", "Question"]


class Question(NamedTuple):
    """A record to ask a service about.

    Attributes:
        id: Its number, one of its own among all open questions of a host.
        key: Its call key.
        row: The record.
    """

    id: int
    key: str
    row: Any


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """A question's one answer.

    Attributes:
        id: The question's.
        value: The result as `encode_rows([result])`; None if there is none.
        failure: The reason why there is none.
    """

    id: int
    value: bytes | None = None
    failure: CallFailed | None = None
