"""Floors of one front in few bytes, as a life's plan carries them to the workers.

Offsets and ticks ascend, so each is written as its distance to the one before; 3 to 6 bytes a floor, where pickled ones
take 26.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from lowtide.errors import LifeEnded
from lowtide_tracker import Floor

__all__ = ["MAX_FLOORS", "pack", "unpack"]

MAX_FLOORS = 20_000_000
"""What a start can hand to its workers: a third of what the message may be."""
_COUNTS = struct.Struct("<QQ")


def pack(floors: Iterable[Floor]) -> dict[int, bytes]:
    """Pack floors by front; 0.5 us each.

    Args:
        floors: Of any fronts, by offset within each front and kind.

    Raises:
        LifeEnded: They are more than `MAX_FLOORS`.
    """
    columns: dict[int, tuple[list[int], list[int], list[int], list[int]]] = {}
    count = 0
    for floor in floors:
        count += 1
        offsets, ticks, cap_offsets, cap_ticks = columns.setdefault(floor.front, ([], [], [], []))
        (cap_offsets if floor.cap else offsets).append(floor.offset)
        (cap_ticks if floor.cap else ticks).append(floor.tick)
    if count > MAX_FLOORS:
        raise LifeEnded(
            f"there are {count:,} moments at which partitions were quiet between here and where the job begins, and a "
            f"start takes {MAX_FLOORS:,}",
            way_out="begin from a newer commit",
        )
    return {front: _packed(*each) for front, each in columns.items()}


def unpack(front: int, packed: bytes) -> list[Floor]:
    """The floors of a front that `pack` was given, plain ones first; none of nothing."""
    if not packed:
        return []
    data = zlib.decompress(packed)
    plain, caps = _COUNTS.unpack_from(data)
    steps, at, columns = np.frombuffer(data, "<i8", offset=_COUNTS.size), 0, []
    for count in (plain, plain, caps, caps):
        columns.append(np.cumsum(steps[at : at + count]).tolist())
        at += count
    offsets, ticks, cap_offsets, cap_ticks = columns
    return [
        *(Floor(front, offset, tick) for offset, tick in zip(offsets, ticks, strict=True)),
        *(Floor(front, offset, tick, cap=True) for offset, tick in zip(cap_offsets, cap_ticks, strict=True)),
    ]


def _packed(offsets: list[int], ticks: list[int], cap_offsets: list[int], cap_ticks: list[int]) -> bytes:
    columns = b"".join(map(_steps, (offsets, ticks, cap_offsets, cap_ticks)))
    return zlib.compress(_COUNTS.pack(len(offsets), len(cap_offsets)) + columns, 1)


def _steps(values: Sequence[int]) -> bytes:
    """The first value, then each one's distance to the one before, 8 bytes each; what overflows wraps, both ways."""
    return np.diff(np.array(values, "<i8"), prepend=np.zeros(1, "<i8")).tobytes()
