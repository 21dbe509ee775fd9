"""The bytes of every message: a head, and a MessagePack array; `README.md` has them in tables.

No I/O. What does not follow the tables exactly, to the last byte, is a `ProtocolError`.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from msgspec import DecodeError
from msgspec.msgpack import Decoder, Encoder

from lowtide_tracker.errors import ProtocolError
from lowtide_tracker.message_reader import HEAD, MAX_MESSAGE_BYTES
from lowtide_tracker.messages import (
    Absolute,
    Applied,
    Attach,
    Attached,
    Await,
    CloseFront,
    Fault,
    Flush,
    FrontClosed,
    FrontOpened,
    Hello,
    Join,
    Joined,
    Message,
    Notice,
    OpenFront,
    Order,
    Report,
    Subscribe,
    Sum,
    Summed,
    Unsubscribe,
    Welcome,
)


class Kind(IntEnum):
    """The byte after the length. Below 32 from clients, shards and relays, from 32 on from the tracker or the merge."""

    HELLO = 1
    FLUSH = 2
    ABSOLUTE = 3
    SUBSCRIBE = 4
    UNSUBSCRIBE = 5
    OPEN_FRONT = 6
    CLOSE_FRONT = 7
    AWAIT = 8
    JOIN = 9
    REPORT = 10
    ATTACH = 11
    SUM = 12
    WELCOME = 33
    APPLIED = 34
    NOTICE = 35
    FRONT_OPENED = 36
    FRONT_CLOSED = 37
    FAULT = 38
    JOINED = 39
    ORDER = 40
    ATTACHED = 41
    SUMMED = 42


_KINDS: Mapping[type[Message], Kind] = {
    Hello: Kind.HELLO,
    Flush: Kind.FLUSH,
    Absolute: Kind.ABSOLUTE,
    Subscribe: Kind.SUBSCRIBE,
    Unsubscribe: Kind.UNSUBSCRIBE,
    OpenFront: Kind.OPEN_FRONT,
    CloseFront: Kind.CLOSE_FRONT,
    Await: Kind.AWAIT,
    Join: Kind.JOIN,
    Report: Kind.REPORT,
    Attach: Kind.ATTACH,
    Sum: Kind.SUM,
    Welcome: Kind.WELCOME,
    Applied: Kind.APPLIED,
    Notice: Kind.NOTICE,
    FrontOpened: Kind.FRONT_OPENED,
    FrontClosed: Kind.FRONT_CLOSED,
    Fault: Kind.FAULT,
    Joined: Kind.JOINED,
    Order: Kind.ORDER,
    Attached: Kind.ATTACHED,
    Summed: Kind.SUMMED,
}
_pack = Encoder().encode
_UNPACK: Mapping[int, Callable[[bytes], Message]] = {int(kind): Decoder(each).decode for each, kind in _KINDS.items()}


def encode(message: Message) -> bytes:
    """A message with its head. It does not look at ranges: a reader of a number beyond its range refuses it.

    ``ValueError`` if there are no bytes for it at all: that is a bug of ours.
    """
    try:
        payload = _pack(message)
    except OverflowError as error:
        raise ValueError(f"{message} does not fit its bytes: {error}") from error
    if len(payload) >= MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(payload)} bytes; fewer than {MAX_MESSAGE_BYTES} are allowed")
    return HEAD.pack(len(payload) + 1, _KINDS[type(message)]) + payload


def decode(kind: int, payload: bytes) -> Message:
    """The message that these bytes are.

    Raises:
        ProtocolError: they are none.
    """
    unpack = _UNPACK.get(kind)
    if unpack is None:
        raise ProtocolError(f"unknown message kind {kind}: the peer speaks another version of the protocol")
    try:
        message = unpack(payload)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"{Kind(kind).name} breaks the protocol: {error}") from error
    if _pack(message) != payload:
        # A map with a key twice, an integer or a length in more bytes than it needs, an element left out.
        raise ProtocolError(f"{Kind(kind).name} has a key twice, or is not in its shortest form")
    check = _CHECKS.get(type(message))
    if check is not None:
        check(message)
    return message


def _check_dues(message: Flush | Absolute) -> None:
    if message.dues and len({due[:2] for due in message.dues}) != len(message.dues):
        raise ProtocolError(f"worker {message.worker} reported two dues of one owner at once")


def _check_sum(message: Sum) -> None:
    workers = [worker for worker, _, _ in message.parts]
    if len(set(workers)) != len(workers):
        raise ProtocolError("a sum has two parts of one worker")
    for worker, first, last in message.parts:
        if first > last:
            raise ProtocolError(f"a sum has flushes {first} to {last} of worker {worker}")
    if len({due[:2] for due in message.dues}) != len(message.dues):
        raise ProtocolError("a sum has two dues of one owner")


def _check_absolute(absolute: Absolute) -> None:
    _check_dues(absolute)
    if len(dict(absolute.min_times)) != len(absolute.min_times):
        raise ProtocolError("a report has the min time of one segment twice")


def _check_order(order: Order) -> None:
    if order.floor is None and order.feeds:
        raise ProtocolError(f"order {order.number} closes front {order.front}, yet says what it feeds")


def _check_report(report: Report) -> None:
    if len(dict(report.nodes)) != len(report.nodes):
        raise ProtocolError(f"shard {report.shard} reports two node times of one worker")
    if len({segment for segment, _, _ in report.stands}) != len(report.stands):
        raise ProtocolError(f"shard {report.shard} reports where it stands at one segment twice")
    for segment, low, stand in report.stands:
        if low > stand:
            raise ProtocolError(f"shard {report.shard} stands at {stand} of segment {segment}, and at {low} at lowest")


def _check_subscribe(subscribe: Subscribe) -> None:
    named = subscribe.segments
    if named is None and not subscribe.global_min:
        raise ProtocolError("a subscription to all segments leaves out the global min time")
    if named is not None and len(set(named)) != len(named):
        raise ProtocolError("a subscription names a segment twice")


def _check_notice(notice: Notice) -> None:
    if notice.after > notice.number:
        raise ProtocolError(f"notice {notice.number} says that it continues notice {notice.after}")
    request = notice.request
    if request is not None and request.tick > notice.global_min:
        raise ProtocolError(
            f"notice {notice.number} asks for tick {request.tick}, in request {request.number}, at global min time "
            f"{notice.global_min}"
        )


_CHECKS: Mapping[type, Callable[[Any], None]] = {
    Flush: _check_dues,
    Absolute: _check_absolute,
    Subscribe: _check_subscribe,
    Notice: _check_notice,
    Report: _check_report,
    Order: _check_order,
    Sum: _check_sum,
}
"""Numbers beyond a field's own range."""
