"""Lag of a system at a rate, and whether it keeps up: over all records that were due, not only those that came.

A system keeps up with a rate if the lag at the end of the rate's step is neither long nor growing. Some systems work in
batches of a second and more, so the limits are wider than those of `lowtide bench throughput`, and the same for all.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide_bench.arrivals import Arrivals
from lowtide_bench.ramp import Ramp
from lowtide_bench.schedule import NS

LAG_LIMIT_MS = 3_000.0
GROWTH_LIMIT = 0.05
"""Limit on the growth, as a share of the time from the step's first quarter to its last."""
GROWTH_OF_LAG = 0.5
"""Addition to that limit, as a share of the lag before: batches grow with the rate."""


@dataclass(frozen=True, slots=True)
class Step:
    """One rate of a ramp.

    Attributes:
        rate: Records per second.
        lag_before_ms: The median latency of the records due in its first quarter.
        lag_ms: The same for its last quarter; infinite if half of them never came.
        kept: Whether the system kept up with it.
    """

    rate: int
    lag_before_ms: float
    lag_ms: float
    kept: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as in the JSON object; null for an infinite lag."""
        lags = {"lag_before_ms": finite(self.lag_before_ms), "lag_ms": finite(self.lag_ms)}
        return {"rate": self.rate, **lags, "kept": self.kept}


def steps(arrivals: Arrivals, ramp: Ramp) -> list[Step]:
    """Return the result of each step that counts."""
    found = []
    quarter_ns = round(ramp.step_s * NS / 4)
    for number, rate in list(enumerate(ramp.rates))[ramp.warmup_steps :]:
        start, end = ramp.start_of(number), ramp.start_of(number + 1)
        before = _median_ms(arrivals, ramp, start, start + quarter_ns)
        lag = _median_ms(arrivals, ramp, end - quarter_ns, end)
        allowed = GROWTH_LIMIT * 3 * quarter_ns / 1e6 + GROWTH_OF_LAG * before
        found.append(Step(rate, before, lag, lag <= LAG_LIMIT_MS and lag - before <= allowed))
    return found


def latency_ms(arrivals: Arrivals, due: int, percent: float) -> float:
    """Return a percentile of the latencies of this many due records; infinite where it is one that never came.

    The next higher value that occurred, as in `lowtide_bench.arrivals.percentiles`.
    """
    latencies = np.sort(arrivals.latency_ms())
    place = int(np.ceil((due - 1) * percent / 100))
    return float(latencies[place]) if place < len(latencies) else float("inf")


def finite(milliseconds: float) -> float | None:
    """Return it rounded for JSON; None if it is infinite."""
    return round(milliseconds, 1) if milliseconds < float("inf") else None


def _median_ms(arrivals: Arrivals, ramp: Ramp, start_ns: int, end_ns: int) -> float:
    first, last = ramp.due(start_ns - 1), ramp.due(end_ns - 1)
    inside = (arrivals.sequence >= first) & (arrivals.sequence < last)
    return latency_ms(arrivals.only(inside), last - first, 50)
