"""What the JVM packs of Kafka's records, opened: `plugin/jvm/src/io/lowtide/RowPacker.java` says the bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec
import numpy as np

from lowtide.bytes_column import BytesColumn
from lowtide.connectors.outgoing import Headers
from lowtide.operators.source import SourceRows


class PackedRows(msgspec.Struct, array_like=True, gc=False):
    """A message of kind ROWS: n records of one source partition, in the log's order.

    Attributes:
        born_ns: When the JVM took the first of them, ns since 1970.
        packed_ns: When it sent them, ns since 1970.
        topic: Their topic.
        partition: Their partition.
        offsets: n offsets, ascending.
        timestamps: n timestamps of the log, in ms.
        keys: n keys, None where a message has none.
        values: n values, None for Kafka's tombstones.
        headers: n packed lists of headers, see `unpack_headers`; None if no record has any.
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


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """Records of one source partition as columns; `rows.front` as given to `unpack`, the rest as in `PackedRows`."""

    born_ns: int
    packed_ns: int
    topic: str
    partition: int
    rows: SourceRows


_DECODER = msgspec.msgpack.Decoder(PackedRows)


def open_rows(message: bytes) -> PackedRows:
    """Open a message of kind ROWS.

    Raises:
        msgspec.DecodeError: the bytes are not such a message.
    """
    return _DECODER.decode(message)


def unpack(message: bytes, front: int) -> Opened:
    """Open a message of kind ROWS as columns."""
    packed = open_rows(message)
    rows = SourceRows(
        front,
        np.array(packed.offsets, np.int64),
        np.array(packed.timestamps, np.int64),
        BytesColumn.from_list(packed.keys),
        BytesColumn.from_list(packed.values),
        None if packed.headers is None else BytesColumn.from_list(packed.headers),
    )
    return Opened(packed.born_ns, packed.packed_ns, packed.topic, packed.partition, rows)


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
