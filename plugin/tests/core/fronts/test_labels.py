"""Labels, by the names of their laws (R1), against the formula record by record."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.fronts.labels import Clock, calm_labels, label
from lowtide.core.fronts.source_rows import SourceRows
from lowtide_tracker import Floor

SLACK = 10
MAX_FUTURE = 100
Log = list[tuple[int, int]]
"""(offset, timestamp)"""

NEVER = Clock(SLACK, 1 << 60, 0)
"""Believes everything."""


def run(log: Log, floors: Floors, cuts: list[int], clock: Clock = NEVER, before: int = NO_TICK) -> list[int]:
    """Labels of a log that comes in batches; new caps are added to the floors."""
    out: list[int] = []
    offsets, timestamps = [offset for offset, _ in log], [timestamp for _, timestamp in log]
    places = sorted({0, len(log), *(cut % (len(log) + 1) for cut in cuts)})
    for start, stop in pairwise(places):
        part = slice(start, stop)
        ticks, caps = label(0, offsets[part], timestamps[part], before=before, floors=floors, clock=clock)
        floors.merge(caps)
        before = ticks[-1]
        out += ticks
    return out


def model(log: Log, floors: list[Floor], clock: Clock = NEVER, before: int = NO_TICK) -> list[int]:
    """R1, as it is written."""
    out = []
    caps = {floor.offset: floor.tick for floor in sorted(floors) if floor.cap}
    for offset, timestamp in log:
        tick = timestamp // clock.slack_ms
        if timestamp > clock.now_ms + clock.max_future_ms:
            tick = clock.now_ms // clock.slack_ms
        tick = caps.get(offset, tick)
        floor = max((f.tick for f in floors if f.offset <= offset and not f.cap), default=NO_TICK)
        before = max(before, tick, floor)
        out.append(before)
    return out


@st.composite
def logs(draw: st.DrawFn) -> Log:
    steps = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(-60, 400)), min_size=1, max_size=25))
    offset, log = -1, []
    for step, timestamp in steps:
        offset += step
        log.append((offset, timestamp))
    return log


floor_lists = st.lists(st.builds(Floor, st.just(0), st.integers(0, 40), st.integers(-8, 40), st.booleans()), max_size=6)
cuts = st.lists(st.integers(0, 100), max_size=6)


@settings(max_examples=300)
@given(logs(), floor_lists, cuts, st.integers(-10, 20))
def test_labels_are_the_formula_and_do_not_depend_on_framing(
    log: Log, floors: list[Floor], cuts: list[int], before: int
) -> None:
    expected = model(log, floors, before=before)
    assert run(log, Floors(floors), cuts, before=before) == expected
    assert run(log, Floors(floors), list(range(len(log))), before=before) == expected


@given(logs(), floor_lists, cuts)
def test_a_label_is_never_below_a_floor_nor_below_the_label_before(
    log: Log, floors: list[Floor], cuts: list[int]
) -> None:
    known = Floors(floors)
    labels = run(log, known, cuts)
    assert all(tick >= known.tick_at(0, offset) for tick, (offset, _) in zip(labels, log, strict=True))
    assert labels == sorted(labels)


@settings(max_examples=300)
@given(logs(), floor_lists, cuts, cuts, st.integers(0, 400), st.integers(0, 400))
def test_a_later_life_labels_the_same_with_the_caps_of_the_earlier_one(
    log: Log, floors: list[Floor], first_cuts: list[int], later_cuts: list[int], now: int, later: int
) -> None:
    known = Floors(floors)
    first = run(log, known, first_cuts, Clock(SLACK, now, MAX_FUTURE))
    assert first == model(log, floors, Clock(SLACK, now, MAX_FUTURE))
    caps = [floor for floor in known if floor.cap]
    known.check()
    assert run(log, known, later_cuts, Clock(SLACK, now + later, MAX_FUTURE)) == first
    assert [floor for floor in known if floor.cap] == caps, "nothing is capped again"


@settings(max_examples=300)
@given(logs(), st.integers(-10, 40), st.integers(0, 400))
def test_without_floors_and_caps_on_the_way_labels_are_the_same_by_the_short_way(
    log: Log, before: int, now: int
) -> None:
    clock = Clock(SLACK, now, MAX_FUTURE)
    timestamps = [timestamp for _, timestamp in log]
    found = calm_labels(timestamps, before=before, slack_ms=SLACK, limit_ms=clock.limit_ms)
    if max(timestamps) > clock.limit_ms:
        assert found is None, "one is not believed: it becomes a cap"
    else:
        assert found == model(log, [], clock, before)


@settings(max_examples=200)
@given(logs(), floor_lists, st.integers(1, 6), st.integers(0, 400))
def test_a_front_labels_by_the_formula_whatever_floors_it_knows(
    log: Log, floors: list[Floor], size: int, now: int
) -> None:
    """Its short way is taken only where no floor begins and no cap stands."""
    window = Window(1 << 40, 1 << 40)
    front = Front(0, FrontLimits(SLACK, window, MAX_FUTURE), KnownFloors(-20, floors))
    found: list[int] = []
    for start in range(0, len(log), size):
        part = log[start : start + size]
        nothing: list[bytes | None] = [None] * len(part)
        front.take(SourceRows(0, [offset for offset, _ in part], [at for _, at in part], nothing, nothing), now)
        found += [tick for out in front.admitted(1 << 40) for tick in out.ticks]
    relied_on = max([-20, *(floor.tick for floor in floors)]) * SLACK
    clock = Clock(SLACK, max(now, relied_on), MAX_FUTURE)
    assert found == model(log, [*floors, Floor(0, 0, -20)], clock)


def test_a_plain_floor_in_a_caps_place_would_not_do() -> None:
    # The schedule of docs/decisions/004: what the first life capped is believed, or capped higher, by a later clock.
    log = [(0, 40), (1, 900), (2, 60)]
    first, later = Clock(SLACK, 50, MAX_FUTURE), Clock(SLACK, 850, MAX_FUTURE)
    known = Floors()
    assert run(log, known, [], first) == [4, 5, 6]
    assert list(known) == [Floor(0, 1, 5, cap=True)]
    assert run(log, known, [], later) == [4, 5, 6]
    assert run(log, Floors([Floor(0, 1, 5)]), [], later) == [4, 90, 90], "offset 2 moves, and may be delivered already"


@given(logs(), cuts, st.integers(-10, 60), st.integers(0, 400), st.integers(-500, 500))
def test_a_clock_set_back_changes_no_label_that_was_relied_on(
    log: Log, cuts: list[int], min_time: int, now: int, back: int
) -> None:
    known = Floors()
    first = run(log, known, cuts, Clock(SLACK, now, MAX_FUTURE))
    # Durable is what min time rests on: the labels below it, and the caps at offsets up to its first one at or above.
    below = [tick for tick in first if tick < min_time]
    front = Front(
        0,
        FrontLimits(SLACK, Window(1 << 40, 1 << 40), MAX_FUTURE),
        KnownFloors(
            -20,
            [floor for floor in known if floor.offset <= log[min(len(below), len(log) - 1)][0]],
            relied_on=min_time,
        ),
    )
    offsets, timestamps = [offset for offset, _ in log], [timestamp for _, timestamp in log]
    nothing: list[bytes | None] = [None] * len(log)
    front.take(SourceRows(0, offsets, timestamps, nothing, nothing), now - back)
    (out,) = front.admitted(1 << 40)
    again = out.ticks
    assert [tick for tick in again if tick < min_time] == below
    assert len([tick for tick in again if tick >= min_time]) == len(log) - len(below)


@pytest.mark.parametrize(("timestamp", "tick"), [(-21, -3), (-20, -2), (-1, -1), (0, 0), (9, 0), (10, 1)])
def test_a_tick_is_rounded_down_below_zero_too(timestamp: int, tick: int) -> None:
    assert run([(0, timestamp)], Floors(), []) == [tick]


def test_the_last_timestamp_that_is_believed() -> None:
    clock = Clock(SLACK, 500, MAX_FUTURE)
    known = Floors()
    assert run([(0, 600)], known, [], clock) == [60]
    assert list(known) == []
    assert run([(0, 601)], known, [], clock) == [50]
    assert list(known) == [Floor(0, 0, 50, cap=True)]


def test_timestamps_at_the_types_edges() -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    known = Floors()
    assert run([(0, low), (1, high), (2, 0)], known, [1], Clock(SLACK, 500, MAX_FUTURE)) == [low // SLACK, 50, 50]
    assert run([(0, low), (1, high)], Floors(), [], Clock(1, high, high)) == [low, high]
    assert run([(0, low)], Floors([Floor(0, 0, high)]), []) == [high]


def test_a_cap_at_an_offset_of_which_there_is_no_message_says_nothing() -> None:
    floors = Floors([Floor(0, 1, 99, cap=True), Floor(0, 3, 98, cap=True)])
    assert run([(0, 10), (2, 20)], floors, []) == [1, 2]


def test_another_fronts_floors_say_nothing() -> None:
    assert run([(0, 10)], Floors([Floor(1, 0, 99), Floor(1, 0, 98, cap=True)]), []) == [1]


def test_a_floor_within_a_gap_lifts_the_next_message() -> None:
    assert run([(0, 10), (5, 20), (6, 30)], Floors([Floor(0, 3, 9)]), []) == [1, 9, 9]
