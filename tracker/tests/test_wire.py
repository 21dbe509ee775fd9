from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide_tracker import Absolute, Floor, Flush, Notice, ProtocolError, Request
from lowtide_tracker.cursor import MAX_TEXT_BYTES
from lowtide_tracker.message_reader import HEAD, MAX_MESSAGE_BYTES, MessageReader
from lowtide_tracker.messages import (
    Applied,
    Await,
    CloseFront,
    Fault,
    FrontClosed,
    FrontOpened,
    Hello,
    Message,
    OpenFront,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from lowtide_tracker.wire import Kind, decode, encode

NOTICE_1 = "01000000 0100000000000000 0000000000000000 0000000000000000"
"""The start of a notice: era 1, number 1, after 0, global min time 0."""
NO_REQUEST = "0000000000000000 0000000000000000"

EDGE = (1 << 63) - 1

# One of every kind, with its bytes as README.md has them: another implementation can be tested against these.
LITERAL: list[tuple[Message, str]] = [
    (Hello(3, 7, "sink/0"), "15000000 01 0300000000000000 07000000 0600 73696e6b2f30"),
    (Hello(3, None, ""), "0f000000 01 0300000000000000 ffffffff 0000"),
    (
        Flush.of(7, 258, [(1, 5, 0xAB), (2, -1, 1 << 63)], [(4, 6)], [Floor(4, 9, 6), Floor(4, 10, 7, cap=True)]),
        (
            "73000000 02 0700 0000 02000000 0201000000000000 01000000 02000000"
            "0100 0500000000000000 ab00000000000000 0200 ffffffffffffffff 0000000000000080"
            "04000000 0600000000000000"
            "04000000 0900000000000000 0600000000000000 00"
            "04000000 0a00000000000000 0700000000000000 01"
        ),
    ),
    (
        Absolute(7, 2, ((1, 5, 0xAB),), ((4, 6),), (Floor(4, 9, 6),), ((1, 5),)),
        (
            "5e000000 03 0700 0000 01000000 0200000000000000 01000000 01000000 01000000 00000000"
            "0100 0500000000000000 ab00000000000000 04000000 0600000000000000"
            "04000000 0900000000000000 0600000000000000 00 0100 0500000000000000"
        ),
    ),
    (Subscribe(), "01000000 04"),
    (Unsubscribe(), "01000000 05"),
    (OpenFront(4, 9), "11000000 06 04000000 0900000000000000 ffffffff"),
    (OpenFront(4, 9, (1, 258)), "15000000 06 04000000 0900000000000000 02000000 0100 0201"),
    (CloseFront(4), "05000000 07 04000000"),
    (Await({1: 5, 2: -1}), "19000000 08 02000000 0100 0500000000000000 0200 ffffffffffffffff"),
    (Await({}), "05000000 08 00000000"),
    (Welcome(1, 258, report=True), "0e000000 21 01000000 0201000000000000 01"),
    (Applied(7, 258), "0b000000 22 0700 0201000000000000"),
    (
        Notice(1, 3, 2, {1: 6, 2: 5}, 5, (Floor(4, 9, 6),), Request(9, 4)),
        (
            "5e000000 23 01000000 0300000000000000 0200000000000000 0500000000000000"
            "0900000000000000 0400000000000000 02000000 01000000"
            "0100 0600000000000000 0200 0500000000000000 04000000 0900000000000000 0600000000000000 00"
        ),
    ),
    (FrontOpened(4, 9), "0d000000 24 04000000 0900000000000000"),
    (FrontClosed(4), "05000000 25 04000000"),
    (Fault(Fault.LIFE_ENDED, "over"), "08000000 26 02 0400 6f766572"),
]


@pytest.mark.parametrize(("message", "written"), LITERAL, ids=lambda value: type(value).__name__)
def test_the_bytes_are_the_documented_ones(message: Message, written: str) -> None:
    data = bytes.fromhex(written)
    assert encode(message).hex(" ") == data.hex(" ")
    assert decode(data[4], data[5:]) == message


def test_every_kind_is_written_down() -> None:
    assert {bytes.fromhex(written)[4] for _, written in LITERAL} == set(Kind)


@pytest.mark.parametrize(("message", "written"), LITERAL, ids=lambda value: type(value).__name__)
def test_a_message_that_is_short_or_long_is_refused(message: Message, written: str) -> None:
    data = bytes.fromhex(written)
    with pytest.raises(ProtocolError, match=r"1 bytes are left over|too early|announced"):
        decode(data[4], data[5:] + b"\0")
    for size in range(len(data) - 5):
        with pytest.raises(ProtocolError):
            decode(data[4], data[5 : 5 + size])


i64, u64, fronts = st.integers(-(1 << 63), EDGE), st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 31) - 1)
workers, segments = st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)
acks = st.lists(st.tuples(segments, i64, u64), max_size=5)
beats = st.lists(st.tuples(fronts, i64), max_size=3).map(tuple)
floors = st.lists(st.builds(Floor, fronts, i64, i64, st.booleans()), max_size=3).map(tuple)
min_times = st.dictionaries(segments, i64, max_size=3)


@given(workers, st.integers(1, (1 << 64) - 1), acks, beats, floors, min_times)
def test_what_a_worker_says_comes_back(
    worker: int,
    number: int,
    rows: list[tuple[int, int, int]],
    heartbeats: tuple[tuple[int, int], ...],
    decided: tuple[Floor, ...],
    heard: dict[int, int],
) -> None:
    for message in (
        Flush(worker, number, tuple(rows), heartbeats, decided),
        Absolute(worker, number, tuple(rows), heartbeats, decided, tuple(heard.items())),
    ):
        data = encode(message)
        assert decode(data[4], data[5:]) == message


@given(st.integers(1, (1 << 32) - 1), u64, u64, min_times, i64, floors)
def test_notices_come_back_in_their_order(
    era: int, one: int, other: int, moved: dict[int, int], least: int, decided: tuple[Floor, ...]
) -> None:
    request = Request(other, least) if other else None
    message = Notice(era, max(one, other), min(one, other), moved, least, decided, request)
    data = encode(message)
    read = decode(data[4], data[5:])
    assert read == message
    assert isinstance(read, Notice)
    assert list(read.min_times) == list(moved)


@given(st.sampled_from([*Kind, 0, 99, 255]), st.binary(max_size=120))
def test_garbage_is_a_protocol_error_and_nothing_else(kind: int, payload: bytes) -> None:
    try:
        data = encode(decode(kind, payload))
    except ProtocolError:
        return
    assert (data[4], data[5:]) == (kind, payload)  # One message has one form.


@pytest.mark.parametrize(
    ("kind", "payload", "says"),
    [
        (Kind.FLUSH, "0700 0100 00000000 0100000000000000 00000000 00000000", "reserved field"),
        (Kind.ABSOLUTE, "0700 0100 00000000 0100000000000000 00000000 00000000 00000000 00000000", "reserved field"),
        (Kind.ABSOLUTE, "0700 0000 00000000 0100000000000000 00000000 00000000 00000000 01000000", "reserved field"),
        (Kind.FLUSH, "0700 0000 00000000 0000000000000000 00000000 00000000", "numbered from 1"),
        (Kind.WELCOME, "00000000 0000000000000000 00", "numbered from 1"),
        (Kind.WELCOME, "01000000 0000000000000000 02", "a flag is 0 or 1, not 2"),
        (
            Kind.NOTICE,
            "01000000 0100000000000000 0200000000000000 0000000000000000" + NO_REQUEST + "00000000 00000000",
            "continues",
        ),
        (Kind.NOTICE, NOTICE_1 + "0000000000000000 0100000000000000 00000000 00000000", "in request 0"),
        (Kind.NOTICE, NOTICE_1 + "0100000000000000 0300000000000000 00000000 00000000", "asks for tick 3"),
        (
            Kind.NOTICE,
            (NOTICE_1 + NO_REQUEST + "02000000 000000000100 0500000000000000 0100 0600000000000000"),
            "one segment twice",
        ),
        (Kind.AWAIT, "02000000 0100 0500000000000000 0100 0600000000000000", "one segment twice"),
        (Kind.HELLO, "0300000000000000 feffffff 0000", "no number of a worker"),
        (Kind.HELLO, "0300000000000000 00000100 0000", "no number of a worker"),
        (Kind.HELLO, "0300000000000000 ffffffff 0108" + "61" * 2049, "at most 2048"),
        (Kind.HELLO, "0300000000000000 ffffffff 0100 ff", "not UTF-8"),
        (Kind.OPEN_FRONT, "ffffffff 0900000000000000 ffffffff", "no number of a front"),
        (Kind.OPEN_FRONT, "04000000 0900000000000000 feffffff", "feeds -2 segments"),
        (Kind.CLOSE_FRONT, "ffffffff", "no number of a front"),
        (Kind.FAULT, "04 0000", "no fault of code 4"),
    ],
)
def test_what_the_tables_do_not_allow_is_refused(kind: Kind, payload: str, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        decode(kind, bytes.fromhex(payload))


@given(st.sampled_from(LITERAL), st.data())
def test_a_changed_byte_is_another_message_or_a_protocol_error(pair: tuple[Message, str], data: st.DataObject) -> None:
    whole = bytearray.fromhex(pair[1])
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = decode(whole[4], bytes(whole[5:]))
    except ProtocolError:
        return
    assert encode(message) == bytes(whole)


@pytest.mark.parametrize(
    "message",
    [replace(Hello(1, 1, ""), worker=1 << 40), Applied(1 << 16, 1), CloseFront(1 << 31), FrontOpened(1, 1 << 63)],
)
def test_a_number_beyond_its_field_is_our_mistake(message: Message) -> None:
    with pytest.raises(ValueError, match="does not fit its bytes"):
        encode(message)


def test_a_long_text_is_cut_off() -> None:
    data = encode(Fault(Fault.PROTOCOL, "ä" * 5000))
    fault = decode(data[4], data[5:])
    assert isinstance(fault, Fault)
    assert fault.text == "ä" * (MAX_TEXT_BYTES // 2)


# -- cutting a stream --------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([bytes.fromhex(written) for _, written in LITERAL]), max_size=8), st.data())
def test_messages_are_cut_out_wherever_the_stream_is(messages: list[bytes], data: st.DataObject) -> None:
    stream, reader, seen = b"".join(messages), MessageReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        seen += reader.feed(stream[:size])
        stream = stream[size:]
    assert seen == [(message[4], message[5:]) for message in messages]


@pytest.mark.parametrize("length", [0, MAX_MESSAGE_BYTES + 1, (1 << 32) - 1])
def test_a_length_that_cannot_be_is_refused_before_it_is_waited_for(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"a message of {length} bytes was announced"):
        MessageReader().feed(HEAD.pack(length, Kind.FLUSH))
