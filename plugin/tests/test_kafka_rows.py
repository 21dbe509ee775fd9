import struct

import msgspec
import numpy as np
import pytest

from lowtide.connectors.kafka_rows import unpack, unpack_headers


def packed(*, headers: list[bytes] | None = None) -> bytes:
    """Three records as `RowPacker.java` lays them out; the second has no key, the third no value."""
    keys, values = [b"k", None, b"KK"], [b"vv", b"", None]
    return msgspec.msgpack.encode([10, 20, "in", 4, [7, 8, 9], [100, 101, 102], keys, values, headers])


def test_columns_of_kafka_records() -> None:
    opened = unpack(packed(), front=5)
    assert (opened.topic, opened.partition, opened.born_ns, opened.packed_ns) == ("in", 4, 10, 20)
    assert opened.rows.front == 5
    np.testing.assert_array_equal(opened.rows.offsets, [7, 8, 9])
    np.testing.assert_array_equal(opened.rows.timestamps, [100, 101, 102])
    assert opened.rows.keys.to_list() == [b"k", None, b"KK"]
    assert opened.rows.values.to_list() == [b"vv", b"", None]
    assert opened.rows.headers is None


def test_headers_come_with_their_records() -> None:
    two = struct.pack("<H", 2) + struct.pack("<i", 1) + b"a" + struct.pack("<i", 2) + b"xy"
    two += struct.pack("<i", 2) + "é".encode() + struct.pack("<i", -1)
    none = struct.pack("<H", 0)
    headers = unpack(packed(headers=[two, none, none]), front=0).rows.headers
    assert headers is not None
    assert unpack_headers(headers[0]) == [("a", b"xy"), ("é", None)]
    assert unpack_headers(headers[1]) == []
    assert unpack_headers(None) == []


def test_a_message_that_was_cut_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        unpack(packed()[:-1], front=0)
