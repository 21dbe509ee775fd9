"""Keys and the moment at which each is due, of which those not in memory lie in a cold store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from lowtide.core.operators.order.memory import Kept
from lowtide.core.operators.state.away_dues import AwayDues
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.key_dues import Entry, KeyDues
from lowtide.core.operators.state.packing import DUE

Due = tuple[int, int]
"""Tick and moment."""
NEVER: Due = (-1, -(1 << 63))
"""Of a key that is not due: its moment is before all there are."""


class ColdKeyDues(KeyDues):
    """The keys of a shelved step that are due; see `KeyDues` and `Carried`.

    When a key leaves memory, so does the moment at which it is due; it is packed beside its state.

    Args:
        away: When those are due that are not in memory.
        key_bytes: Gives a key's canonical bytes.
        asks_again: When a key is due that a snapshot has with a state: key, hash unit, state, tick of the snapshot.
    """

    def __init__(
        self,
        away: AwayDues,
        key_bytes: Callable[[Key], bytes],
        asks_again: Callable[[Key, int, Any, int], Due | None],
    ) -> None:
        super().__init__()
        self._away = away
        self._made = key_bytes
        self._asks_again = asks_again

    def __len__(self) -> int:
        return super().__len__() + len(self._away)

    @property
    @override
    def kept(self) -> Kept:
        here = super().kept
        return Kept("timers", len(self), here.bytes + self._away.bytes)

    @property
    @override
    def first(self) -> int | None:
        """No key is due before this tick; None if none is due. Who is due there may not be in memory."""
        here, away = super().first, self._away.first
        return here if away is None or (here is not None and here < away) else away

    @override
    def before(self, tick: int) -> list[tuple[Key, int]]:
        return super().before(tick) + self._away.before(tick)

    @override
    def pop(self) -> Entry:
        """See `KeyDues`; who is due first is in memory."""
        assert super().first == self.first, "who is called has been brought into memory"
        return super().pop()

    def leaves(self, key: Key, unit: int) -> bytes:
        """See `Carried`."""
        due = self._due.get(key)
        self.drop(key)
        self._away.left(key, unit, None if due is None else due[0])
        return DUE.pack(*(due or NEVER))

    def came(self, key: Key, unit: int, kept: bytes) -> None:
        """See `Carried`."""
        due = _due(kept)
        if due is not None and self._away.came(key, due[0]):
            self.put(key, unit, *due, self._made)

    def gone(self, key: Key, unit: int, kept: bytes | None) -> None:
        """See `Carried`."""
        due = None if kept is None else _due(kept)
        if due is not None:
            self._away.came(key, due[0])
        self.drop(key)
        self._away.gone(key, unit)

    def restored(self, key: Key, unit: int, state: Any, tick: int) -> bytes:
        """See `Carried`."""
        due = self._asks_again(key, unit, state, tick)
        self._away.left(key, unit, None if due is None else due[0])
        return DUE.pack(*(due or NEVER))

    @override
    def check(self) -> None:
        super().check()
        self._away.check()


def _due(kept: bytes) -> Due | None:
    due: Due = DUE.unpack(kept)
    return None if due == NEVER else due
