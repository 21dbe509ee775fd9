"""Frames that are far ahead of min time wait; what is let go, when, in which order, and what their acks come to."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from lowtide.core.early_frames import Early, Optimism
from lowtide.core.effects import Frame
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey


@dataclass(frozen=True)
class Row:
    tick: int
    arrival: int


def frame(ticks: list[int], *, first: int = 0, value: int = 1, vertex: int = 3) -> Frame:
    """A frame of 10 bytes a record; its records say their ticks, and when they came."""
    ats = [OrderKey(tick, 0, first + place).packed() for place, tick in enumerate(ticks)]
    rows = [Row(tick, first + place) for place, tick in enumerate(ticks)]
    return Frame(vertex, 0, value, sorted(set(ticks)), Batch(ats, [0] * len(ats), rows), bytes(10 * len(ats)))


def rows(groups: list[list[Frame]]) -> list[Row]:
    return [row for group in groups for each in group for row in each.batch.rows]


def test_without_a_window_everything_passes_at_once() -> None:
    early = Early(None, 0)
    frames = [frame([10**9], vertex=1), frame([5], vertex=1), frame([7], vertex=2)]
    assert early.take(frames, 0) == [frames[:2], frames[2:]]
    assert not early
    assert early.due(0) == []


def test_what_lies_in_the_window_passes_and_the_rest_waits() -> None:
    early = Early(Optimism(10), 1000)
    near, far = frame([3, 9]), frame([10, 12], first=2)
    assert early.take([near, far], 0) == [[near]]
    assert len(early) == 1
    assert early.due(0) == []
    assert early.due(3) == [[far]]
    assert not early


def test_a_frame_is_cut_where_the_window_ends_and_each_part_folds_its_own_ticks() -> None:
    early = Early(Optimism(10), 1000)
    whole = frame([12, 8, 9, 12, 30], value=77)
    (((now,),), ()) = early.take([whole], 0), early.due(2)
    assert (now.ticks, now.value, [row.tick for row in now.batch.rows]) == ([8, 9], 77, [8, 9])
    ((second,),) = early.due(3)
    assert (second.ticks, second.value, [row.arrival for row in second.batch.rows]) == ([12], 77, [0, 3])
    ((third,),) = early.due(21)
    assert (third.ticks, third.value) == ([30], 77)


def test_frames_of_one_exchange_that_become_due_together_are_given_together() -> None:
    early = Early(Optimism(1), 1000)
    first, second = frame([9, 11], vertex=1), frame([8, 10], first=5, vertex=1)
    other = frame([8], first=8, vertex=2)
    assert early.take([first, second, other], 0) == []
    assert [[each.vertex for each in group] for group in early.due(9)] == [[1, 1], [2]]


def test_what_would_be_too_much_is_let_go_by_ticks_whatever_the_window_says() -> None:
    early = Early(Optimism(10), 30)
    assert early.take([frame([100, 101, 115])], 0) == []
    (given,) = early.take([frame([90, 101, 130], first=3)], 0)
    arrived = [(row.tick, row.arrival) for each in given for row in each.batch.rows]
    assert arrived == [(100, 0), (101, 1), (90, 3), (101, 4)]
    assert rows(early.due(130)) == [Row(115, 2), Row(130, 5)]


def test_a_worker_with_nothing_else_to_do_is_given_what_a_wider_window_holds() -> None:
    early = Early(Optimism(4), 1000)
    assert early.take([frame([5]), frame([9], first=1), frame([40], first=2)], 0) == []
    assert early.restless
    assert rows(early.rest(0)) == [Row(5, 0)]
    assert rows(early.rest(0)) == [Row(9, 1)]
    assert [rows(early.rest(0)) for _ in range(2)] == [[], [Row(40, 2)]]
    assert not early


def test_a_worker_whose_guesses_were_taken_back_rests() -> None:
    window = Optimism(4)
    early = Early(window, 1000)
    early.take([frame([50])], 0)
    window.worked(100, 100)
    assert not early.restless


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_early_and_records_of_one_tick_keep_the_order_in_which_they_came(seed: int) -> None:
    rng = Random(seed)
    window, min_time, arrived = rng.randint(1, 12), 0, 0
    early = Early(Optimism(window), 10**6)
    given: list[Row] = []
    folded: dict[int, int] = {}
    for _ in range(60):
        if rng.random() < 0.6:
            ticks = [min_time + rng.randint(0, 25) for _ in range(rng.randint(1, 6))]
            made = frame(ticks, first=arrived, value=rng.getrandbits(63))
            arrived += len(ticks)
            for tick in made.ticks:
                folded[tick] = folded.get(tick, 0) ^ made.value
            groups = early.take([made], min_time)
        else:
            open_ticks = [tick for tick, value in folded.items() if value]
            min_time = max(min_time, min(open_ticks, default=min_time + rng.randint(0, 5)))
            groups = early.due(min_time)
        for each in (each for group in groups for each in group):
            assert each.ticks == sorted({row.tick for row in each.batch.rows})
            for tick in each.ticks:
                folded[tick] ^= each.value
        now = rows(groups)
        assert all(row.tick < min_time + window for row in now)
        given += now
    while early:
        min_time = min(tick for tick, value in folded.items() if value)
        groups = early.due(min_time)
        assert groups, "the lowest tick that is open is never held"
        for each in (each for group in groups for each in group):
            for tick in each.ticks:
                folded[tick] ^= each.value
        given += rows(groups)
    assert sorted(row.arrival for row in given) == list(range(arrived))
    assert not any(folded.values())
    for tick in folded:
        arrivals = [row.arrival for row in given if row.tick == tick]
        assert arrivals == sorted(arrivals)
