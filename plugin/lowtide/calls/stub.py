"""A fake of an outside service, for tests: slow and failing by chance, the same in every run."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from lowtide.calls.inside import call_key


class Stub:
    """A function for a call that answers from a function or a table, after a delay, or fails.

    Delays and failures are drawn from the seed, the call key and the number of the try: they are the same in every
    run, and a question whose first try fails may be answered at its second.

    Attributes:
        asked: The number of tries per call key, in this process.

    Args:
        answers: A function from a record to its result, or a table of them.
        seed: Another number gives other delays and failures.
        fails: The share of tries that fail, by a ConnectionResetError.
        slow_s: The longest delay of a try, in s; it is any one from 0 s.

    Example:
        >>> service = lowtide.testing.Stub({Item("tea"): Price("tea", 3)}, fails=0.5)
        >>> flow.run_locally(items=[Item("tea")], answers={"price": service})
        {'prices': [Price(product='tea', euros=3)]}
    """

    def __init__(
        self,
        answers: Callable[[Any], Any] | Mapping[Any, Any],
        *,
        seed: int = 0,
        fails: float = 0.1,
        slow_s: float = 0.0,
    ) -> None:
        self.asked: Counter[str] = Counter()
        self._answer = answers.__getitem__ if isinstance(answers, Mapping) else answers
        self._seed = seed
        self._fails = fails
        self._slow_s = slow_s

    async def __call__(self, record: Any) -> Any:
        """Return the record's result; the errors of a try are ConnectionResetError and whatever the answers raise."""
        key = call_key()
        self.asked[key] += 1
        drawn = hashlib.blake2b(f"{self._seed}/{key}/{self.asked[key]}".encode(), digest_size=8).digest()
        delay, chance = (int.from_bytes(half, "big") / (1 << 32) for half in (drawn[:4], drawn[4:]))
        if self._slow_s:
            await asyncio.sleep(delay * self._slow_s)
        if chance < self._fails:
            raise ConnectionResetError(f"the stub fails try {self.asked[key]} of {key}")
        return self._answer(record)
