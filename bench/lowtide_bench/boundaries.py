"""The records that epoch boundaries held up. Pure.

A boundary is the time at which Spark ended an epoch, by its own progress report: everything read in the epoch is out,
and nothing of the next has been read. The first record that the reader gets after it shows that the flow continues.
*Caught* records were under way at that moment: due before it, received at it or later. No other record is left out of
any percentile, so whatever still waits after the caught ones counts in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowtide_bench.arrivals import Arrivals


@dataclass(frozen=True, slots=True, eq=False)
class Boundaries:
    """The effect of boundaries on records.

    Attributes:
        caught: bool[n], True for a record that was caught.
        stalls_ms: For each boundary, the longest latency of a record it caught, in order of time.
    """

    caught: npt.NDArray[np.bool_]
    stalls_ms: list[float]


def find(arrivals: Arrivals, ends_ns: Sequence[int]) -> Boundaries:
    """Return which of the arrivals were caught by epochs that ended at these times; O(epochs x records)."""
    caught = np.zeros(len(arrivals), dtype=np.bool_)
    stalls = []
    latency = arrivals.latency_ms()
    for end in sorted(ends_ns):
        later = arrivals.received_ns[arrivals.received_ns >= end]
        # A boundary before the first record or after the last held up nothing in the measurement.
        if not len(later) or not np.any(arrivals.received_ns < end):
            continue
        goes_on = later.min()
        here = (arrivals.sent_ns <= goes_on) & (arrivals.received_ns >= goes_on)
        caught |= here
        stalls.append(round(float(latency[here].max()), 3))
    return Boundaries(caught, stalls)
