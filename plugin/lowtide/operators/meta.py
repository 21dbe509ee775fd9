"""What travels with every record besides its data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Position:
    """Where in the log a record, or the record it was made of, stands."""

    front: int
    sequence: int

    def __str__(self) -> str:
        return f"front {self.front}, offset {self.sequence}"


@dataclass(frozen=True, slots=True, eq=False)
class Meta:
    """The positions of n records, column-wise.

    Attributes:
        front: int32[n], the source partition's number.
        sequence: int64[n], the Kafka offset.
        timestamp: int64[n], the log's timestamp in ms.
        unit: int32[n], the hash unit; None before the first exchange.
    """

    front: npt.NDArray[np.int32]
    sequence: npt.NDArray[np.int64]
    timestamp: npt.NDArray[np.int64]
    unit: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.sequence)

    def take(self, indices: npt.NDArray[np.int64]) -> Meta:
        """The meta of the records at these indices, any number of times each; copies."""
        unit = None if self.unit is None else self.unit[indices]
        return Meta(self.front[indices], self.sequence[indices], self.timestamp[indices], unit)

    def with_unit(self, unit: npt.NDArray[np.int32]) -> Meta:
        """The same with these hash units."""
        return replace(self, unit=unit)

    def position(self, index: int) -> Position:
        """Where one record stands."""
        return Position(int(self.front[index]), int(self.sequence[index]))
