"""What travels with every record besides its data: its order key, and whether it takes an earlier record back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Child = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the log a record, or the record it was made of, stands."""

    front: int
    sequence: int

    def __str__(self) -> str:
        return f"front {self.front}, offset {self.sequence}"


@dataclass(frozen=True, slots=True, eq=False)
class Meta:
    """The order keys of n records, column-wise (papers: *Ordering model*).

    Attributes:
        tick: int64[n], the label.
        front: int32[n], the source partition's number.
        sequence: int64[n], the Kafka offset.
        child: uint32[n, width], the child path; elements are 1 and more, packed to the left, 0 means none.
        trace: uint64[n], the XOR of the ids of what the record went through.
        tombstone: bool[n], True where the record takes back an earlier one with the same order key.
        unit: int32[n], the hash unit; None before the first exchange.
    """

    tick: npt.NDArray[np.int64]
    front: npt.NDArray[np.int32]
    sequence: npt.NDArray[np.int64]
    child: Child
    trace: npt.NDArray[np.uint64]
    tombstone: npt.NDArray[np.bool_]
    unit: npt.NDArray[np.int32] | None = None

    @classmethod
    def of_source(cls, front: int, trace: int, sequence: npt.NDArray[np.int64], tick: npt.NDArray[np.int64]) -> Meta:
        """The meta of messages as they come from one front."""
        n = len(sequence)
        return cls(
            tick,
            np.full(n, front, np.int32),
            sequence,
            np.empty((n, 0), np.uint32),
            np.full(n, trace, np.uint64),
            np.zeros(n, np.bool_),
        )

    @classmethod
    def concat(cls, metas: Sequence[Meta]) -> Meta:
        """The metas one after the other, child paths padded to the widest; either all have units or none."""
        if len(metas) == 1:
            return metas[0]
        width = max(meta.child.shape[1] for meta in metas)
        units = [meta.unit for meta in metas if meta.unit is not None]
        assert len(units) in (0, len(metas)), "records with and without hash units do not mix"
        return cls(
            np.concatenate([meta.tick for meta in metas]),
            np.concatenate([meta.front for meta in metas]),
            np.concatenate([meta.sequence for meta in metas]),
            np.concatenate([padded(meta.child, width) for meta in metas]),
            np.concatenate([meta.trace for meta in metas]),
            np.concatenate([meta.tombstone for meta in metas]),
            np.concatenate(units) if units else None,
        )

    def __len__(self) -> int:
        return len(self.sequence)

    def take(self, indices: Indices | npt.NDArray[np.bool_] | slice) -> Meta:
        """The meta of the records at these indices, any number of times each; copies, unless it is a slice."""
        return Meta(
            self.tick[indices],
            self.front[indices],
            self.sequence[indices],
            self.child[indices],
            self.trace[indices],
            self.tombstone[indices],
            None if self.unit is None else self.unit[indices],
        )

    def with_unit(self, unit: npt.NDArray[np.int32]) -> Meta:
        """The same with these hash units."""
        return replace(self, unit=unit)

    def with_trace(self, ids: npt.NDArray[np.uint64] | np.uint64) -> Meta:
        """The same with these ids folded into the trace: of an operator, one for all or one per record."""
        return replace(self, trace=self.trace ^ ids)

    def with_tombstone(self, tombstone: npt.NDArray[np.bool_]) -> Meta:
        """The same with these flags."""
        return replace(self, tombstone=tombstone)

    def with_child(self, element: npt.NDArray[np.uint32] | int) -> Meta:
        """The same with one more element at the end of every child path, one for all or one per record (R4)."""
        return replace(self, child=_appended(self.child, element))

    def position(self, index: int) -> Position:
        """Where one record stands."""
        return Position(int(self.front[index]), int(self.sequence[index]))

    def ticks(self) -> list[int]:
        """The distinct ticks, ascending."""
        tick = self.tick
        if len(tick) and tick[0] == tick[-1] and (tick == tick[0]).all():
            return [int(tick[0])]
        distinct: list[int] = np.unique(tick).tolist()
        return distinct


def padded(child: Child, width: int) -> Child:
    """Child paths in `width` columns; copies unless they have them already."""
    missing = width - child.shape[1]
    assert missing >= 0, f"a child path of {child.shape[1]} elements does not fit into {width}"
    if missing == 0:
        return child
    result = np.zeros((len(child), width), np.uint32)
    result[:, : child.shape[1]] = child
    return result


def _appended(child: Child, element: npt.NDArray[np.uint32] | int) -> Child:
    n, width = child.shape
    if width == 0 or bool(child[:, -1].all()):
        result = np.empty((n, width + 1), np.uint32)
        result[:, :width] = child
        result[:, width] = element
        return result
    # Paths of several lengths: each goes on where it ends.
    lengths = np.count_nonzero(child, axis=1)
    result = padded(child, max(width, int(lengths.max(initial=0)) + 1)).copy()
    result[np.arange(n), lengths] = element
    return result
