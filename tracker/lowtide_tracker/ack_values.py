"""The 64-bit values that acks are made of."""

import numpy as np
from numpy.typing import NDArray

MAX_WORKER = 0xFFFF
"""The largest number of a worker: it takes 16 bits of what a value is made from."""
MAX_VALUES = 1 << 48
"""Values that one worker can make in a life: at a million frames a second, 8.9 years of them."""
BATCH = 256
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class AckValues:
    """Values that no two frames of a life share (R5): a bijection of (worker, counter), keyed by the incarnation.

    Random numbers would not do: processes forked with one generator's state draw the same ones. A bijection of 64 bits
    gives different results for different arguments, in whatever process; the one argument that gives 0 is skipped.
    About 0.1 microseconds per value: they are made 256 at a time.
    """

    def __init__(self, worker: int, incarnation: int) -> None:
        if not 0 <= worker <= MAX_WORKER:
            raise ValueError(f"worker {worker}: numbers of workers go from 0 to {MAX_WORKER}")
        self._first = worker << 48
        self._key = incarnation * _GOLDEN & _MASK
        self._counter = 0
        self._ready: list[int] = []

    def next(self) -> int:
        """The next value, an integer in [1, 2^64)."""
        if not self._ready:
            self._make()
        return self._ready.pop()

    def _make(self) -> None:
        if self._counter >= MAX_VALUES:
            raise OverflowError(f"a worker makes {MAX_VALUES} values in one life; start a new incarnation")
        counters = np.arange(self._counter, self._counter + BATCH, dtype=np.uint64)
        self._counter += BATCH
        made = mix(counters + np.uint64(self._first) ^ np.uint64(self._key))
        self._ready = made[made != 0][::-1].tolist()


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64, a bijection of 64-bit numbers (Steele, Lea, Flood 2014, constants of Stafford)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
