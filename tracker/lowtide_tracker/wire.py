"""The bytes of every message, little-endian; `README.md` has them in tables.

No I/O. What does not follow the tables exactly, to the last byte, is a `ProtocolError`.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any

from lowtide_tracker.cursor import Cursor, text_bytes
from lowtide_tracker.errors import ProtocolError
from lowtide_tracker.floors import Floor
from lowtide_tracker.message_reader import HEAD, MAX_MESSAGE_BYTES
from lowtide_tracker.messages import (
    Absolute,
    Applied,
    Await,
    CloseFront,
    Fault,
    Flush,
    FrontClosed,
    FrontOpened,
    Hello,
    Message,
    Notice,
    OpenFront,
    Request,
    Subscribe,
    Unsubscribe,
    Welcome,
)

NO_WORKER = -1
DEFAULT_FEEDS = -1


class Kind(IntEnum):
    """The byte behind the length. Below 32 from clients, from 32 on from the tracker."""

    HELLO = 1
    FLUSH = 2
    ABSOLUTE = 3
    SUBSCRIBE = 4
    UNSUBSCRIBE = 5
    OPEN_FRONT = 6
    CLOSE_FRONT = 7
    AWAIT = 8
    WELCOME = 33
    APPLIED = 34
    NOTICE = 35
    FRONT_OPENED = 36
    FRONT_CLOSED = 37
    FAULT = 38


_HELLO = struct.Struct("<Qi")
_FLUSH = struct.Struct("<HHIQII")
_ACK = struct.Struct("<HqQ")
_ABSOLUTE = struct.Struct("<HHIQIIII")
_OPEN_FRONT = struct.Struct("<iqi")
_SEGMENT = struct.Struct("<H")
_COUNT = struct.Struct("<I")
_FRONT = struct.Struct("<i")
_WELCOME = struct.Struct("<IQB")
_APPLIED = struct.Struct("<HQ")
_NOTICE = struct.Struct("<IQQqQqII")
_FRONT_TICK = struct.Struct("<iq")
_SEGMENT_TICK = struct.Struct("<Hq")
_FLOOR = struct.Struct("<iqqB")
_CODE = struct.Struct("<B")


def encode(message: Message) -> bytes:
    """A message with its head. ``ValueError`` if a number is beyond its field: that is a bug of ours."""
    kind, write, _ = _BY_CLASS[type(message)]
    try:
        payload: bytes = write(message)
    except struct.error as error:
        raise ValueError(f"{message} does not fit its bytes: {error}") from error
    if len(payload) >= MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(payload)} bytes; less than {MAX_MESSAGE_BYTES} may be")
    return HEAD.pack(len(payload) + 1, kind) + payload


def decode(kind: int, payload: bytes) -> Message:
    """The message that these bytes are.

    Raises:
        ProtocolError: they are none.
    """
    read = _READ.get(kind)
    if read is None:
        raise ProtocolError(f"there is no message of kind {kind}: the peer speaks another version of the protocol")
    cursor = Cursor(payload)
    message = read(cursor)
    cursor.end()
    return message


# -- parts -------------------------------------------------------------------------------------------------------------


def _write_rows(layout: struct.Struct, rows: Iterable[tuple[int, ...]]) -> bytes:
    return b"".join([layout.pack(*row) for row in rows])


def _write_floors(floors: Iterable[Floor]) -> bytes:
    return b"".join([_FLOOR.pack(floor.front, floor.offset, floor.tick, floor.cap) for floor in floors])


def _read_floors(cursor: Cursor, count: int) -> tuple[Floor, ...]:
    return tuple(
        Floor(_front(front), offset, tick, _flag(cap)) for front, offset, tick, cap in cursor.rows(_FLOOR, count)
    )


def _read_heartbeats(cursor: Cursor, count: int) -> tuple[tuple[int, int], ...]:
    return tuple((_front(front), tick) for front, tick in cursor.rows(_FRONT_TICK, count))


def _read_min_times(cursor: Cursor, count: int) -> dict[int, int]:
    rows = cursor.rows(_SEGMENT_TICK, count)
    min_times = {row[0]: row[1] for row in rows}
    if len(min_times) != count:
        raise ProtocolError("a message names one segment twice")
    return min_times


def _front(number: int) -> int:
    if number < 0:
        raise ProtocolError(f"{number} is no number of a front")
    return number


def _flag(byte: int) -> bool:
    if byte > 1:
        raise ProtocolError(f"a flag is 0 or 1, not {byte}")
    return bool(byte)


def _positive(number: int, what: str) -> int:
    if number < 1:
        raise ProtocolError(f"{what} is numbered from 1")
    return number


# -- from clients ------------------------------------------------------------------------------------------------------


def _write_hello(message: Hello) -> bytes:
    worker = NO_WORKER if message.worker is None else message.worker
    return _HELLO.pack(message.incarnation, worker) + text_bytes(message.name)


def _read_hello(cursor: Cursor) -> Hello:
    incarnation, worker = cursor.take(_HELLO)
    if not NO_WORKER <= worker <= 0xFFFF:
        raise ProtocolError(f"{worker} is no number of a worker")
    return Hello(incarnation, None if worker == NO_WORKER else worker, cursor.text())


def _write_flush(message: Flush) -> bytes:
    acks, beats, floors = message.acks, message.heartbeats, message.floors
    head = _FLUSH.pack(message.worker, 0, len(acks), message.number, len(beats), len(floors))
    return head + _write_rows(_ACK, acks) + _write_rows(_FRONT_TICK, beats) + _write_floors(floors)


def _read_flush(cursor: Cursor) -> Flush:
    worker, zero, entries, number, beats, floors = cursor.take(_FLUSH)
    _zero(zero)
    acks = tuple(cursor.rows(_ACK, entries))
    return Flush(
        worker, _positive(number, "a flush"), acks, _read_heartbeats(cursor, beats), _read_floors(cursor, floors)
    )


def _write_absolute(message: Absolute) -> bytes:
    counts = (len(message.heartbeats), len(message.floors), len(message.min_times), 0)
    head = _ABSOLUTE.pack(message.worker, 0, len(message.acks), message.number, *counts)
    beats, floors = _write_rows(_FRONT_TICK, message.heartbeats), _write_floors(message.floors)
    return head + _write_rows(_ACK, message.acks) + beats + floors + _write_rows(_SEGMENT_TICK, message.min_times)


def _read_absolute(cursor: Cursor) -> Absolute:
    worker, zero, entries, number, beats, floors, min_times, none = cursor.take(_ABSOLUTE)
    _zero(zero | none)
    acks = tuple(cursor.rows(_ACK, entries))
    heartbeats, kept = _read_heartbeats(cursor, beats), _read_floors(cursor, floors)
    return Absolute(worker, number, acks, heartbeats, kept, tuple(_read_min_times(cursor, min_times).items()))


def _zero(reserved: int) -> None:
    if reserved:
        raise ProtocolError("a reserved field is not zero")


def _write_open_front(message: OpenFront) -> bytes:
    feeds = message.feeds
    count = DEFAULT_FEEDS if feeds is None else len(feeds)
    return _OPEN_FRONT.pack(message.front, message.floor, count) + struct.pack(f"<{max(0, count)}H", *(feeds or ()))


def _read_open_front(cursor: Cursor) -> OpenFront:
    front, floor, count = cursor.take(_OPEN_FRONT)
    if count < DEFAULT_FEEDS:
        raise ProtocolError(f"a front feeds {count} segments")
    feeds = None if count == DEFAULT_FEEDS else tuple(segment for (segment,) in cursor.rows(_SEGMENT, count))
    return OpenFront(_front(front), floor, feeds)


def _write_await(message: Await) -> bytes:
    return _COUNT.pack(len(message.ticks)) + _write_rows(_SEGMENT_TICK, message.ticks.items())


def _read_await(cursor: Cursor) -> Await:
    return Await(_read_min_times(cursor, *cursor.take(_COUNT)))


# -- from the tracker --------------------------------------------------------------------------------------------------


def _read_welcome(cursor: Cursor) -> Welcome:
    era, applied, report = cursor.take(_WELCOME)
    return Welcome(_positive(era, "an era"), applied, _flag(report))


def _write_notice(message: Notice) -> bytes:
    request = (0, 0) if message.request is None else (message.request.number, message.request.tick)
    counts = (len(message.min_times), len(message.floors))
    head = _NOTICE.pack(message.era, message.number, message.after, message.global_min, *request, *counts)
    return head + _write_rows(_SEGMENT_TICK, message.min_times.items()) + _write_floors(message.floors)


def _read_notice(cursor: Cursor) -> Notice:
    era, number, after, global_min, asked, tick, min_times, floors = cursor.take(_NOTICE)
    if after > number:
        raise ProtocolError(f"notice {number} says that it continues notice {after}")
    if tick > global_min if asked else tick:
        raise ProtocolError(
            f"notice {number} asks for tick {tick}, in request {asked}, at global min time {global_min}"
        )
    moved, kept = _read_min_times(cursor, min_times), _read_floors(cursor, floors)
    request = Request(asked, tick) if asked else None
    return Notice(_positive(era, "an era"), number, after, moved, global_min, kept, request)


def _read_front_opened(cursor: Cursor) -> FrontOpened:
    front, tick = cursor.take(_FRONT_TICK)
    return FrontOpened(_front(front), tick)


def _read_fault(cursor: Cursor) -> Fault:
    (code,) = cursor.take(_CODE)
    if code not in (Fault.REFUSED, Fault.LIFE_ENDED, Fault.PROTOCOL):
        raise ProtocolError(f"there is no fault of code {code}")
    return Fault(code, cursor.text())


_BY_CLASS: Mapping[type[Message], tuple[Kind, Callable[[Any], bytes], Callable[[Cursor], Message]]] = {
    Hello: (Kind.HELLO, _write_hello, _read_hello),
    Flush: (Kind.FLUSH, _write_flush, _read_flush),
    Absolute: (Kind.ABSOLUTE, _write_absolute, _read_absolute),
    Subscribe: (Kind.SUBSCRIBE, lambda _: b"", lambda _: Subscribe()),
    Unsubscribe: (Kind.UNSUBSCRIBE, lambda _: b"", lambda _: Unsubscribe()),
    Await: (Kind.AWAIT, _write_await, _read_await),
    OpenFront: (Kind.OPEN_FRONT, _write_open_front, _read_open_front),
    CloseFront: (Kind.CLOSE_FRONT, lambda m: _FRONT.pack(m.front), lambda c: CloseFront(_front(*c.take(_FRONT)))),
    Welcome: (Kind.WELCOME, lambda m: _WELCOME.pack(m.era, m.applied, m.report), _read_welcome),
    Applied: (Kind.APPLIED, lambda m: _APPLIED.pack(m.worker, m.number), lambda c: Applied(*c.take(_APPLIED))),
    Notice: (Kind.NOTICE, _write_notice, _read_notice),
    FrontOpened: (Kind.FRONT_OPENED, lambda m: _FRONT_TICK.pack(m.front, m.tick), _read_front_opened),
    FrontClosed: (Kind.FRONT_CLOSED, lambda m: _FRONT.pack(m.front), lambda c: FrontClosed(_front(*c.take(_FRONT)))),
    Fault: (Kind.FAULT, lambda m: _CODE.pack(m.code) + text_bytes(m.text), _read_fault),
}
_READ = {int(kind): read for kind, _, read in _BY_CLASS.values()}
