"""Durations counted in buckets: cheap to add to, and sums of many workers keep their percentiles."""

from __future__ import annotations

from collections.abc import Mapping

SUB_BITS = 3
"""2**3 buckets per doubling: a percentile is right within 1/8."""


class Histogram:
    """Counts of durations in ns, in logarithmic buckets."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})

    def add(self, duration_ns: int, weight: int = 1) -> None:
        """Count a duration `weight` times; below 0 (two clocks) counts as 0."""
        bucket = _bucket(max(0, duration_ns))
        self.counts[bucket] = self.counts.get(bucket, 0) + weight

    def merge(self, counts: Mapping[int, int]) -> None:
        """Add the counts of another histogram."""
        for bucket, count in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def percentile_ms(self, percent: float) -> float:
        """Return the upper edge of the bucket that holds this percentile, in ms; nan when nothing was counted."""
        total = sum(self.counts.values())
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= total * percent / 100:
                return _upper_ns(bucket) / 1e6
        return float("nan")


def _bucket(ns: int) -> int:
    exponent = max(0, ns.bit_length() - 1 - SUB_BITS)
    return (exponent << SUB_BITS) + (ns >> exponent)


def _upper_ns(bucket: int) -> int:
    exponent = max(0, (bucket >> SUB_BITS) - 1)
    return (bucket - (exponent << SUB_BITS) + 1) << exponent
