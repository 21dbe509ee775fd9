import math

import pytest

from lowtide.histogram import Histogram, _bucket, _upper_ns


@pytest.mark.parametrize("ns", [0, 1, 7, 8, 9, 15, 16, 17, 1000, 999_999, 123_456_789, 10**12])
def test_a_bucket_holds_its_durations_within_an_eighth(ns: int) -> None:
    upper = _upper_ns(_bucket(ns))
    assert ns < upper <= max(ns + 1, ns * 9 / 8 + 1)


def test_buckets_rise_with_durations() -> None:
    buckets = [_bucket(ns) for ns in range(5000)]
    assert buckets == sorted(buckets)


def test_percentiles_of_merged_counts_are_those_of_all() -> None:
    one, other, both = Histogram(), Histogram(), Histogram()
    for i in range(1, 1001):
        (one if i % 2 else other).add(i * 10_000)
        both.add(i * 10_000)
    one.merge(other.counts)
    assert one.percentile_ms(50) == both.percentile_ms(50) == pytest.approx(5.0, rel=0.125)
    assert one.percentile_ms(99) == pytest.approx(9.9, rel=0.125)
    assert math.isnan(Histogram().percentile_ms(50))
