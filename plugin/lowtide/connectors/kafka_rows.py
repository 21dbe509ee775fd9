"""What the JVM packs of Kafka's records, opened: `plugin/jvm/src/io/lowtide/RowPacker.java` says the bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from lowtide.bytes_column import BytesColumn
from lowtide.connectors.outgoing import Headers
from lowtide.operators.source import SourceRows

_HEAD = struct.Struct("<qqiiiH")


@dataclass(frozen=True, slots=True, eq=False)
class PackedRows:
    """Records of one source partition.

    Attributes:
        born_ns: When the JVM took the first of them, ns since 1970.
        packed_ns: When it sent them, ns since 1970.
        topic: Their topic.
        partition: Their partition.
        rows: The records; `front` as given to `unpack`.
    """

    born_ns: int
    packed_ns: int
    topic: str
    partition: int
    rows: SourceRows


def unpack(message: bytes, front: int) -> PackedRows:
    """Open a message of kind ROWS; copies the bytes of keys, values and headers once, the rest is a view."""
    born_ns, packed_ns, partition, count, header_bytes, topic_bytes = _HEAD.unpack_from(message)
    at = _HEAD.size
    topic = message[at : at + topic_bytes].decode()
    at += topic_bytes
    offsets = np.frombuffer(message, "<i8", count, at)
    timestamps = np.frombuffer(message, "<i8", count, at + 8 * count)
    at += 16 * count
    key_lengths = np.frombuffer(message, "<i4", count, at)
    value_lengths = np.frombuffer(message, "<i4", count, at + 4 * count)
    at += 8 * count
    view = memoryview(message)
    header_lengths = None
    if header_bytes:
        header_lengths = np.frombuffer(message, "<i4", count, at)
        at += 4 * count
    keys_end = at + int(np.maximum(key_lengths, 0).sum())
    values_end = len(message) - header_bytes
    keys = BytesColumn.from_lengths(view[at:keys_end], key_lengths)
    values = BytesColumn.from_lengths(view[keys_end:values_end], value_lengths)
    headers = None
    if header_lengths is not None:
        headers = BytesColumn.from_lengths(view[values_end:], header_lengths)
    return PackedRows(
        born_ns, packed_ns, topic, partition, SourceRows(front, offsets, timestamps, keys, values, headers)
    )


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
