"""Records older than those before them: a front sets floors of its own, and labels depend on log and floors alone."""

from __future__ import annotations

from itertools import accumulate, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Report, Window
from lowtide.core.fronts.own_floors import Grants
from lowtide.core.fronts.source_rows import ROW_BYTES, SourceRows
from lowtide_tracker import Floor

SLACK_MS = 10
LIFT_MS = 50
LIFT_TICKS = LIFT_MS // SLACK_MS
VALUE = b"12345678"
SIZE = ROW_BYTES + len(VALUE)
WIDE = Window(lead_ticks=1 << 40, max_bytes=1 << 40)
NOW_MS = 1_000_000
NOW = NOW_MS // SLACK_MS
LATER_MS = NOW_MS + LIFT_MS
HOUR_MS = 3_600_000


def rows(first: int, stamps: list[int]) -> SourceRows:
    """Messages from an offset on."""
    count = len(stamps)
    return SourceRows(0, list(range(first, first + count)), stamps, [None] * count, [VALUE] * count)


def make(
    window: Window = WIDE,
    *,
    lift_ms: int = LIFT_MS,
    preloaded: int = 0,
    stop: int | None = None,
    opening: int = 0,
    **known: Any,
) -> Front:
    limits = FrontLimits(SLACK_MS, window, 60_000, lift_ms)
    return Front(0, limits, KnownFloors(opening, **known), preloaded=preloaded, stop=stop)


def read(front: Front, stamps: list[int], now_ms: int = NOW_MS, min_time: int | None = None) -> list[int]:
    """Read messages; the labels of what is handed out."""
    front.take(rows(front.next_offset, stamps), now_ms)
    out = front.admitted(front.heartbeat if min_time is None else min_time)
    return [tick for part in out for tick in part.ticks]


def backfilled(window: Window = WIDE, **changes: Any) -> Front:
    """A front that has had one record of now, and has read records of an hour ago for a while since."""
    front = make(window, **changes)
    read(front, [NOW_MS])
    assert read(front, [NOW_MS - HOUR_MS] * 3, LATER_MS) == [NOW] * 3
    return front


def test_a_grant_that_was_read_past_counts_at_the_fronts_own_next_offset() -> None:
    front = backfilled()
    front.report()
    assert front.grant(Floor(0, 2, NOW + 100)), "made when the front stood at offset 2; it is at 4"
    assert front.report() == Report(NOW + 100, (Floor(0, 4, NOW + 100),))
    assert read(front, [NOW_MS - HOUR_MS]) == [NOW + 100]


def test_min_time_goes_on_while_older_records_flow_without_a_gap() -> None:
    """No grant ever finds its offset: another record has been read by then. The front follows by the lift."""
    front, now_ms = backfilled(), LATER_MS
    for _ in range(200):
        look = front.next_offset, now_ms // SLACK_MS
        now_ms += 20
        read(front, [now_ms - HOUR_MS] * 4, now_ms)
        front.grant(Floor(0, *look))
        assert front.heartbeat > look[1] - LIFT_TICKS
    assert len(front.report().floors) <= 200 * 20 // (LIFT_TICKS * SLACK_MS), "one floor per lift at most"


def test_a_grant_ahead_waits_until_the_front_has_come_to_it() -> None:
    """A life that catches up reads what was in the log long before the grant: it keeps the labels of its log."""
    front = backfilled()
    assert not front.grant(Floor(0, 10, NOW + 100))
    assert read(front, [NOW_MS - HOUR_MS] * 5) == [NOW] * 5
    assert not front.grant(Floor(0, 500, NOW + 900)), "the first is reached first, however many newer ones come"
    assert read(front, [NOW_MS - HOUR_MS] * 2) == [NOW] * 2
    assert front.next_offset == 11
    assert read(front, [NOW_MS - HOUR_MS] * 2) == [NOW + 100] * 2


@given(
    steps=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    looks=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10**6)), max_size=20),
    seed=st.integers(0, 1000),
)
def test_a_life_that_catches_up_keeps_the_labels_of_its_log(
    steps: list[int], looks: list[tuple[int, int]], seed: int
) -> None:
    """Grants are for the end of the log, which it comes to last; the broker's time is far ahead, and never quiet."""
    rng, front, now_ms = Random(seed), make(), NOW_MS
    stamps = list(accumulate(steps))
    left, labels = list(stamps), []
    while left:
        for more, tick in looks:
            assert not front.grant(Floor(0, len(stamps) + more, tick))
        size = rng.randint(1, 8)
        now_ms += rng.choice([1, 100])
        labels += read(front, left[:size], now_ms)
        del left[:size]
    assert labels == [stamp // SLACK_MS for stamp in stamps]
    assert front.report().floors == ()


def test_a_producer_that_is_behind_but_in_order_carries_the_time_itself() -> None:
    """A mirror that lags: its timestamps rise, so grants that it has read past do not lift them."""
    front, lag_ms = make(), 10_000
    for now_ms in range(NOW_MS, NOW_MS + 1000, 20):
        assert read(front, [now_ms - lag_ms] * 2, now_ms) == [(now_ms - lag_ms) // SLACK_MS] * 2
        assert not front.grant(Floor(0, front.next_offset - 1, now_ms // SLACK_MS))


def test_records_of_one_timestamp_do_not_stop_the_time_either() -> None:
    front = make()
    for now_ms in range(NOW_MS, NOW_MS + 500, 20):
        read(front, [NOW_MS] * 2, now_ms)
        front.grant(Floor(0, front.next_offset - 1, now_ms // SLACK_MS))
    assert front.heartbeat > now_ms // SLACK_MS - LIFT_TICKS


@st.composite
def executions(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """An event at a front: it reads messages of some age, or a look's grant comes to it."""
    return draw(
        st.lists(
            st.tuples(st.sampled_from(["read", "read", "grant"]), st.integers(1, 6), st.integers(0, 400)), max_size=60
        )
    )


@given(executions(), st.sampled_from([4 * SIZE, 1 << 40]), st.integers(0, 1000))
def test_labels_are_a_function_of_the_log_and_of_the_floors_that_were_reported(
    steps: list[tuple[str, int, int]], max_bytes: int, seed: int
) -> None:
    """R1: another life with the floors of the first one, which reads in other portions, gives the same labels."""
    rng, front = Random(seed), make(Window(1 << 40, max_bytes), lift_ms=20)
    now_ms, log, labels, floors, looks = NOW_MS, [], [], [], [(0, 0)]  # type: ignore[var-annotated]
    for what, count, age_ms in steps:
        now_ms += rng.choice([1, 30])
        if what == "read":
            stamps = [now_ms - age_ms - rng.choice([0, 200]) for _ in range(count)]
            log += stamps
            labels += read(front, stamps, now_ms)
            looks.append((len(log) + rng.choice([0, 0, 3]), now_ms // SLACK_MS))
        else:
            front.grant(Floor(0, *rng.choice(looks)))
        reported = front.report()
        floors += reported.floors
        front.check()
        labels += [tick for part in front.admitted(front.heartbeat) for tick in part.ticks]
    assert all(one <= other for one, other in pairwise(labels))
    later = make(durable=floors, relied_on=front.heartbeat)
    again: list[int] = []
    while len(again) < len(log):
        count = rng.randint(1, 9)
        again += read(later, log[len(again) : len(again) + count], now_ms)
        floors_at = {floor.offset for floor in later.report().floors}
        assert not floors_at - {floor.offset for floor in floors}, "it has no reason for floors of its own"
    assert again == labels


def test_a_tick_that_fills_the_window_is_closed() -> None:
    """R8: the front that holds min time is not stopped, so its older records would fill the memory at one tick."""
    front = backfilled(window=Window(1 << 40, 10 * SIZE))
    held, most = NOW, 0
    for _ in range(50):
        for tick in read(front, [NOW_MS - HOUR_MS] * 3, LATER_MS + 10_000, held):
            assert tick >= held
        most = max(most, front.tick_bytes)
        if not front.pulling:
            held = front.heartbeat  # All below has been dealt with.
            front.admitted(held)
    assert most <= 12 * SIZE
    assert not front.overfull
    assert NOW + 10 < front.heartbeat <= NOW + 20, "one tick for each window's worth, not one for each batch"


def test_a_tick_is_not_closed_beyond_the_brokers_time() -> None:
    front = make(Window(1 << 40, 4 * SIZE))
    read(front, [LATER_MS])  # A producer whose clock is ahead.
    for _ in range(5):
        read(front, [NOW_MS - HOUR_MS] * 3, LATER_MS)
    assert front.heartbeat == LATER_MS // SLACK_MS
    assert front.overfull


def test_a_tick_that_something_relies_on_is_not_closed() -> None:
    """An older life may have let out more of it: the same records would come with another label."""
    for relied_on in (NOW, NOW + 1):
        front = make(Window(1 << 40, 4 * SIZE), relied_on=relied_on)
        read(front, [NOW_MS])
        for _ in range(5):
            read(front, [NOW_MS - HOUR_MS] * 3, LATER_MS)
        assert (front.heartbeat > NOW) == (relied_on == NOW)


def test_a_tick_below_floors_is_closed_if_nothing_was_let_out_of_it() -> None:
    """A backlog from before the life has the label of a floor, and floors of other fronts lie above that."""
    front = make(Window(1 << 40, 4 * SIZE), relied_on=NOW, durable=[Floor(0, 0, NOW)], highest=NOW + 9)
    for _ in range(5):
        read(front, [NOW_MS - HOUR_MS] * 3, LATER_MS + HOUR_MS)
    assert front.heartbeat > NOW
    assert front.next_offset == 15


def test_records_of_one_timestamp_stay_in_one_tick_and_are_reported_as_too_many() -> None:
    """They are in order, and log time is their own: to lift them would make them late."""
    front = make(Window(1 << 40, 10 * SIZE))
    for _ in range(10):
        assert read(front, [NOW_MS] * 3, NOW_MS + HOUR_MS) == [NOW] * 3
    assert front.overfull
    assert front.tick_bytes == 30 * SIZE
    read(front, [NOW_MS + SLACK_MS])
    assert not front.overfull


def test_a_tick_that_is_large_for_the_window_alone_is_no_trouble() -> None:
    """A table that is preloaded at one tick is larger than what may be under way beyond it."""
    front = make(Window(1 << 40, 10 * SIZE, tick_bytes=20 * SIZE))
    for count in (30, 39, 40):
        read(front, [NOW_MS] * (count - front.next_offset))
        assert front.overfull == (count == 40)


def test_what_is_parked_is_waited_for() -> None:
    front = backfilled()
    front.take(rows(4, [NOW_MS - HOUR_MS]), LATER_MS)
    assert not front.grant(Floor(0, 2, NOW + 100)), "a floor after what is parked would let nothing go on"
    front.admitted(NOW)
    assert front.grant(Floor(0, 3, NOW + 101))


def test_preloaded_records_have_one_tick_whatever_is_granted() -> None:
    front = make(Window(1 << 40, 4 * SIZE), preloaded=100, opening=7)
    for _ in range(10):
        assert set(read(front, [NOW_MS - HOUR_MS] * 10, LATER_MS)) == {7}
        assert front.next_offset == 100 or not front.grant(Floor(0, 1, NOW))
    assert front.heartbeat == 8


def test_the_end_of_a_source_is_no_floor() -> None:
    """A grant of the end of time counts at the very offset alone: elsewhere something is left to read."""
    front = backfilled(stop=100)
    assert not front.grant(Floor(0, 2, 1 << 62))
    assert read(front, [NOW_MS - HOUR_MS]) == [NOW]


@pytest.mark.parametrize("distance", [1, 10, 1000])
def test_a_front_that_follows_at_a_distance_reaches_one_grant_after_another(distance: int) -> None:
    grants = Grants()
    for offset in range(5000):
        grants.add(offset + distance, offset)
        behind = offset - grants.tick_at(offset)
        assert offset < distance or behind <= 2 * distance
    assert Grants().tick_at(10) == NO_TICK
