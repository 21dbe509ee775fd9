"""Accounts and percentiles of the records that reached the reader. Pure; all columns are numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from lowtide_bench.record import Int64s, Records
from lowtide_bench.schedule import NS, Schedule

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """The messages that arrived, each once, by identity; n of them.

    Attributes:
        sequence: int64[n], rising: the number of the record that each was made of; probes are left out.
        sent_ns: int64[n], when each was due.
        stamp_ms: int64[n], Kafka's timestamp: when the source's topic appended it.
        received_ns: int64[n], when the reader had it, for the first time.
        duplicated: How many more came than different ones.
        faults: How many were wrong by what stands in them; None if that cannot be said.
    """

    sequence: Int64s
    sent_ns: Int64s
    stamp_ms: Int64s
    received_ns: Int64s
    duplicated: int
    faults: int | None = None

    @classmethod
    def of(cls, columns: Int64s, records: Records) -> Self:
        """Make sense of what the reader kept, int64[4 and more, n] in the order of arrival."""
        faults = records.faults(columns[4:])
        columns = columns[:, columns[0] >= 0]
        # `unique` names the first place of each, and the reader's order is that of arrival.
        identity, first = np.unique(columns[0], return_index=True)
        _, sent, stamp, received = columns[:4, first]
        return cls(identity // records.width, sent, stamp, received, columns.shape[1] - len(identity), faults)

    @classmethod
    def load(cls, file: Path, records: Records) -> Self:
        """Read what the reader saved."""
        return cls.of(np.load(file), records)

    def __len__(self) -> int:
        return len(self.sequence)

    def latency_ms(self) -> Floats:
        """From due to received, float64[n]."""
        return np.asarray((self.received_ns - self.sent_ns) / 1e6)

    def only(self, mask: npt.NDArray[np.bool_]) -> Arrivals:
        """Return those with True in a mask."""
        return replace(
            self,
            sequence=self.sequence[mask],
            sent_ns=self.sent_ns[mask],
            stamp_ms=self.stamp_ms[mask],
            received_ns=self.received_ns[mask],
        )

    def measured(self, schedule: Schedule) -> Arrivals:
        """Return those that count: sent after the warm-up."""
        return self.only(self.sequence >= schedule.warmup_count)

    def sustained_per_s(self, schedule: Schedule) -> float:
        """Messages received a second, counted by time of receipt within the window that is measured."""
        start, end = schedule.window_ns
        inside = np.count_nonzero(self._within(start, end))
        return float(inside * NS / (end - start))

    def done(self, window_ns: tuple[int, int]) -> int:
        """Return of how many records something was received from a time on, and before another."""
        return len(np.unique(self.sequence[self._within(*window_ns)]))

    def _within(self, start_ns: int, end_ns: int) -> npt.NDArray[np.bool_]:
        return np.asarray((self.received_ns >= start_ns) & (self.received_ns < end_ns))


def percentiles(values: Floats, percents: tuple[float, ...] = (50, 90, 99)) -> list[float]:
    """Return percentiles, each a value that occurred (the next higher one); nan where there are none."""
    if not len(values):
        return [float("nan")] * len(percents)
    return [float(value) for value in np.percentile(values, percents, method="higher")]
