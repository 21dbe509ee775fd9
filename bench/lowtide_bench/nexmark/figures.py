"""Speed of a query, from its results. Pure; times of receipt in ns, of the log in ms since 1970."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lowtide_bench.arrivals import percentiles
from lowtide_bench.record import Int64s
from lowtide_bench.schedule import NS

NS_PER_MS = NS // 1_000


@dataclass(frozen=True, slots=True)
class Speed:
    """Throughput over a backlog, and latency under a live load.

    Attributes:
        records_per_s: The backlog's records between the event times of its first and last result, divided by the time
            between the receipts of those two. None if the results did not come at two different times.
        p50_ms: From a result's event time to its receipt, under the live load. The event time is a record's own, or
            the end of a window. None if there was no result.
        p99_ms: The same at p99.
        results: Results under the live load.
    """

    records_per_s: float | None
    p50_ms: float | None
    p99_ms: float | None
    results: int

    @classmethod
    def of(cls, came: Int64s, backlog_ms: Int64s, live_ms: int) -> Speed:
        """Compute it.

        Args:
            came: int64[2, n], each result's timestamp and time of receipt.
            backlog_ms: The timestamps of the backlog's records.
            live_ms: The live load's first; results between backlog and load do not count.
        """
        live = came[:, came[0] >= live_ms]
        p50, p99 = percentiles((live[1] - live[0] * NS_PER_MS) / NS_PER_MS, (50, 99)) if live.size else (None, None)
        return cls(_per_s(came, backlog_ms), _rounded(p50), _rounded(p99), live.shape[1])

    def as_json(self) -> dict[str, Any]:
        """Return the object."""
        return asdict(self)


def _per_s(came: Int64s, backlog_ms: Int64s) -> float | None:
    if not backlog_ms.size:
        return None
    old = came[:, came[0] <= backlog_ms.max()]
    if not old.size:
        return None
    between = int(np.count_nonzero((backlog_ms > old[0].min()) & (backlog_ms <= old[0].max())))
    spent = int(old[1].max() - old[1].min())
    return round(between * NS / spent, 1) if spent and between else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
