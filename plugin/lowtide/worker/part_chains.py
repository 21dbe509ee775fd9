"""The parts that commits have of a worker's hash units, as far as it knows: they say when a delta is worth it.

They decide no more than that. A delta is right on whatever part its snapshot rests on: the manifest's base is the
commit that the delta is relative to, or a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from lowtide_snapshots.format.entries import Part

MOST_DELTAS = 8
"""The number of deltas in parts of their own after which a unit is written whole."""
MOST_CHANGES = 63
"""The same of all its deltas. A part with those of several units costs a life next to nothing that begins with it."""
SMALL_KEYS = 128
"""A delta of no more keys shares a part with those of other units."""
TURNS = 4
"""So many groups of units are written whole in turn, of those with small deltas.

Whoever writes one whole goes through all keys of its worker, which costs as much as to write 40 of 128 units.
"""
LEAST_BYTES = 8_000
"""A unit with fewer is written whole: a part takes some 2 kB, whatever it has."""
CHANGED_SHARE = 4
"""Of a unit of which more than one key in so many has changed, a delta saves too little."""
BYTES_SHARE = 2
"""A unit is written whole once its deltas have more than one byte for so many of its whole part."""
KNOWN = 32
"""Of so many snapshots that may still be committed it is known what they have."""

Unit = tuple[str, int]
"""Step and hash unit."""


def is_small(changed: int) -> bool:
    """Return whether a delta of so many keys shares a part with those of other units."""
    return changed <= SMALL_KEYS


class Chain(tuple[Part, ...]):
    """The parts of a hash unit in their order: mostly a whole one, and the deltas after it."""

    __slots__ = ()

    @property
    def pays(self) -> bool:
        """True if a delta may follow, and the unit is worth one."""
        whole, deltas = _bytes(self[0]), self[1:]
        alone = sum([not part.units for part in deltas])
        full = alone >= MOST_DELTAS or len(deltas) >= MOST_CHANGES
        return not full and whole >= LEAST_BYTES and sum(map(_bytes, deltas)) * BYTES_SHARE <= whole


def _bytes(part: Part) -> int:
    """Return about the bytes that a part has of one of its units."""
    return part.bytes // len(part.counts_for)


class PartChains:
    """The chains of one worker.

    Args:
        parts: Of the commit that its life began from.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self._chains: dict[Unit, Chain] = {}
        self._written: dict[int, tuple[int, dict[Unit, Part | None]]] = {}
        """By number the T of snapshots that may still be committed, and what they have."""
        for part in parts:
            for unit in part.counts_for:
                self._apply((part.vertex, unit), part)

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the last commit that is known, and of snapshots that may still be committed."""
        yield from chain.from_iterable(self._chains.values())
        for _, written in self._written.values():
            yield from (part for part in written.values() if part is not None)

    def delta_pays(self, unit: Unit, number: int, changed: int, *, shared: bool) -> bool:
        """Return whether to write a unit as a delta of so many keys, in the life's snapshot of this number.

        Units take turns at being written whole, so that no snapshot writes all of them.

        Args:
            unit: The unit.
            number: The snapshot's.
            changed: The number of its keys that have changed.
            shared: Whether small deltas share parts.
        """
        known = self._chains.get(unit)
        if known is None or not known.pays or changed * CHANGED_SHARE > known[0].rows:
            return False
        often = MOST_DELTAS + 1
        cycle, turns = (MOST_CHANGES + 1, TURNS) if shared and is_small(changed) else (often, often)
        return len(known) == 1 or number % cycle != unit[1] % turns * cycle // turns

    def begin(self, number: int, tick: int) -> None:
        """A snapshot is taken."""
        self._written[number] = tick, {}
        if len(self._written) > KNOWN:
            del self._written[min(self._written)]

    def written(self, number: int, unit: Unit, part: Part | None) -> None:
        """A snapshot has a unit's part; None if the unit has no state."""
        if number in self._written:
            self._written[number][1][unit] = part

    def give_up(self, number: int) -> None:
        """A snapshot will not be committed."""
        self._written.pop(number, None)

    def committed(self, tick: int) -> None:
        """A snapshot is committed, newer than those before: later ones rest on it."""
        written = next((parts for its, parts in self._written.values() if its == tick), None)
        if written is None:
            self._chains.clear()  # What it has is not known any more: whole parts are right on anything.
        else:
            for unit, part in written.items():
                self._apply(unit, part)
        self._written = {number: each for number, each in self._written.items() if each[0] > tick}

    def _apply(self, unit: Unit, part: Part | None) -> None:
        before = self._chains.pop(unit, None)
        if part is not None and part.since is None:
            self._chains[unit] = Chain((part,))
        elif part is not None and before is not None:
            self._chains[unit] = Chain((*before, part))
