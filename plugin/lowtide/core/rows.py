"""Rows as the JVM packs them, unpacked: `plugin/jvm/src/io/lowtide/RowPacker.java` defines the bytes."""

from __future__ import annotations

import struct

import msgspec

Headers = list[tuple[str, str | bytes | None]]


class PackedRows(msgspec.Struct, array_like=True, gc=False):
    """Records of one source partition, one msgpack array.

    Attributes:
        born_ns: When the JVM took the first of them, ns since 1970.
        packed_ns: When it sent them, ns since 1970.
        topic: Their topic.
        partition: Their partition.
        offsets: n, ascending.
        timestamps: n, ms.
        keys: n, None where a record has none.
        values: n, None for Kafka's tombstones.
        headers: n packed lists of headers (`unpack_headers`); None where no record has any.
    """

    born_ns: int
    packed_ns: int
    topic: str
    partition: int
    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[bytes] | None


open_rows = msgspec.msgpack.Decoder(PackedRows).decode
"""Open a message of kind ROWS; one call into C."""


def unpack_headers(packed: bytes | None) -> Headers:
    """Open one record's headers: `u16 count`, then per header `i32 length | name | i32 length (-1: null) | value`."""
    if not packed:
        return []
    (count,) = struct.unpack_from("<H", packed)
    at = 2
    headers: Headers = []
    for _ in range(count):
        (length,) = struct.unpack_from("<i", packed, at)
        name = packed[at + 4 : at + 4 + length].decode()
        at += 4 + length
        (length,) = struct.unpack_from("<i", packed, at)
        at += 4
        headers.append((name, None if length < 0 else packed[at : at + length]))
        at += max(0, length)
    return headers
