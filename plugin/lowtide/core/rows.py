"""Rows as the JVM packs them, unpacked: `plugin/jvm/src/io/lowtide/RowPacker.java` defines the bytes."""

from __future__ import annotations

import msgspec


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
        headers: n packed lists of headers (`lowtide.flow.schema.headers`); None where no record has any.
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
