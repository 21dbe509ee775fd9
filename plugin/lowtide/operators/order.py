"""The total order of records, as values and as bytes that compare in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import xxhash

from lowtide.operators.meta import Indices, Meta, padded

__all__ = ["FIRST_TICK", "OrderKey", "in_order", "order_width", "pack", "step_id", "tick_bytes", "unpack"]

FIRST_TICK = -(1 << 63)
"""The lowest tick there can be."""

_SIGN_64 = np.uint64(1 << 63)
_SIGN_32 = np.uint32(1 << 31)
_FIXED_BYTES = 8 + 4 + 8 + 8

Packed = npt.NDArray[np.bytes_]


@dataclass(frozen=True, slots=True, order=True)
class OrderKey:
    """A record's place in the total order: lexicographic, a child path after its prefixes, the trace last.

    Attributes:
        tick: The label, int64.
        front: The source partition's number, int32.
        sequence: The Kafka offset, int64.
        child: The child path's elements, each 1 to 2^32 - 1.
        trace: uint64.
    """

    tick: int
    front: int
    sequence: int
    child: tuple[int, ...] = ()
    trace: int = 0

    @classmethod
    def at(cls, meta: Meta, index: int) -> OrderKey:
        """The order key of one record."""
        path = tuple(element for element in meta.child[index].tolist() if element)
        position = (int(meta.tick[index]), int(meta.front[index]), int(meta.sequence[index]))
        return cls(*position, path, int(meta.trace[index]))

    def meta(self) -> Meta:
        """The meta of one record with this key."""
        return Meta(
            np.array([self.tick], np.int64),
            np.array([self.front], np.int32),
            np.array([self.sequence], np.int64),
            np.array([self.child], np.uint32).reshape(1, len(self.child)),
            np.array([self.trace], np.uint64),
            np.zeros(1, np.bool_),
        )


def step_id(job: str, vertex: str, port: int, place: int) -> np.uint64:
    """What a step folds into the trace of records that pass it: a hash of the names, the same in every life (R4).

    Args:
        job: The flow's name.
        vertex: The step's name.
        port: Which of its inputs.
        place: The hash unit; at level 0 the front.
    """
    name = b"\0".join((job.encode(), vertex.encode(), b"%d" % port, b"%d" % place))
    return np.uint64(xxhash.xxh3_64_intdigest(name))


def order_width(depth: int) -> int:
    """How many bytes a packed order key has for child paths of up to `depth` elements."""
    return _FIXED_BYTES + 4 * depth


@cache
def _layout(depth: int) -> np.dtype[np.void]:
    return np.dtype(
        [("tick", ">u8"), ("front", ">u4"), ("sequence", ">u8"), ("child", ">u4", (depth,)), ("trace", ">u8")]
    )


@cache
def _strings(depth: int) -> np.dtype[np.bytes_]:
    return np.dtype(f"S{order_width(depth)}")


def pack(meta: Meta, depth: int) -> Packed:
    """The order keys as byte strings that compare as the keys do; O(n), `order_width(depth)` bytes each.

    Numpy and Python compare such strings as if they were padded with zeros, so what `tolist` strips at the end of one
    changes no comparison.

    Args:
        meta: n records.
        depth: The longest child path that can occur where these keys are compared.

    Returns:
        bytes[n].
    """
    assert meta.child.shape[1] <= depth or not meta.child[:, depth:].any(), f"a child path is longer than {depth}"
    packed = np.empty(len(meta), _layout(depth))
    packed["tick"] = meta.tick.view(np.uint64) ^ _SIGN_64
    packed["front"] = meta.front.view(np.uint32) ^ _SIGN_32
    packed["sequence"] = meta.sequence.view(np.uint64) ^ _SIGN_64
    if depth:
        packed["child"] = padded(meta.child, depth) if meta.child.shape[1] < depth else meta.child[:, :depth]
    packed["trace"] = meta.trace
    return packed.view(_strings(depth))


def unpack(keys: Sequence[bytes], depth: int) -> Meta:
    """The meta of items with these packed keys, without units; the inverse of `pack(...).tolist()`."""
    width = order_width(depth)
    joined = b"".join([key.ljust(width, b"\0") for key in keys])
    packed = np.frombuffer(joined, _layout(depth))
    return Meta(
        (packed["tick"].astype(np.uint64) ^ _SIGN_64).view(np.int64),
        (packed["front"].astype(np.uint32) ^ _SIGN_32).view(np.int32),
        (packed["sequence"].astype(np.uint64) ^ _SIGN_64).view(np.int64),
        packed["child"].astype(np.uint32).reshape(len(keys), depth),
        packed["trace"].astype(np.uint64),
        np.zeros(len(keys), np.bool_),
    )


def tick_bytes(tick: int) -> bytes:
    """A string that comes before all packed keys of this tick or later ones, and behind those of earlier ones."""
    return (tick + (1 << 63)).to_bytes(8, "big").rstrip(b"\0")


def in_order(packed: Packed) -> Indices | None:
    """The stable order of packed keys, None if they stand in it already; O(n) then, else O(n log n)."""
    if len(packed) < 2 or bool((packed[:-1] <= packed[1:]).all()):
        return None
    return np.argsort(packed, kind="stable")
