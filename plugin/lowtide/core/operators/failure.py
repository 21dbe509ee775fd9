"""A record that a step could not handle."""

from __future__ import annotations

import reprlib
import traceback
from dataclasses import dataclass
from pathlib import Path

from lowtide.core.operators.order import Position
from lowtide.errors import FrameTooLarge, LowtideError, RecordRefused, UserCodeFailed
from lowtide.flow.plan import Vertex

_PACKAGE = str(Path(__file__).parents[2])
_NOT_ITERABLE = "object is not iterable"
_TRACEBACK_LIMIT_FRAMES = 30
_TRACEBACK_LIMIT_CHARACTERS = 8_000


@dataclass(frozen=True, slots=True)
class Failure:
    """One record that failed.

    Attributes:
        index: Its index in the batch that the step was given.
        record: The record the step was given, or its result if that is what does not fit.
        error: What happened, in one line.
        traceback_text: The user's part of the traceback; empty where nothing was raised.
        too_large: Whether it is the record's size that does not fit.
        way_out: What to do where dead letters are no way out: such a failure ends the job in any case. Else empty.
    """

    index: int
    record: object
    error: str
    traceback_text: str = ""
    too_large: bool = False
    way_out: str = ""


class AtRecord(LowtideError):
    """A failure at one record of the log.

    Attributes:
        vertex: The step's name.
        position: Where the record stands in the log.
    """

    def __init__(self, vertex: Vertex, position: Position, what: str, **rest: str) -> None:
        super().__init__(what, **rest)
        self.vertex = vertex.name
        self.position = position

    def name_front(self, partition: str) -> None:
        """Say the source partition's name where so far its front's number stands."""
        self.where = self.where.replace(str(self.position), f"{partition}, offset {self.position.sequence}", 1)


class UserError(AtRecord, UserCodeFailed):
    """Correct the function of the named step, or give the flow a sink for dead letters."""

    def __init__(self, vertex: Vertex, position: Position, failure: Failure) -> None:
        super().__init__(
            vertex,
            position,
            f'step "{vertex.name}": {failure.error}',
            where=f"{vertex.site}, record at {position}: {shortened(failure.record)}",
            way_out=failure.way_out
            or "correct the function, or let such records go to Flow(..., dead_letters=kafka(topic, raw()))",
            traceback_text=failure.traceback_text,
        )


class MessageRefused(AtRecord, RecordRefused):
    """Correct the source's dataclass or format, or give the flow a sink for dead letters."""

    def __init__(self, vertex: Vertex, position: Position, failure: Failure) -> None:
        super().__init__(
            vertex,
            position,
            f'source "{vertex.name}": a message {failure.error}',
            where=f"{vertex.site}, message at {position}: {shortened(failure.record)}",
            way_out="correct the dataclass, or let such messages go to Flow(..., dead_letters=kafka(topic, raw()))",
        )


class TooLarge(AtRecord, FrameTooLarge):
    """Raise exchange.max_frame_bytes, make the record smaller, or give the flow a sink for dead letters."""

    def __init__(self, vertex: Vertex, position: Position, failure: Failure) -> None:
        super().__init__(
            vertex,
            position,
            f'"{vertex.name}": a record {failure.error}',
            where=f"{vertex.site}, record at {position}",
            way_out="raise exchange.max_frame_bytes in the configuration, make the record smaller, or let such records "
            "go to Flow(..., dead_letters=kafka(topic, raw()))",
        )


def unreadable(index: int, value: bytes | None, format_: object, record: type, reason: str) -> Failure:
    """The failure of a message that is no record."""
    return Failure(index, value, f"cannot be read as {format_} of {record.__qualname__}: {reason}")


def raised(index: int, record: object, error: BaseException) -> Failure:
    """The failure of a call that raised, with the traceback below our own frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    if isinstance(error, StopIteration):
        return Failure(index, record, "raised StopIteration; use return, or next(..., default)")
    if trace is None and str(error).endswith(_NOT_ITERABLE):
        return Failure(index, record, f"returned {str(error).split()[0]}, expected an iterable of records")
    lines = traceback.format_exception(type(error), error, trace, limit=-_TRACEBACK_LIMIT_FRAMES)
    text = "".join(lines)[-_TRACEBACK_LIMIT_CHARACTERS:]
    return Failure(index, record, f"raised {type(error).__name__}: {error}", text)


def shortened(record: object) -> str:
    """A record for people: its repr with long parts left out; never raises."""
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 200
    try:
        return shortener.repr(record)
    except Exception:  # noqa: BLE001 - a __repr__ of the user's
        return f"<{type(record).__qualname__} whose repr raises>"
