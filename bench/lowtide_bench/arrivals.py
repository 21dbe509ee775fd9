"""Accounts and percentiles of the records that reached the reader. Pure; all columns are numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
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
        sequence: int64[n], rising: the number of the record that each was made from; without probes.
        sent_ns: int64[n], the time at which each was due.
        stamp_ms: int64[n], Kafka's timestamp: the time at which the source's topic appended it.
        received_ns: int64[n], the time at which the reader first had it.
        duplicated: Messages received beyond the first of each.
        faults: Messages with wrong content; None if unknown.
    """

    sequence: Int64s
    sent_ns: Int64s
    stamp_ms: Int64s
    received_ns: Int64s
    duplicated: int
    faults: int | None = None

    @classmethod
    def of(cls, columns: Int64s, records: Records) -> Self:
        """Interpret the reader's data, int64[4 and more, n] in order of arrival."""
        faults = records.faults(columns[4:])
        columns = columns[:, columns[0] >= 0]
        # `unique` returns the first place of each, and the reader's order is that of arrival.
        identity, first = np.unique(columns[0], return_index=True)
        _, sent, stamp, received = columns[:4, first]
        return cls(identity // records.width, sent, stamp, received, columns.shape[1] - len(identity), faults)

    @classmethod
    def load(cls, file: Path, records: Records) -> Self:
        """Read the reader's file."""
        return cls.of(np.load(file), records)

    def __len__(self) -> int:
        return len(self.sequence)

    def latency_ms(self) -> Floats:
        """Return the time from due to received, float64[n]."""
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
        """Return the messages received per second, by time of receipt within the measured window."""
        start, end = schedule.window_ns
        inside = np.count_nonzero(self._within(start, end))
        return float(inside * NS / (end - start))

    def done(self, window_ns: tuple[int, int]) -> int:
        """Count the records of which something was received from one time on and before another."""
        return len(np.unique(self.sequence[self._within(*window_ns)]))

    def _within(self, start_ns: int, end_ns: int) -> npt.NDArray[np.bool_]:
        return np.asarray((self.received_ns >= start_ns) & (self.received_ns < end_ns))


def percentiles(values: Floats, percents: tuple[float, ...] = (50, 90, 99)) -> list[float]:
    """Return percentiles, each a value that occurred (the next higher one); nan where there are none."""
    if not len(values):
        return [float("nan")] * len(percents)
    return [float(value) for value in np.percentile(values, percents, method="higher")]


def latency_of_due_ms(arrivals: Arrivals, due: int, percent: float) -> float:
    """Return a percentile (see `percentiles`) of the latencies of this many due records; infinite if one never came."""
    latencies = np.sort(arrivals.latency_ms())
    place = int(np.ceil((due - 1) * percent / 100))
    return float(latencies[place]) if place < len(latencies) else float("inf")


def null_unless_finite(milliseconds: float) -> float | None:
    """Return it rounded for JSON; None if it is infinite or nan."""
    return round(milliseconds, 1) if isfinite(milliseconds) else None
