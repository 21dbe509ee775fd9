"""The 64-bit values that acks are made of."""

MAX_WORKER = 0xFFFF
"""The largest number of a worker: it takes 16 bits of what a value is made from."""
MAX_VALUES = 1 << 48
"""Values that one worker can make in a life: at a million frames a second, 8.9 years of them."""
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class AckValues:
    """Values that no two frames of a life share (R5): a bijection of (worker, counter), keyed by the incarnation.

    Random numbers would not do: processes forked with one generator's state draw the same ones. A bijection of 64 bits
    gives different results for different arguments, in whatever process; the one argument that gives 0 is skipped.
    About half a microsecond per value.
    """

    def __init__(self, worker: int, incarnation: int) -> None:
        if not 0 <= worker <= MAX_WORKER:
            raise ValueError(f"worker {worker}: a worker's number must be 0 to {MAX_WORKER}")
        self._first = worker << 48
        self._key = incarnation * _GOLDEN & _MASK
        self._counter = 0

    def next(self) -> int:
        """The next value, an integer in [1, 2^64)."""
        while True:
            counter = self._counter
            if counter >= MAX_VALUES:
                raise OverflowError(f"a worker can make {MAX_VALUES} values in one life; start a new incarnation")
            self._counter = counter + 1
            value = mix((self._first + counter) ^ self._key)
            if value:
                return value


def mix(x: int) -> int:
    """The finaliser of splitmix64, a bijection of 64-bit numbers (Steele, Lea, Flood 2014, constants of Stafford)."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return x ^ (x >> 31)
