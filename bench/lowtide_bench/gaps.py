"""The longest times without output. Pure.

A gap is the time between two consecutive deliveries, as the reader sees them. An epoch's boundary makes a gap of its
own, so beside the longest of all there is the longest without a boundary in it: *quiet*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide_bench.record import Int64s

BOUNDARY_SLACK_NS = 50_000_000
"""Spark reports an epoch's end in ms, some of which it spends before or after the pause itself."""

Span = tuple[int, int]
"""From, to, in ns since 1970."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """The longest gaps of a window in ms; None if there are none.

    Attributes:
        longest_ms: Of all gaps.
        quiet_ms: Of the gaps without an epoch's boundary.
        during_ms: Of the quiet gaps with a snapshot under way.
        apart_ms: Of the other quiet gaps.
    """

    longest_ms: float | None
    quiet_ms: float | None
    during_ms: float | None
    apart_ms: float | None

    @classmethod
    def longest_of(cls, several: Sequence[Gaps]) -> Gaps:
        """Return the longest of several windows."""

        def longest(values: Iterable[float | None]) -> float | None:
            return max((value for value in values if value is not None), default=None)

        return cls(
            longest(each.longest_ms for each in several),
            longest(each.quiet_ms for each in several),
            longest(each.during_ms for each in several),
            longest(each.apart_ms for each in several),
        )

    def as_json(self) -> dict[str, Any]:
        """Return its entries of the JSON object."""
        return {
            "gap_max_ms": self.longest_ms,
            "gap_quiet_max_ms": self.quiet_ms,
            "gap_with_snapshot_ms": self.during_ms,
            "gap_without_snapshot_ms": self.apart_ms,
        }


def gaps(received_ns: Int64s, window: Span, ends_ns: Sequence[int], snapshots: Sequence[Span] = ()) -> Gaps:
    """Return the longest gaps of a window; O(n log n).

    Args:
        received_ns: Times of receipt of all messages, in any order.
        window: The window; a gap counts if it begins in it.
        ends_ns: End times of epochs.
        snapshots: Times in which snapshots were under way.
    """
    times = np.unique(received_ns)
    starts, ends = times[:-1], times[1:]
    inside = (starts >= window[0]) & (starts < window[1])
    starts, ends = starts[inside], ends[inside]
    boundaries = [(end - BOUNDARY_SLACK_NS, end + BOUNDARY_SLACK_NS) for end in ends_ns]
    quiet = ~_touched(starts, ends, boundaries)
    during = _touched(starts, ends, snapshots)
    lengths = ends - starts
    return Gaps(
        _longest_ms(lengths),
        _longest_ms(lengths[quiet]),
        _longest_ms(lengths[quiet & during]),
        _longest_ms(lengths[quiet & ~during]),
    )


def _touched(starts: Int64s, ends: Int64s, spans: Sequence[Span]) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(starts), np.bool_)
    for first, last in spans:
        found |= (starts <= last) & (ends >= first)
    return found


def _longest_ms(lengths_ns: Int64s) -> float | None:
    return round(float(lengths_ns.max()) / 1e6, 3) if len(lengths_ns) else None
