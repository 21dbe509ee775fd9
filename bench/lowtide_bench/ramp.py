"""A schedule whose rate rises by steps, and its result: the highest rate at which the lag stays bounded. Pure.

A ramp gives two figures:

- *sustained*: the rate of the last step that was *kept*. Beyond what a system can take the lag grows from step to step,
  so no later step is kept, while the step after a passing disturbance makes up for it. Generator and reader share the
  machine, so this is a rate that the whole machine can keep up for ever. Its resolution is that of the steps.
- *drained*: the speed at which the backlog of the steps above is worked off after the generator has ended. It is the
  higher figure, since batches are full and the generator's share of the processor is free.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from lowtide_bench.arrivals import Arrivals, latency_of_due_ms, null_unless_finite
from lowtide_bench.schedule import NS

DRAIN_LEAST_S = 1.0
"""A backlog worked off sooner gives no figure."""


@dataclass(frozen=True, slots=True)
class Law:
    """Condition under which a step is kept: its lag is neither long nor growing.

    The lag before and the lag at the end are those of the step's first and last quarter.

    Attributes:
        percent: The lag is this percentile of the latencies of all records due; infinite if it is one that never came.
        limit_ms: Limit on the lag at the end.
        growth: Limit on its growth, as a share of the time between; the rate is too high by that much.
        of_lag: Addition to that limit, as a share of the lag before, where batches grow with the rate.
    """

    percent: float
    limit_ms: float
    growth: float
    of_lag: float

    def keeps(self, before_ms: float, lag_ms: float, between_ms: float) -> bool:
        """Return whether a step with these lags is kept, given the time between."""
        return lag_ms <= self.limit_ms and lag_ms - before_ms <= self.growth * between_ms + self.of_lag * before_ms


STRICT = Law(25, 1_000, 0.02, 0)
"""Of a flow: three of four records exceed its lag, so that a short stall does not pass for one."""
WIDE = Law(50, 3_000, 0.05, 0.5)
"""Of all peers alike: some work in batches of a second and more."""


@dataclass(frozen=True)
class Ramp:
    """`rates[0]` records per second for `step_s` seconds, then `rates[1]`, and so on; see `Schedule`.

    Attributes:
        start_ns: Due time of record 0, ns since 1970.
        rates: Records per second of each step, rising.
        step_s: Duration of a step.
        warmup_steps: Number of first steps that do not count.
    """

    start_ns: int
    rates: tuple[int, ...]
    step_s: float
    warmup_steps: int = 0

    @property
    def rate(self) -> int:
        """The highest."""
        return max(self.rates)

    @cached_property
    def firsts(self) -> list[int]:
        """The number of each step's first record, and the number after the last record."""
        return [0, *accumulate(round(rate * self.step_s) for rate in self.rates)]

    @property
    def count(self) -> int:
        """Return the number of records."""
        return self.firsts[-1]

    @property
    def window_ns(self) -> tuple[int, int]:
        """From the first record to the end of the last step."""
        return self.start_ns, self.start_of(len(self.rates))

    def start_of(self, step: int) -> int:
        """Return the start of a step."""
        return self.start_ns + step * round(self.step_s * NS)

    def time_of(self, sequence: int) -> int:
        """Return the due time of a record; for the number after the last, the end."""
        step = bisect_right(self.firsts, sequence) - 1
        if step == len(self.rates):
            return self.start_of(step)
        return self.start_of(step) + (sequence - self.firsts[step]) * NS // self.rates[step]

    def due(self, now_ns: int) -> int:
        """Return the number of records due by a time."""
        if now_ns < self.start_ns:
            return 0
        step = (now_ns - self.start_ns) // round(self.step_s * NS)
        if step >= len(self.rates):
            return self.count
        since = ((now_ns - self.start_of(step) + 1) * self.rates[step] - 1) // NS + 1
        return min(self.firsts[step + 1], self.firsts[step] + since)


@dataclass(frozen=True, slots=True)
class Step:
    """Result of one step.

    Attributes:
        rate: Records per second that were due.
        received_per_s: Messages per second received within the step.
        lag_before_ms: The lag in its first quarter; see `Law`.
        lag_ms: The lag in its last quarter.
        kept: Whether the law says so.
    """

    rate: int
    received_per_s: float
    lag_before_ms: float
    lag_ms: float
    kept: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as in the JSON object; null for an infinite lag."""
        lags = {"lag_before_ms": null_unless_finite(self.lag_before_ms), "lag_ms": null_unless_finite(self.lag_ms)}
        return {"rate": self.rate, "received_per_s": round(self.received_per_s), **lags, "kept": self.kept}


def one_each(count: int) -> int:
    """Return `count`: a record comes out as one message."""
    return count


def steps(arrivals: Arrivals, ramp: Ramp, law: Law = STRICT, outputs: Callable[[int], int] = one_each) -> list[Step]:
    """Return the result of each step that counts; O(steps x messages).

    Args:
        arrivals: All messages that arrived.
        ramp: The schedule of the records.
        law: What a step is kept by.
        outputs: As in `Records`.
    """
    found = []
    quarter_ns = round(ramp.step_s * NS / 4)
    for number, rate in list(enumerate(ramp.rates))[ramp.warmup_steps :]:
        start, end = ramp.start_of(number), ramp.start_of(number + 1)
        before = _lag_ms(arrivals, ramp, (start, start + quarter_ns), law.percent, outputs)
        lag = _lag_ms(arrivals, ramp, (end - quarter_ns, end), law.percent, outputs)
        received = np.count_nonzero((arrivals.received_ns >= start) & (arrivals.received_ns < end))
        kept = law.keeps(before, lag, 3 * quarter_ns / 1e6)
        found.append(Step(rate, received * NS / (end - start), before, lag, kept))
    return found


def sustained(found: list[Step]) -> int:
    """Return the rate of the last step that was kept; 0 if none was."""
    return max((step.rate for step in found if step.kept), default=0)


def drained_per_s(arrivals: Arrivals, ramp: Ramp) -> float | None:
    """Return the speed of working off the backlog after the ramp; None if the backlog was too small."""
    _, end = ramp.window_ns
    late = arrivals.received_ns[arrivals.received_ns >= end]
    lasted_s = (int(late.max()) - end) / NS if len(late) else 0.0
    return round(len(late) / lasted_s, 1) if lasted_s >= DRAIN_LEAST_S else None


def _lag_ms(
    arrivals: Arrivals, ramp: Ramp, window_ns: tuple[int, int], percent: float, outputs: Callable[[int], int]
) -> float:
    first, last = (ramp.due(end_ns - 1) for end_ns in window_ns)
    inside = (arrivals.sequence >= first) & (arrivals.sequence < last)
    return latency_of_due_ms(arrivals.only(inside), outputs(last) - outputs(first), percent)
