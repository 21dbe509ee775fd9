import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide_tracker import Absolute, Floor, Flush, Notice, ProtocolError, Request
from lowtide_tracker.fields import MAX_TEXT_BYTES
from lowtide_tracker.message_reader import HEAD, MAX_MESSAGE_BYTES, MessageReader
from lowtide_tracker.messages import (
    Applied,
    Attach,
    Attached,
    Await,
    CloseFront,
    Fault,
    FrontClosed,
    FrontOpened,
    Hello,
    Join,
    Joined,
    Message,
    OpenFront,
    Order,
    Report,
    Subscribe,
    Sum,
    Summed,
    Unsubscribe,
    Welcome,
)
from lowtide_tracker.wire import Kind, decode, encode

EDGE = (1 << 63) - 1

# One of every kind, with its bytes as README.md has them: another implementation can be tested against these.
LITERAL: list[tuple[Message, str]] = [
    (Hello(3, 7, "sink/0"), "0b000000 01 93 03 07 a6 73696e6b2f30"),
    (Hello(3, None, ""), "05000000 01 93 03 c0 a0"),
    (
        Flush.of(
            7,
            258,
            [(1, 5, 0xAB), (2, -1, 1 << 63)],
            [(4, 6)],
            [Floor(4, 9, 6), Floor(4, 10, 7, cap=True)],
            [(2, 3, 1 << 40), (2, 4, None)],
        ),
        (
            "38000000 02 96 07 cd0102 92 93 01 05 ccab 93 02 ff cf8000000000000000"
            "91 92 04 06 92 94 04 09 06 c2 94 04 0a 07 c3"
            "92 93 02 03 cf0000010000000000 93 02 04 c0"
        ),
    ),
    (
        Absolute(7, 2, ((1, 5, 0xAB),), ((4, 6),), (Floor(4, 9, 6),), ((2, 3, 9),), ((1, 5),)),
        "1d000000 03 97 07 02 91 93 01 05 ccab 91 92 04 06 91 94 04 09 06 c2 91 93 02 03 09 91 92 01 05",
    ),
    (Subscribe(), "04000000 04 92 c0 c3"),
    (Subscribe((1, 9), global_min=False), "06000000 04 92 92 01 09 c2"),
    (Unsubscribe(), "02000000 05 90"),
    (OpenFront(4, 9), "05000000 06 93 04 09 c0"),
    (OpenFront(4, 9, (1, 258)), "09000000 06 93 04 09 92 01 cd0102"),
    (CloseFront(4), "03000000 07 91 04"),
    (Await({1: 5, 2: -1}), "07000000 08 91 82 01 05 02 ff"),
    (Await({}), "03000000 08 91 80"),
    (Welcome(1, 258, report=True), "07000000 21 93 01 cd0102 c3"),
    (Applied(7, 258), "06000000 22 92 07 cd0102"),
    (
        Notice(1, 3, 2, {1: 6, 2: 5}, 5, (Floor(4, 9, 6),), Request(9, 4)),
        "14000000 23 97 01 03 02 82 01 06 02 05 05 91 94 04 09 06 c2 92 09 04",
    ),
    (Notice(1, 3, 2, {}, 5), "09000000 23 97 01 03 02 80 05 90 c0"),
    (FrontOpened(4, 9), "04000000 24 92 04 09"),
    (FrontClosed(4), "03000000 25 91 04"),
    (Fault(Fault.LIFE_ENDED, "over"), "08000000 26 92 02 a4 6f766572"),
    (Join(1, 3, fresh=True), "05000000 09 93 01 03 c3"),
    (
        Report(1, False, ((7, 258),), 2, ((1, 4, 6), (2, -(1 << 63), 5)), ((1, 9),), (Floor(4, 9, 6),), ((4, 7),)),
        (
            "2a000000 0a 98 01 c2 91 92 07 cd0102 02 92 93 01 04 06 93 02 d38000000000000000 05"
            "91 92 01 09 91 94 04 09 06 c2 91 92 04 07"
        ),
    ),
    (Joined(2, {4: 9, 5: -1}, {5: (1, 2)}, (6,)), "0f000000 27 94 02 82 04 09 05 ff 81 05 92 01 02 91 06"),
    (Order(3, 4, 9, (1, 258)), "0a000000 28 94 03 04 09 92 01 cd0102"),
    (Order(4, 4, None), "06000000 28 94 04 04 c0 90"),
    (Attach(7, "sink/0"), "0a000000 0b 92 07 a6 73696e6b2f30"),
    (Attached(7, 258, report=True), "07000000 29 93 07 cd0102 c3"),
    (
        Sum(((7, 257, 258), (8, 1, 1)), ((1, 5, 0xAB),), ((4, 6),), (Floor(4, 9, 6),), ((2, 3, None),)),
        (
            "24000000 0c 95 92 93 07 cd0101 cd0102 93 08 01 01"
            "91 93 01 05 ccab 91 92 04 06 91 94 04 09 06 c2 91 93 02 03 c0"
        ),
    ),
    (Summed(9), "03000000 2a 91 09"),
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
    with pytest.raises(ProtocolError, match="trailing characters"):
        decode(data[4], data[5:] + b"\0")
    for size in range(len(data) - 5):
        with pytest.raises(ProtocolError):
            decode(data[4], data[5 : 5 + size])


i64, u64, fronts = st.integers(-(1 << 63), EDGE), st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 31) - 1)
workers, segments = st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)
acks = st.lists(st.tuples(segments, i64, u64), max_size=5)
beats = st.lists(st.tuples(fronts, i64), max_size=3).map(tuple)
floors = st.lists(st.builds(Floor, fronts, i64, i64, st.booleans()), max_size=3).map(tuple)
dues = st.lists(st.tuples(segments, workers, st.none() | i64), max_size=3, unique_by=lambda due: due[:2]).map(tuple)
min_times = st.dictionaries(segments, i64, max_size=3)


@given(workers, st.integers(1, (1 << 64) - 1), acks, beats, floors, dues, min_times)
def test_what_a_worker_says_comes_back(
    worker: int,
    number: int,
    rows: list[tuple[int, int, int]],
    heartbeats: tuple[tuple[int, int], ...],
    decided: tuple[Floor, ...],
    reported: tuple[tuple[int, int, int | None], ...],
    heard: dict[int, int],
) -> None:
    for message in (
        Flush(worker, number, tuple(rows), heartbeats, decided, reported),
        Absolute(worker, number, tuple(rows), heartbeats, decided, reported, tuple(heard.items())),
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


@pytest.mark.parametrize(
    "wrong",
    [Sum(((7, 1, 2), (7, 3, 3))), Sum(((7, 2, 1),)), Sum(((7, 1, 1),), dues=((2, 3, 4), (2, 3, None)))],
)
def test_a_sum_that_contradicts_itself_is_refused(wrong: Sum) -> None:
    data = encode(wrong)
    with pytest.raises(ProtocolError, match=r"a sum has"):
        decode(data[4], data[5:])


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
        (Kind.HELLO, "93 03 ff a0", ">= 0 - at `$[1]`"),
        (Kind.HELLO, "93 03 ce00010000 a0", "<= 65535 - at `$[1]`"),
        (Kind.HELLO, "93 03 c0 da0801" + "61" * 2049, "length <= 2048"),
        (Kind.HELLO, "93 03 c0 da0802" + "c3a4" * 1025, "shortest form"),
        (Kind.HELLO, "93 03 c0 a1ff", "can't decode byte 0xff"),
        (Kind.HELLO, "92 03 07", "at least length 3"),
        (Kind.HELLO, "83 03 07 c0 c0 a0 a0", "Expected `array`"),
        (Kind.FLUSH, "96 07 00 90 90 90 90", ">= 1 - at `$[1]`"),
        (Kind.FLUSH, "96 ce00010000 01 90 90 90 90", "<= 65535 - at `$[0]`"),
        (Kind.FLUSH, "96 07 cd0001 90 90 90 90", "shortest form"),
        (Kind.FLUSH, "95 07 01 90 90 90", "shortest form"),
        (Kind.FLUSH, "97 07 01 90 90 90 90 90", "at most length 6"),
        (Kind.FLUSH, "97 07 01 90 90 90 90" + "91" * 99_999 + "90", "at most length 6"),
        (Kind.FLUSH, "96 07 01 ddffffffff", "truncated"),
        (Kind.FLUSH, "96 07 01 91 92 01 05 90 90 90", "length 3, got 2"),
        (Kind.FLUSH, "96 07 01 91 93 01 05 ff 90 90 90", ">= 0 - at `$[2][0][2]`"),
        (Kind.FLUSH, "96 07 01 91 93 01 cf8000000000000000 05 90 90 90", "<= 9223372036854775807 - at `$[2][0][1]`"),
        (Kind.FLUSH, "96 07 01 91 93 01 ca3f800000 05 90 90 90", "got `float` - at `$[2][0][1]`"),
        (Kind.FLUSH, "96 07 01 90 91 92 ff 06 90 90", ">= 0 - at `$[3][0][0]`"),
        (Kind.FLUSH, "96 07 01 90 90 91 94 ff 09 06 c2", ">= 0 - at `$[4][0][0]`"),
        (Kind.FLUSH, "96 07 01 90 90 91 94 04 09 06 01", "Expected `bool`"),
        (Kind.FLUSH, "96 07 01 90 90 91 93 04 09 06 90", "shortest form"),
        (Kind.FLUSH, "96 07 01 90 90 90 91 93 02 ff 05", ">= 0 - at `$[5][0][1]`"),
        (Kind.FLUSH, "96 07 01 90 90 90 91 92 02 03", "length 3, got 2"),
        (Kind.FLUSH, "96 07 01 90 90 90 92 93 02 03 05 93 02 03 c0", "two dues of one owner"),
        (Kind.ABSOLUTE, "97 07 01 90 90 90 92 93 02 03 05 93 02 03 06 90", "two dues of one owner"),
        (Kind.ABSOLUTE, "97 07 01 90 90 90 90 92 92 01 05 92 01 06", "one segment twice"),
        (Kind.SUBSCRIBE, "", "truncated"),
        (Kind.OPEN_FRONT, "93 ff 09 c0", ">= 0 - at `$[0]`"),
        (Kind.OPEN_FRONT, "93 04 09 91 ce00010000", "<= 65535 - at `$[2][0]`"),
        (Kind.CLOSE_FRONT, "91 ff", ">= 0 - at `$[0]`"),
        (Kind.CLOSE_FRONT, "91 ce80000000", "<= 2147483647 - at `$[0]`"),
        (Kind.SUBSCRIBE, "92 92 01 01 c2", "names a segment twice"),
        (Kind.SUBSCRIBE, "92 c0 c2", "leaves out the global min time"),
        (Kind.AWAIT, "91 82 01 05 01 06", "a key twice"),
        (Kind.AWAIT, "91 81 a131 05", "got `str`"),
        (Kind.WELCOME, "93 00 00 c2", ">= 1 - at `$[0]`"),
        (Kind.WELCOME, "93 01 00 02", "Expected `bool`"),
        (Kind.NOTICE, "97 00 01 00 80 00 90 c0", ">= 1 - at `$[0]`"),
        (Kind.NOTICE, "97 01 01 02 80 00 90 c0", "continues"),
        (Kind.NOTICE, "97 01 01 00 80 00 90 92 00 00", ">= 1 - at `$[6][0]`"),
        (Kind.NOTICE, "97 01 01 00 80 00 90 92 01 03", "asks for tick 3, in request 1, at global min time 0"),
        (Kind.NOTICE, "97 01 01 00 82 01 05 01 06 00 90 c0", "a key twice"),
        (Kind.NOTICE, "97 01 01 00 81 ff 05 00 90 c0", ">= 0 - at `key` in `$[3]`"),
        (Kind.FAULT, "92 04 a0", "<= 3 - at `$[0]`"),
        (Kind.FAULT, "92 00 a0", ">= 1 - at `$[0]`"),
        (Kind.JOIN, "93 01 03 01", "Expected `bool`"),
        (Kind.JOIN, "93 ce00010000 03 c2", "<= 65535 - at `$[0]`"),
        (Kind.REPORT, "98 01 c2 91 92 07 ff 02 90 90 90 90", ">= 0 - at `$[2][0][1]`"),
        (Kind.REPORT, "98 01 c2 90 02 91 92 01 04 90 90 90", "length 3, got 2"),
        (Kind.REPORT, "98 01 c2 90 02 92 93 01 04 06 93 01 05 06 90 90 90", "at one segment twice"),
        (Kind.REPORT, "98 01 c2 90 02 91 93 01 07 06 90 90 90", "lowest"),
        (Kind.REPORT, "98 01 c2 92 92 07 01 92 07 02 02 90 90 90 90", "two node times"),
        (Kind.JOINED, "94 02 82 04 09 04 0a 80 90", "a key twice"),
        (Kind.JOINED, "94 02 80 81 05 91 ff 90", ">= 0"),
        (Kind.ORDER, "94 00 04 09 90", ">= 1 - at `$[0]`"),
        (Kind.ORDER, "94 04 04 c0 91 01", "closes"),
    ],
)
def test_what_the_tables_do_not_allow_is_refused(kind: Kind, payload: str, says: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(says)):
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
    "message", [Hello(1, 1 << 40, ""), Applied(1 << 16, 1), CloseFront(1 << 31), FrontOpened(1, 1 << 63)]
)
def test_a_number_beyond_its_range_is_refused_by_whoever_reads_it(message: Message) -> None:
    data = encode(message)
    with pytest.raises(ProtocolError, match=r"Expected `int` <= \d+ - at"):
        decode(data[4], data[5:])


@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1])
def test_a_number_that_has_no_bytes_is_our_mistake(number: int) -> None:
    with pytest.raises(ValueError, match="does not fit its bytes"):
        encode(FrontOpened(1, number))


def test_a_long_text_is_cut_off() -> None:
    data = encode(Fault(Fault.PROTOCOL, "ä" * 5000))
    fault = decode(data[4], data[5:])
    assert isinstance(fault, Fault)
    assert fault.text == "ä" * (MAX_TEXT_BYTES // 2)


def test_a_text_that_is_not_unicode_can_be_sent() -> None:
    data = encode(Hello(3, 7, "sink\udcff"))
    assert decode(data[4], data[5:]) == Hello(3, 7, "sink?")


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
    with pytest.raises(ProtocolError, match=f"announced a message of {length} bytes"):
        MessageReader().feed(HEAD.pack(length, Kind.FLUSH))
