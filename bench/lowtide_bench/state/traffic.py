"""Keys with their first state, records for them, and what their counts have to be in the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import shake_128
from math import log
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lowtide.core.rows import PackedRows
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide_bench.core_levels import FIRST_MS, FRONT, NOW_NS, SLACK_MS, SPAN_TICKS, VALUE
from lowtide_bench.stored import Padded, flow_of

Spread = Literal["zipf", "uniform"]
SPREADS: tuple[Spread, ...] = ("zipf", "uniform")
Numbers = npt.NDArray[np.int64]

STRIDE = 2_654_435_761
"""A prime: a number's multiples of it reach each of fewer keys, so that popular keys lie far apart."""
FIRST_COUNTS = 1_000
"""Keys begin with a count of 1 to this."""
DRAWN = 10_000
"""Keys are drawn so many at a time."""


def plan_of(state_bytes: int) -> Plan:
    """Return the plan of the running count on one worker."""
    return compile_flow(flow_of(state_bytes, "scan"), parallelism=1, lanes=1, slack_ms=SLACK_MS)


def key_of(number: int) -> bytes:
    """Return a key of 12 bytes."""
    return b"key-%08d" % number


def number_of(key: bytes) -> int:
    """Return a key's number."""
    return int(key[4:])


def first_counts(numbers: Numbers) -> Numbers:
    """Return the counts that keys begin with."""
    return 1 + numbers * STRIDE % FIRST_COUNTS


def padding_of(number: int, state_bytes: int) -> bytes:
    """Return what a key has beside its count; it does not shrink."""
    return shake_128(number.to_bytes(8, "little")).digest(state_bytes)


def entries(numbers: Numbers, state_bytes: int) -> list[tuple[bytes, Any]]:
    """Return keys with the state that they begin with."""
    counts = first_counts(numbers).tolist()
    found: list[tuple[bytes, Any]] = []
    for number, count in zip(numbers.tolist(), counts, strict=True):
        state = Padded(count, padding_of(number, state_bytes)) if state_bytes else count
        found.append((key_of(number), state))
    return found


class Draw:
    """Keys of records, drawn one after the other: the same each time.

    `zipf` is Zipf's law with an exponent of 1, from a continuous density: the key of rank k has a share of
    log((k + 1) / k) / log(n + 1).

    Args:
        keys: The number of keys.
        spread: How popular they are.
        seed: Of the draw.
    """

    def __init__(self, keys: int, spread: Spread, seed: int) -> None:
        self._keys = keys
        self._spread = spread
        self._random = np.random.default_rng(seed)
        self._left = np.empty(0, np.int64)
        self.taken = 0

    def take(self, count: int) -> Numbers:
        """Return the numbers of the next keys."""
        while len(self._left) < count:
            self._left = np.concatenate([self._left, self._drawn()])
        found, self._left = self._left[:count], self._left[count:]
        self.taken += count
        return found

    def _drawn(self) -> Numbers:
        if self._spread == "uniform":
            return self._random.integers(0, self._keys, DRAWN)
        ranks = np.exp(self._random.random(DRAWN) * log(self._keys + 1)).astype(np.int64)
        return np.minimum(ranks, self._keys) * STRIDE % self._keys


def counts_of(keys: int, drawn: Iterable[tuple[Spread, int, int]]) -> Numbers:
    """Return each key's count after some draws, each with its spread, seed and number of records."""
    counts = first_counts(np.arange(keys, dtype=np.int64))
    for spread, seed, records in drawn:
        draw = Draw(keys, spread, seed)
        while (left := records - draw.taken) > 0:
            counts += np.bincount(draw.take(min(left, 1_000_000)), minlength=keys)
    return counts


class Packer:
    """Packs records as the JVM packs messages: their timestamps go over up to `SPAN_TICKS` ticks, and one is empty."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._offset, self._ms = 0, FIRST_MS
        self._last: list[tuple[int, int]] = []
        """The ticks of the last message's records, with the number of records up to each."""

    def message(self, numbers: Numbers) -> bytes:
        """Return a message with records of these keys; there is at least one."""
        n = len(numbers)
        span = min(n, SPAN_TICKS)
        offsets = list(range(self._offset, self._offset + n))
        stamps = [self._ms + place * span // n * SLACK_MS for place in range(n)]
        self._last = [(stamp // SLACK_MS, offset) for stamp, offset in zip(stamps, offsets, strict=True)]
        self._offset, self._ms = self._offset + n, self._ms + (span + 1) * SLACK_MS
        named = [key_of(number) for number in numbers.tolist()]
        keys: list[bytes | None] = [*named]
        values: list[bytes | None] = [
            VALUE.pack(key[4:], at, NOW_NS, 0) for key, at in zip(named, offsets, strict=True)
        ]
        return self._encode(PackedRows(NOW_NS, NOW_NS, "source", FRONT, offsets, stamps, keys, values, None))

    def below(self, tick: int) -> int:
        """Return the number of records below a tick, which is not before the last message."""
        later = [offset for at, offset in self._last if at >= tick]
        return min(later, default=self._offset)


def messages(packer: Packer, draw: Draw, size: int, count: int) -> Iterator[bytes]:
    """Yield messages of one size."""
    for _ in range(count):
        yield packer.message(draw.take(size))
