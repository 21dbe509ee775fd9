"""Headers of messages, in the JVM's packing: `u16 count`, then `i32 length | name | i32 length (-1: null) | value`."""

from __future__ import annotations

import struct
from collections.abc import Sequence

Headers = list[tuple[str, str | bytes | None]]


def unpack_headers(packed: bytes | None) -> Headers:
    """Unpack one message's headers, in their order."""
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


def pack_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Pack one message's headers; empty where it has none."""
    if not headers:
        return b""
    parts = [struct.pack("<H", len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += [struct.pack("<i", len(encoded)), encoded, struct.pack("<i", -1 if value is None else len(value))]
        parts.append(value or b"")
    return b"".join(parts)
