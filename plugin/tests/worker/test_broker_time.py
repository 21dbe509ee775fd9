"""The broker's time as an executor knows it."""

from __future__ import annotations

import pytest

from lowtide.worker.broker_time import BrokerTime


def test_what_was_reported_goes_on_with_the_monotonic_clock_whatever_the_machines_clock_says() -> None:
    assert BrokerTime(5_000, 10.0).ms(12.5) == 7_500


def test_the_quickest_word_counts() -> None:
    time = BrokerTime(5_000, 13.0)  # It took 3 s to get here.
    time.update(9_000, 14.001)
    assert time.ms(14.001) == 9_000
    time.update(9_100, 15.0)
    assert time.ms(15.0) == pytest.approx(9_999, abs=2)


def test_a_clock_that_was_ahead_is_not_believed_for_ever() -> None:
    time = BrokerTime(70_000, 0.0)
    for second in range(1, 100_000, 1_000):
        time.update(10_000 + second * 1000, float(second))
    assert time.ms(99_001.0) == pytest.approx(10_000 + 99_001_000, abs=20)
