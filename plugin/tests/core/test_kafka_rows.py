"""Kafka's records as the JVM packs them, opened."""

import struct

import msgspec
import pytest

from lowtide.core.rows import PackedRows, open_rows
from lowtide.flow.schema.headers import unpack_headers

MESSAGE = bytes.fromhex(
    "99 0a 14 a2 696e 04 93 07 08 09 93 64 65 66 93 c4016b c0 c4024b4b 93 c4027676 c400 c0 c0".replace(" ", "")
)
"""Three records as `RowPacker.java` lays them out; the second has no key, the third no value."""


def test_records_of_kafka() -> None:
    opened = open_rows(MESSAGE)
    assert (opened.topic, opened.partition, opened.born_ns, opened.packed_ns) == ("in", 4, 10, 20)
    assert opened.offsets == [7, 8, 9]
    assert opened.timestamps == [100, 101, 102]
    assert opened.keys == [b"k", None, b"KK"]
    assert opened.values == [b"vv", b"", None]
    assert opened.headers is None
    assert msgspec.msgpack.encode(opened) == MESSAGE


def test_records_at_the_types_edges() -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    rows = PackedRows(
        high, high, "t" * 249, (1 << 31) - 1, [0, high], [low, high], [None, b""], [b"x" * 70_000, None], None
    )
    assert open_rows(msgspec.msgpack.encode(rows)) == rows


def test_headers_come_with_their_records() -> None:
    two = struct.pack("<H", 2) + struct.pack("<i", 1) + b"a" + struct.pack("<i", 2) + b"xy"
    two += struct.pack("<i", 2) + "é".encode() + struct.pack("<i", -1)
    none = struct.pack("<H", 0)
    headers = open_rows(MESSAGE[:-1] + msgspec.msgpack.encode([two, none, none])).headers
    assert headers is not None
    assert unpack_headers(headers[0]) == [("a", b"xy"), ("é", None)]
    assert unpack_headers(headers[1]) == []
    assert unpack_headers(None) == []


@pytest.mark.parametrize(
    "message", [b"", MESSAGE[:-1], b"\x98" + MESSAGE[1:], MESSAGE.replace(b"\xa2in", b"\xa2i\xff")]
)
def test_bytes_that_are_no_records_are_refused(message: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        open_rows(message)
