"""The clock: what time itself brings to a step, and where that stands in the order.

What a window gives at tick c stands before all records of tick c, at front -1. Its sequence is the step's number in the
plan times the hash units plus the unit: plans are topological, so of two steps due at one tick the upstream one comes
first, and its results are in time for the downstream one. Its child path is a number, counted from 1 in each unit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import CLOCK, SIGN_32, SIGN_64, Position, packer, step_id, tail_of, tick_bytes
from lowtide.flow.plan.plan import Plan, Vertex

__all__ = ["CLOCK", "ClockKeys", "Due", "before_clock", "parted_at_the_clock"]

_CLOCK_32 = SIGN_32 + CLOCK
_FIRST_FRONT = SIGN_32.to_bytes(4, "big")


class Due(NamedTuple):
    """One window that closes; of one tick they stand in this order, as tuples.

    Attributes:
        unit: The hash unit of its key.
        end: Its end in microseconds; all windows of a step wait equally long.
        start: Its start.
        key_bytes: Its key's canonical bytes.
        key: Its key.
        state: What is kept of it.
    """

    unit: int
    end: int
    start: int
    key_bytes: bytes
    key: object
    state: object


class ClockKeys:
    """The order keys of what time brings to one step.

    Args:
        plan: The plan.
        vertex: The step.
    """

    def __init__(self, plan: Plan, vertex: Vertex) -> None:
        self._first = vertex.id * plan.units
        self._job = plan.name
        self._name = vertex.name
        self._tails: dict[int, bytes] = {}

    def position(self, unit: int) -> Position:
        """Return its position, for errors."""
        return Position(CLOCK, self._first + unit)

    def of(self, tick: int, unit: int) -> Callable[[int], bytes]:
        """Return a function that gives the n-th key of a tick and hash unit."""
        tail = self._tails.get(unit)
        if tail is None:
            tail = self._tails[unit] = tail_of(step_id(self._job, self._name, 0, unit))
        pack, head = packer(1)[0], (tick + SIGN_64, _CLOCK_32, self._first + unit + SIGN_64)
        return lambda number: pack(*head, number.to_bytes(4, "big") + tail)


def before_clock(at: bytes) -> bool:
    """Return whether a record comes before what is due at its tick: a clock upstream has brought it."""
    return at[8:12] < _FIRST_FRONT


def parted_at_the_clock(batch: Batch, tick: int) -> tuple[Batch | None, Batch | None]:
    """Records of one tick, in order: what time brought to steps upstream, and the others, which come after it."""
    ats = batch.ats
    if not before_clock(ats[0]):
        return None, batch
    cut = bisect_left(ats, tick_bytes(tick) + _FIRST_FRONT)
    if cut == len(ats):
        return batch, None
    return batch.slice(0, cut, [tick]), batch.slice(cut, len(ats), [tick])
