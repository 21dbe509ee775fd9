"""Cold stores for tests: a sorted dict, and one that takes no misuse and fails when it is to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from random import Random

from lowtide.core.operators.state.cold import LONGEST_KEY_BYTES, Entry
from lowtide.core.operators.state.shelf import Shelves


class DictStore:
    """A sorted dict."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self._order: list[bytes] | None = []

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.values.get, keys))

    def put(self, entries: Sequence[Entry]) -> None:
        self._order = None
        for key, value in entries:
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    def soon(self, keys: Sequence[bytes]) -> None:
        pass

    def range(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if self._order is None:
            self._order = sorted(self.values)
        start = bisect_left(self._order, first)
        stop = min(bisect_left(self._order, end), start + limit)
        return [(key, self.values[key]) for key in self._order[start:stop]]


class StoreFailed(Exception):
    """The store failed, as it was to."""


class CruelStore(DictStore):
    """Refuses what the contract does not allow, and fails in one call.

    Args:
        fails_at: The number of the call that fails, from 1 on; None for none.
    """

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.fails_at = fails_at
        self.calls = 0
        self.frozen = False
        """True where nothing may be written."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._called()
        _check(keys)
        return [None if value is None else bytes(bytearray(value)) for value in super().get(keys)]

    def put(self, entries: Sequence[Entry]) -> None:
        self._called()
        assert not self.frozen, "nothing may be written while a snapshot pins the store"
        keys = [key for key, _ in entries]
        _check(keys)
        assert all(one < other for one, other in pairwise(keys)), "keys ascend, each once"
        super().put(entries)

    def soon(self, keys: Sequence[bytes]) -> None:
        self._called()
        _check(keys)

    def range(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self._called()
        assert first <= end
        assert limit > 0
        return super().range(first, end, limit)

    def _called(self) -> None:
        self.calls += 1
        if self.calls == self.fails_at:
            raise StoreFailed(f"call {self.calls}")


def drawn_shelves(dice: Random) -> Shelves | None:
    """The shelves of one life, on a store that takes no misuse; None for a life that has all in memory."""
    limit = dice.choice([None, 0, 0, 3_000])
    return (
        None
        if limit is None
        else Shelves(CruelStore(), limit, write_at=dice.choice([1, 3, 16]), near_ms=dice.choice([1, 7, 60_000]))
    )


def _check(keys: Sequence[bytes]) -> None:
    assert keys, "no call for nothing"
    assert all(1 <= len(key) <= LONGEST_KEY_BYTES for key in keys)
