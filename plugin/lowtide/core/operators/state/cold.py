"""The store behind the groups of a step: keys that are not in memory, asked for once per batch.

It is scratch: what it holds is also in the log and in snapshots, and no life reads that of another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

LONGEST_KEY_BYTES = 511
"""No key is longer: the limit of the store that is built in."""

Entry = tuple[bytes, bytes | None]
"""A key and its value; None where the key is to be deleted."""


class ColdStore(Protocol):
    """Values by keys, in the order of the keys' bytes.

    It is made outside the core and given to it, like time. Any call may raise: what a store has lost, the life that
    uses it has lost.
    """

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, None where it has none.

        Args:
            keys: n keys of 1 to `LONGEST_KEY_BYTES` bytes, in any order.
        """
        ...

    def put(self, entries: Sequence[Entry]) -> None:
        """Put and delete, all or nothing: of a key that has a value this takes its place.

        Args:
            entries: n entries, ascending by key, each key once. Deleting a key that is not there is no fault.
        """
        ...

    def soon(self, keys: Sequence[bytes]) -> None:
        """A hint that these keys are to be asked for or put soon, in any order; it may do nothing."""
        ...

    def range(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Up to `limit` keys with their values, ascending, from `first` on and below `end`."""
        ...
