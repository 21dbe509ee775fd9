"""R7: the fronts that min time runs over."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from lowtide_tracker import (
    FrontIsClosed,
    Graph,
    HeartbeatWentBack,
    LocalTracker,
    Notice,
    Tracker,
    UnknownFront,
)
from lowtide_tracker.fronts import Fronts

if TYPE_CHECKING:
    from tracker_rig import Scribe

    ScribeOf = Callable[..., Scribe]

CHAIN = Graph({1: [], 2: [1]})


def tracker(graph: Graph = CHAIN, fronts: dict[int, int] | None = None, capacity_ticks: int = 16) -> Tracker:
    return Tracker(graph, {0: 0} if fronts is None else fronts, start=0, capacity_ticks=capacity_ticks)


def test_min_time_runs_over_the_register_connected_or_not(scribe_of: ScribeOf) -> None:
    """W4c: the first front that connects does not carry min time past the ones that have not."""
    it = tracker(fronts={0: 0, 1: 0})
    assert scribe_of(it).acks(beats={0: 1000}) == []
    assert it.global_min == 0


def test_registered_fronts_start_at_their_floor_or_the_start(scribe_of: ScribeOf) -> None:
    it = Tracker(CHAIN, {0: 50, 1: 10}, start=20, capacity_ticks=16)
    assert it.global_min == 20
    assert (it.open_front(0, 0), it.open_front(1, 0)) == (50, 20)
    assert scribe_of(it).acks(beats={1: 60})[0].min_times == {1: 50, 2: 50}


def test_an_idle_late_front_does_not_let_min_time_pass(scribe_of: ScribeOf) -> None:
    it = tracker()
    scribe = scribe_of(it)
    scribe.acks(beats={0: 40})
    assert it.open_front(1, floor=0) == 40
    assert scribe.acks(beats={0: 1000}) == []
    assert it.global_min == 40
    assert scribe.acks(beats={1: 70})[0].min_times == {1: 70, 2: 70}


def test_a_late_front_opens_at_no_less_than_any_announced_min_time(scribe_of: ScribeOf) -> None:
    it = tracker()
    scribe_of(it).acks((2, 5, 1), beats={0: 40})
    assert it.min_times() == {1: 40, 2: 5}
    assert it.open_front(1, floor=7) == 40
    assert it.open_front(2, floor=45) == 45


def test_opening_a_front_twice_is_once(scribe_of: ScribeOf) -> None:
    it = tracker()
    it.open_front(1, floor=7)
    scribe_of(it).acks(beats={0: 40, 1: 30})
    assert it.open_front(1, floor=7) == 30
    assert it.global_min == 30


def test_a_closed_front_no_longer_holds_min_time(scribe_of: ScribeOf) -> None:
    it = tracker(fronts={0: 0, 1: 0})
    scribe_of(it).acks(beats={0: 40})
    assert it.close_front(1) == [Notice(1, 1, 0, {1: 40, 2: 40}, 40)]
    assert it.close_front(1) == []


def test_closing_the_last_front_freezes_the_ceiling_at_its_last_heartbeat(scribe_of: ScribeOf) -> None:
    it = tracker(fronts={0: 0, 1: 0})
    scribe = scribe_of(it)
    scribe.acks((1, 12, 1), beats={0: 40, 1: 30})
    it.close_front(1)
    assert it.close_front(0) == []
    scribe.acks((1, 12, 1))
    assert it.global_min == 40
    assert str(it.holder()) == "no front that feeds segment 1 is open; it stays at tick 40"


def test_a_front_that_was_closed_stays_closed(scribe_of: ScribeOf) -> None:
    it = tracker(fronts={0: 0, 1: 3})
    it.close_front(1)
    with pytest.raises(FrontIsClosed, match="front 1 was closed for good at heartbeat 3"):
        it.open_front(1, 0)
    with pytest.raises(FrontIsClosed):
        scribe_of(it).acks(beats={1: 10})
    with pytest.raises(UnknownFront, match="front 8 is not open"):
        it.close_front(8)


def test_without_fronts_min_time_stays_at_the_start(scribe_of: ScribeOf) -> None:
    it = tracker(fronts={})
    assert scribe_of(it).acks((1, 3, 1), (1, 3, 1)) == []
    assert it.global_min == 0
    assert it.open_front(0, floor=5) == 5
    assert scribe_of(it, worker=2).acks((1, 8, 1))[0].min_times == {1: 5, 2: 5}


def test_a_front_may_feed_a_later_segment(scribe_of: ScribeOf) -> None:
    it = Tracker(CHAIN, {0: 0, 1: 0}, start=0, capacity_ticks=16, feeds={1: [2]})
    scribe_of(it).acks(beats={0: 40, 1: 30})
    assert it.min_times() == {1: 40, 2: 30}
    it.close_front(1)
    assert it.min_times() == {1: 40, 2: 40}


def test_a_feedback_front_feeds_no_segment_and_counts_in_no_minimum(scribe_of: ScribeOf) -> None:
    """W16: its records keep their ticks, and what is in flight in its segment holds min time."""
    it = Tracker(CHAIN, {0: 0, 1: 0}, start=0, capacity_ticks=16, feeds={1: []})
    assert scribe_of(it).acks(beats={0: 40})[0].min_times == {1: 40, 2: 40}


def test_a_heartbeat_may_be_repeated_but_not_taken_back(scribe_of: ScribeOf) -> None:
    scribe = scribe_of(tracker())
    scribe.acks(beats={0: 40})
    assert scribe.acks(beats={0: 40}) == []
    with pytest.raises(HeartbeatWentBack, match="heartbeat 39 after 40"):
        scribe.acks(beats={0: 39})


def test_a_front_opens_above_what_was_announced_where_its_records_can_come() -> None:
    """Another branch may be far ahead, as all that feeds it has ended."""
    local = LocalTracker(1, 1)
    tracker = Tracker(Graph({1: [], 2: [], 3: [1]}), {0: 0, 1: 0}, start=0, capacity_ticks=8, feeds={0: [1], 1: [2]})
    local.heartbeat(0, 5)
    local.heartbeat(1, 10**9)
    flush = local.flush()
    assert flush is not None
    tracker.receive(flush)
    assert tracker.min_times() == {1: 5, 2: 10**9, 3: 5}
    assert tracker.open_front(2, 3, [1]) == 5
    assert tracker.open_front(3, 7, [1]) == 7
    assert tracker.open_front(4, 0, [1, 2]) == 10**9


@pytest.mark.parametrize("seed", range(20))
def test_the_ceiling_is_the_lowest_in_whatever_order_fronts_move(seed: int) -> None:
    """And what is kept for it is one entry of each front, however often they move."""
    chance = random.Random(seed)
    fronts = Fronts(Graph({1: [], 2: [1]}), dict.fromkeys(range(3), 0), start=0, feeds={2: (1, 2)})
    ticks, opened = dict.fromkeys(range(3), 0), 3
    for _ in range(300):
        match chance.random():
            case few if few < 0.03:
                ticks[opened] = chance.randrange(50)
                fronts.open(opened, ticks[opened])
                opened += 1
            case few if few < 0.06 and len(ticks) > 1:
                closed = chance.choice(sorted(ticks))
                fronts.close(closed)
                del ticks[closed]
            case _:
                moved = chance.sample(sorted(ticks), chance.randint(1, len(ticks)))
                newest = {front: ticks[front] + chance.choice((0, 1, 1, 7)) for front in moved}
                fronts.apply(fronts.newest(newest.items()))
                ticks |= newest
        fronts.check()
        assert fronts.ceilings[0] == min(ticks.values())
    assert len(fronts._heaps[0]) <= opened
