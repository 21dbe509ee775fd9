"""How far ahead of min time it pays to work."""

from __future__ import annotations

import pytest

from lowtide.core.early_frames import COSTLY, MAX_TICKS, PERIOD_RECORDS, Optimism


def test_a_worker_that_would_rest_goes_twice_as_far() -> None:
    window = Optimism(25)
    for ticks in (50, 100, 200):
        assert window.pays
        window.widen()
        assert window.ticks == ticks


def test_the_window_has_no_limit_that_a_log_could_reach() -> None:
    window = Optimism(1)
    while window.pays:
        window.widen()
    assert window.ticks == MAX_TICKS


def test_it_is_halved_as_long_as_much_is_taken_back_and_never_below_one_tick() -> None:
    window = Optimism(8)
    seen = []
    for _ in range(6):
        window.worked(PERIOD_RECORDS // 2, PERIOD_RECORDS // 2)
        seen.append(window.ticks)
    assert seen == [4, 2, 1, 1, 1, 1]


def test_guesses_that_cost_too_much_are_not_widened_until_work_was_left_alone() -> None:
    window = Optimism(8)
    window.worked(PERIOD_RECORDS, PERIOD_RECORDS)
    assert window.ticks == 4
    paid = []
    for _ in range(5):
        paid.append(window.pays)
        window.worked(PERIOD_RECORDS, 0)
    assert paid[0] is False
    assert paid[4] is True, "after a few periods in which little is taken back"


def test_a_few_repairs_change_nothing() -> None:
    window = Optimism(8)
    for _ in range(20):
        window.worked(PERIOD_RECORDS, int(PERIOD_RECORDS * COSTLY / 4))
    assert window.ticks == 8
    assert window.pays


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="wait for itself"):
        Optimism(0)
