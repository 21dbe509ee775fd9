"""The skeleton's frames: some records in one message, `i32 n | i64 timestamp_ms[n] | i32 length[n] | values`.

In the machine's own byte order: frames never leave it. `Stage.java` makes them too.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise

_COUNT = struct.Struct("=i")
_STAMP_BYTES = 8
_LENGTH_BYTES = 4


def encode(stamps: Sequence[int], values: Sequence[bytes]) -> bytes:
    """Return a frame of records: timestamps in ms, and the same number of values."""
    return b"".join((_COUNT.pack(len(values)), array("q", stamps), array("i", map(len, values)), *values))


def decode(frame: bytes) -> tuple[list[int], list[bytes]]:
    """Return the timestamps in ms and the values of a frame's records."""
    (count,) = _COUNT.unpack_from(frame)
    lengths_at = _COUNT.size + _STAMP_BYTES * count
    values_at = lengths_at + _LENGTH_BYTES * count
    view = memoryview(frame)
    stamps = view[_COUNT.size : lengths_at].cast("q").tolist()
    lengths = view[lengths_at:values_at].cast("i").tolist()
    ends = accumulate(lengths, initial=values_at)
    return stamps, [frame[start:end] for start, end in pairwise(ends)]
