"""Many byte strings in one buffer: how values of Kafka records travel through Python without one object each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa


class BytesColumn:
    """`n` byte strings, some of which may be null.

    Attributes:
        data: All bytes, one string after the other, nothing between them.
        offsets: int64[n + 1]; string i is `data[offsets[i]:offsets[i + 1]]`.
        nulls: bool[n], True where there is no string at all; None if there is one everywhere.
    """

    __slots__ = ("data", "nulls", "offsets")

    def __init__(self, data: bytes, offsets: npt.NDArray[np.int64], nulls: npt.NDArray[np.bool_] | None = None) -> None:
        self.data = data
        self.offsets = offsets
        self.nulls = nulls

    @classmethod
    def from_lengths(cls, data: bytes | memoryview, lengths: npt.NDArray[np.int32]) -> BytesColumn:
        """Make a column of strings given their lengths, where -1 means null; copies `data` if it is a view."""
        nulls = lengths < 0
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
        if offsets[-1] != len(data):
            raise ValueError(f"lengths sum up to {offsets[-1]} bytes, but there are {len(data)}")
        return cls(bytes(data), offsets, nulls if nulls.any() else None)

    @classmethod
    def from_list(cls, strings: Sequence[bytes | None]) -> BytesColumn:
        """Make a column of Python's byte strings; O(n) Python objects, for tests and small batches."""
        lengths = np.array([-1 if string is None else len(string) for string in strings], np.int32)
        return cls.from_lengths(b"".join(string for string in strings if string is not None), lengths)

    def to_list(self) -> list[bytes | None]:
        """All strings as Python objects, None for null; copies."""
        data, offsets = self.data, self.offsets.tolist()
        strings: list[bytes | None] = [data[start:end] for start, end in pairwise(offsets)]
        if self.nulls is not None:
            for index in np.flatnonzero(self.nulls).tolist():
                strings[index] = None
        return strings

    def to_arrow(self) -> pa.Array:
        """The same strings as an Arrow array of type binary, whose bytes are shared."""
        import pyarrow as pa

        valid = None if self.nulls is None else pa.py_buffer(np.packbits(~self.nulls, bitorder="little"))
        offsets = pa.py_buffer(self.offsets.astype(np.int32))
        return pa.Array.from_buffers(pa.binary(), len(self), [valid, offsets, pa.py_buffer(self.data)])

    def slice(self, start: int, stop: int) -> BytesColumn:
        """Strings `start` to `stop`, without the latter; copies their bytes, so the others can be forgotten."""
        offsets = self.offsets[start : stop + 1]
        first = int(offsets[0])
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return BytesColumn(self.data[first : int(offsets[-1])], offsets - first, nulls)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes | None:
        if self.nulls is not None and self.nulls[index]:
            return None
        return self.data[self.offsets[index] : self.offsets[index + 1]]
