"""Failures: records that a step could not handle, as errors and as dead letters."""

from __future__ import annotations

import json
import reprlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.keys import plain
from lowtide.core.operators.order.order import CLOCK, OrderKey, Position, delivered_ms, position_of, tick_of
from lowtide.errors import FrameTooLarge, LifeEnded, LowtideError, RecordRefused, UserCodeFailed
from lowtide.flow.formats.endpoints import Sink
from lowtide.flow.formats.json_writable import json_rule, json_writable, sayable
from lowtide.flow.formats.writable import Writable
from lowtide.flow.plan.plan import Plan, Vertex, is_of
from lowtide.flow.steps.steps import Write
from lowtide_snapshots.keys.hashing import hash_unit

_PACKAGE = str(Path(__file__).parents[3])
_NOT_ITERABLE = "object is not iterable"
_TRACEBACK_LIMIT_FRAMES = 30
_TRACEBACK_LIMIT_CHARACTERS = 8_000


@dataclass(frozen=True, slots=True)
class Failure:
    """One record that failed.

    Attributes:
        index: Its index in the batch that the step was given.
        record: The record the step was given, or its result if that is what does not fit.
        error: The error, in one line.
        traceback_text: The user's part of the traceback; empty if nothing was raised.
        too_large: True if the record is too large.
        way_out: What to do if dead letters do not help, as such a failure always ends the job. Else empty.
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
        position: The record's position in the log.
        message_key: At level 0 the key of the message that the record was made of; None for none.
    """

    noun = "record"
    """The name of what stands at the position."""
    shows = True
    """True if the error shows the record itself."""

    def __init__(self, vertex: Vertex, at: bytes | Position, what: str, record: object, **rest: str) -> None:
        """Name the record by its packed order key, or by its position alone where nothing more is known of it."""
        position = at if isinstance(at, Position) else position_of(at)
        shown = f": {shortened(record)}" if self.shows else ""
        order = "" if isinstance(at, Position) else f"; order key: {OrderKey.of(at)}"
        super().__init__(what, where=f"{vertex.site}, {self.noun} at {position}{shown}{order}", **rest)
        self.vertex = vertex.name
        self.position = position
        self.message_key: bytes | None = None
        self._step = vertex
        self._record = record

    def name_front(self, partition: str) -> None:
        """Replace the front's number by the source partition's name; at a clock do nothing."""
        if self.position.front != CLOCK:
            self.where = self.where.replace(str(self.position), f"{partition}, offset {self.position.sequence}", 1)

    def name_clock(self, plan: Plan) -> None:
        """Replace a clock's number by its step's name; at a record of the log do nothing."""
        if self.position.front == CLOCK:
            self.where = self.where.replace(str(self.position), clock_of(plan, self.position), 1)

    def name_key(self, plan: Plan) -> None:
        """Name the record's key, as far as it is known: of a message its own, behind a `key_by` its columns."""
        if self.message_key is not None:
            self.where += f"; key: {shortened(self.message_key)}"
        elif columns := _keys_of(plan, self._step, self._record):
            self.where += "; key: " + ", ".join(f"{name} = {shortened(value)}" for name, value in columns.items())


class UserError(AtRecord, UserCodeFailed):
    """Correct the function of the named step, or give the flow a sink for dead letters."""

    def __init__(self, vertex: Vertex, at: bytes | Position, failure: Failure) -> None:
        super().__init__(
            vertex,
            at,
            f'step "{vertex.name}": {failure.error}',
            failure.record,
            way_out=failure.way_out
            or "correct the function, or send such records to Flow(..., dead_letters=kafka(topic, raw()))",
            details=failure.traceback_text,
        )


class MessageRefused(AtRecord, RecordRefused):
    """Correct the source's dataclass or format, or give the flow a sink for dead letters."""

    noun = "message"

    def __init__(self, vertex: Vertex, at: bytes | Position, failure: Failure) -> None:
        super().__init__(
            vertex,
            at,
            f'source "{vertex.name}": message refused: {failure.error}',
            failure.record,
            way_out="correct the dataclass, or send such messages to Flow(..., dead_letters=kafka(topic, raw()))",
        )


class NotWritable(AtRecord, RecordRefused):
    """Correct the step before the sink or the type that it writes, or give the flow a sink for dead letters."""

    def __init__(self, vertex: Vertex[Write], at: bytes | Position, failure: Failure) -> None:
        super().__init__(
            vertex,
            at,
            f'sink "{vertex.name}", {vertex.step.sink.place}: a record {failure.error}',
            failure.record,
            way_out=failure.way_out
            or "correct the step before it, or write another type, or send such records to "
            "Flow(..., dead_letters=kafka(topic, raw()))",
        )


class CallGivenUp(AtRecord, LifeEnded):
    """See to the service, or give the call more retries, another value when it fails, or a dead letter."""

    def __init__(self, vertex: Vertex, at: bytes | Position, failure: Failure) -> None:
        super().__init__(
            vertex,
            at,
            f'call "{vertex.name}": {failure.error}',
            failure.record,
            way_out="see to the service, and recover the job: it asks again. If such records are to go on, give the "
            'call more retries, or failed="value" or "letter"',
            details=failure.traceback_text,
        )


class CallChanged(AtRecord, UserCodeFailed):
    """Take back the change of the steps before a call until the job has passed this record, or redeliver."""

    def __init__(self, vertex: Vertex, at: bytes | Position, record: Any, what: str) -> None:
        super().__init__(
            vertex,
            at,
            f'call "{vertex.name}": {what}',
            record,
            way_out="if a step before the call was changed, take that back, correct what comes after the call instead, "
            "and change it once a snapshot is committed beyond this record; or `lowtide recover --redeliver`, which "
            "asks about everything again. If nothing was changed, a step before the call is not deterministic: "
            "`lowtide check` names it",
        )


class TooLarge(AtRecord, FrameTooLarge):
    """Raise exchange.max_frame_bytes, make the record smaller, or give the flow a sink for dead letters."""

    shows = False

    def __init__(self, vertex: Vertex, at: bytes | Position, failure: Failure) -> None:
        super().__init__(
            vertex,
            at,
            f'"{vertex.name}": a record {failure.error}',
            failure.record,
            way_out="raise exchange.max_frame_bytes in the configuration, make the record smaller, or send such "
            "records to Flow(..., dead_letters=kafka(topic, raw()))",
        )


def _keys_of(plan: Plan, vertex: Vertex, record: object) -> dict[str, object]:
    """Return the key of a record that a step was given, by its columns; empty where it is not known.

    It is known right behind an exchange, at the exchange itself, and at a sink whose messages have a key. Further on,
    a step between may have changed the columns.
    """
    columns = vertex.step.by if vertex.back is None else ()
    if is_of(vertex, Write) and vertex.step.sink.key_column is not None:
        columns = (vertex.step.sink.key_column,)
    elif not columns and vertex.parents:
        columns = plan.vertices[vertex.parents[0]].step.by
    if type(record) is not vertex.takes:
        return {}
    return {column: getattr(record, column) for column in columns if hasattr(record, column)}


def clock_of(plan: Plan, position: Position) -> str:
    """Describe a position of the clock."""
    return f'the clock of step "{plan.vertices[position.sequence // plan.units].name}"'


def unreadable(index: int, value: bytes | None, format_: object, record: type, reason: str) -> Failure:
    """Make the failure of a message that is not a record."""
    return Failure(index, value, f"cannot be read as {format_} of {record.__qualname__}: {reason}")


def unwritable(index: int, record: object, sink: Sink) -> Failure | None:
    """Make the failure of a record that a sink cannot write; None if it can."""
    what = sink.writable.fault(record)
    return None if what is None else Failure(index, record, f"cannot be written as {sink.form}: {what}")


def astray(index: int, record: object, sink: Sink, unit: int, units: int) -> Failure | None:
    """Make the failure of a record that did not come by its key, at a sink that needs it so; None if it did.

    Args:
        index: The record's place in its batch.
        record: The record.
        sink: The sink.
        unit: The hash unit by which the record came.
        units: Number of hash units.
    """
    column = sink.key_column
    if not sink.by_key or column is None or hash_unit([plain(getattr(record, column))], units) == unit:
        return None
    what = f"came by another key than its {column}, so that the order of the records of one {column} would be random"
    return Failure(index, record, what, way_out=f'put .key_by("{column}") right before the write')


def raised(index: int, record: object, error: BaseException) -> Failure:
    """Make the failure of a call that raised, with the traceback below our own frames."""
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
    """Write a record for people: its repr with long parts left out; never raises."""
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = 200
    try:
        return shortener.repr(record)
    except Exception:  # noqa: BLE001 - a __repr__ of the user's
        return f"<{type(record).__qualname__} whose repr raises>"


@dataclass(frozen=True, slots=True)
class Dead:
    """A record for the dead letters.

    Attributes:
        vertex: The name of the step that failed.
        position: The position of the record's source message in the log; the way back to it.
        timestamp: The start of the record's tick, in ms.
        error: The error, in one line.
        key: At level 0 the original message's key; after an exchange, where the message is not known any more, None.
        value: At level 0 the original message's value; after an exchange the failed step's record as JSON. Of what is
            larger than a frame only the first part.
        headers: At level 0 the original message's headers, packed as they came; else None.
    """

    vertex: str
    position: Position
    timestamp: int
    error: str
    key: bytes | None
    value: bytes | None
    headers: bytes | None = None

    def describe(self) -> list[tuple[str, bytes]]:
        """Return the headers that the dead letter adds to the original."""
        return [
            ("lowtide.vertex", self.vertex.encode()),
            ("lowtide.front", str(self.position.front).encode()),
            ("lowtide.offset", str(self.position.sequence).encode()),
            ("lowtide.error", self.error.encode("utf-8", "replace")),
        ]


def as_json(record: object) -> bytes:
    """Write a record as JSON, or as text if that fails: its fields may hold anything.

    Values that JSON would change are written as Python shows them.
    """
    try:
        if _json_says(record):
            return msgspec.json.encode(record)
        plain = sayable(msgspec.to_builtins(record, builtin_types=(datetime,)))
        return json.dumps(plain, default=_instant, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return shortened(record).encode("utf-8", "replace")


def _instant(moment: datetime) -> str:
    """A time as JSON has it, also at an offset of seconds."""
    return moment.isoformat().replace("+00:00", "Z")


_by_json: Callable[[Any], Writable] = json_writable


def _json_says(record: Any) -> bool:
    """True if JSON can write a record or a state whose fields are of their types."""
    if isinstance(record, dict):
        return all(map(_json_says, record.values()))
    if isinstance(record, list | tuple):
        return all(map(_json_says, record))
    rule = json_rule(type(record))
    if rule is not None:
        return bool(rule.fits(record))
    try:
        return not is_dataclass(record) or _by_json(type(record)).fault(record) is None
    except Exception:  # noqa: BLE001 - its fields may hold anything
        return True


@dataclass(frozen=True, slots=True)
class Original:
    """The message that a record of level 0 was made of: its key, value and packed headers."""

    key: bytes | None
    value: bytes | None
    headers: bytes | None


@dataclass(frozen=True, slots=True)
class Fault:
    """One record that failed at a step.

    Attributes:
        vertex: The step.
        failure: What happened.
        original: The message it was made of; None after an exchange.
    """

    vertex: Vertex
    failure: Failure
    original: Original | None


def faults(vertex: Vertex, batch: Batch, failures: Sequence[Failure], rows: SourceRows | None) -> Batch:
    """Make a batch of `Fault`s.

    Args:
        vertex: The step that failed.
        batch: The records the step was given; a failure's index says which.
        failures: At least one.
        rows: The messages at level 0.
    """
    found = batch.pick([failure.index for failure in failures])
    made = [
        Fault(vertex, failure, None if rows is None else original_of(rows, position_of(at).sequence))
        for failure, at in zip(failures, found.ats, strict=True)
    ]
    return found.with_rows(made)


def ends_life(plan: Plan, fault: Fault) -> bool:
    """Return whether a fault ends the life, unless it is taken back; else it becomes a dead letter."""
    return plan.dead_letters is None or fault.vertex.step.batched or bool(fault.failure.way_out)


def error_of(at: bytes, fault: Fault) -> AtRecord:
    """Return the error that ends a life at a fault with this order key."""
    error = failed_at(fault.vertex, at, fault.failure)
    error.message_key = None if fault.original is None else fault.original.key
    return error


def failed_at(vertex: Vertex, at: bytes | Position, failure: Failure) -> AtRecord:
    """Return the error that ends the job at a failure, if there are no dead letters."""
    if failure.too_large:
        return TooLarge(vertex, at, failure)
    if vertex.step.reads:
        return MessageRefused(vertex, at, failure)
    return NotWritable(vertex, at, failure) if is_of(vertex, Write) else UserError(vertex, at, failure)


def letters(plan: Plan, ats: Sequence[bytes], found: Sequence[Fault]) -> list[Dead]:
    """Make dead letters of faults that do not end the life, in order.

    Args:
        plan: The plan.
        ats: Their order keys.
        found: The faults, none of them taken back.
    """
    made = []
    for at, fault in zip(ats, found, strict=True):
        original = fault.original or Original(None, as_json(fault.failure.record), None)
        made.append(
            Dead(
                fault.vertex.name,
                position_of(at),
                delivered_ms(tick_of(at), plan.slack_ms),
                fault.failure.error,
                original.key,
                original.value,
                original.headers,
            )
        )
    return made


def original_of(rows: SourceRows, offset: int) -> Original:
    """Return the message with this offset."""
    index = rows.index_of(offset)
    headers = None if rows.headers is None else rows.headers[index]
    return Original(rows.keys[index], rows.values[index], headers or None)  # Whatever came beside it in its batch.
