"""The tracker's laws: R5 (flushes), R7 (segments and fronts), notices, and who holds min time."""

import pytest

from lowtide_tracker import (
    Floor,
    Flush,
    FlushGap,
    FrontIsClosed,
    Graph,
    HeartbeatWentBack,
    Notice,
    ProtocolError,
    TableFull,
    TimeWentBack,
    Tracker,
    UnknownFront,
    UnknownSegment,
)
from lowtide_tracker.messages import Absolute, columns

CHAIN = Graph({1: [], 2: [1]})


class Scribe:
    """Numbers the flushes of one worker."""

    def __init__(self, tracker: Tracker, worker: int = 1) -> None:
        self.tracker, self.worker, self.number = tracker, worker, 0

    def acks(self, *acks: tuple[int, int, int], beats: dict[int, int] | None = None) -> list[Notice]:
        return self.send(Flush.of(self.worker, self.number + 1, acks, (beats or {}).items()))

    def send(self, flush: Flush) -> list[Notice]:
        notices = self.tracker.receive(flush)
        self.number = flush.number
        self.tracker.check()
        return notices


def tracker(graph: Graph = CHAIN, fronts: dict[int, int] | None = None, capacity_ticks: int = 16) -> Tracker:
    return Tracker(graph, {0: 0} if fronts is None else fronts, start=0, capacity_ticks=capacity_ticks)


# -- R5: flushes -------------------------------------------------------------------------------------------------------


def test_a_flush_that_comes_twice_counts_once() -> None:
    """W7: applied again, the sender's value would cancel itself while the frame is in flight."""
    it = tracker()
    sent = Flush.of(1, 1, [(1, 3, 77)], [(0, 9)])
    assert it.receive(sent)[0].min_times == {1: 3, 2: 3}
    assert it.receive(sent) == []
    assert it.min_time(1) == 3
    assert it.applied(1) == 1


@pytest.mark.parametrize("numbers", [[2], [1, 3], [1, 2, 4]])
def test_a_lost_or_swapped_flush_ends_the_life(numbers: list[int]) -> None:
    it = tracker()
    for number in numbers[:-1]:
        it.receive(Flush.of(1, number, heartbeats=[(0, number)]))
    with pytest.raises(FlushGap, match=f"flush {numbers[-1]} where flush {numbers[-1] - 1} was expected"):
        it.receive(Flush.of(1, numbers[-1], heartbeats=[(0, 99)]))
    assert it.global_min == len(numbers) - 1


def test_each_worker_has_its_own_numbers() -> None:
    it = tracker()
    for worker in (5, 6):
        it.receive(Flush.of(worker, 1, [(1, 3, 77)]))
    assert (it.applied(5), it.applied(6), it.applied(7)) == (1, 1, 0)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Flush.of(1, 1, [(1, 2, 5), (1, 16, 5)], [(0, 9)]), TableFull),
        (Flush.of(1, 1, [(1, 2, 5), (2, -1, 5)], [(0, 9)]), TimeWentBack),
        (Flush.of(1, 1, [(1, 2, 5), (3, 2, 5)], [(0, 9)]), UnknownSegment),
        (Flush.of(1, 1, [(1, 2, 5)], [(0, -1)]), HeartbeatWentBack),
        (Flush.of(1, 1, [(1, 2, 5)], [(0, 9), (0, 8)]), HeartbeatWentBack),
        (Flush.of(1, 1, [(1, 2, 5)], [(0, 9), (4, 9)]), UnknownFront),
        (Flush.of(1, 1, [(1, 2, 5)], [(0, 9)], [Floor(4, 0, 9)]), UnknownFront),
    ],
)
def test_a_flush_is_applied_whole_or_not_at_all(bad: Flush, error: type[Exception]) -> None:
    it = tracker()
    with pytest.raises(error):
        it.receive(bad)
    it.check()
    assert it.applied(1) == 0
    assert it.receive(Flush.of(1, 1, heartbeats=[(0, 9)])) == [Notice(1, 1, 0, {1: 9, 2: 9}, 9)]


def test_a_heartbeat_comes_after_the_acks_of_its_flush() -> None:
    assert Scribe(tracker()).acks((1, 4, 77), beats={0: 9})[0].min_times == {1: 4, 2: 4}


def test_a_forced_false_zero_is_found_out_and_not_announced_again() -> None:
    """Two acks that cancel while their frame is in flight: min time passes it, and its next ack names the fault."""
    it = tracker()
    scribe = Scribe(it)
    scribe.acks((1, 4, 77), (1, 4, 77), beats={0: 9})
    assert it.min_time(1) == 9
    with pytest.raises(TimeWentBack, match="segment 1: an ack at tick 4 is below min time 9"):
        scribe.acks((1, 4, 77))
    assert it.min_time(1) == 9


def test_a_burst_beyond_the_table_is_an_error_and_not_a_dead_tracker() -> None:
    """The papers' own system died silently of a burst, and the job hung."""
    it = tracker(capacity_ticks=4)
    with pytest.raises(TableFull, match="raise table_capacity_ticks"):
        Scribe(it).acks(*((1, tick, 1) for tick in range(5)))
    assert Scribe(it).acks(*((1, tick, 1) for tick in range(4)), beats={0: 3}) == []
    assert Scribe(it, worker=2).acks(*((1, tick, 1) for tick in range(4)))[0].min_times == {1: 3, 2: 3}


def test_a_report_is_taken_only_when_asked_for() -> None:
    with pytest.raises(ProtocolError, match="not being rebuilt"):
        tracker().receive(Absolute(1, 0, *columns([])))


# -- R7: segments ------------------------------------------------------------------------------------------------------


def test_a_segment_never_passes_one_that_feeds_it() -> None:
    it = tracker(Graph({1: [], 2: [1], 3: [], 4: [2, 3]}))
    scribe = Scribe(it)
    scribe.acks((1, 3, 1), (3, 2, 1), beats={0: 9})
    assert it.min_times() == {1: 3, 2: 3, 3: 2, 4: 2}
    scribe.acks((3, 2, 1))
    assert it.min_times() == {1: 3, 2: 3, 3: 9, 4: 3}


def test_levels_on_a_cycle_are_tracked_to_their_end() -> None:
    """H3, T6: with a min time for each, both would wait for the other for ever."""
    it = tracker(Graph({1: [], 2: [1, 3], 3: [2], 4: [3]}))
    scribe = Scribe(it)
    scribe.acks((2, 5, 1), beats={0: 9})
    assert it.min_times() == {1: 9, 2: 5, 3: 5, 4: 5}
    for turn in range(3):
        scribe.acks((3, 5, 10 + turn), (2, 5, turn or 1))
        assert it.min_times() == {1: 9, 2: 5, 3: 5, 4: 5}
        scribe.acks((2, 5, turn + 1), (3, 5, 10 + turn))
    assert it.min_time(4) == 5
    [notice] = scribe.acks((2, 5, 3))
    assert list(notice.min_times.items()) == [(2, 9), (3, 9), (4, 9)]


def test_the_smallest_open_tick_of_a_cycle_counts_for_all_of_it() -> None:
    it = tracker(Graph({1: [2], 2: [1]}))
    Scribe(it).acks((1, 6, 1), (2, 4, 1), beats={0: 9})
    assert it.min_times() == {1: 4, 2: 4}


# -- R7: fronts --------------------------------------------------------------------------------------------------------


def test_min_time_runs_over_the_register_connected_or_not() -> None:
    """W4c: the first front that connects does not carry min time past the ones that have not."""
    it = tracker(fronts={0: 0, 1: 0})
    assert Scribe(it).acks(beats={0: 1000}) == []
    assert it.global_min == 0


def test_registered_fronts_start_at_their_floor_or_the_start() -> None:
    it = Tracker(CHAIN, {0: 50, 1: 10}, start=20, capacity_ticks=16)
    assert it.global_min == 20
    assert Scribe(it).acks(beats={1: 60})[0].min_times == {1: 50, 2: 50}


def test_an_idle_late_front_does_not_let_min_time_pass() -> None:
    it = tracker()
    scribe = Scribe(it)
    scribe.acks(beats={0: 40})
    assert it.open_front(1, floor=0) == 40
    assert scribe.acks(beats={0: 1000}) == []
    assert it.global_min == 40
    assert scribe.acks(beats={1: 70})[0].min_times == {1: 70, 2: 70}


def test_a_late_front_opens_at_no_less_than_any_announced_min_time() -> None:
    it = tracker()
    Scribe(it).acks((2, 5, 1), beats={0: 40})
    assert it.min_times() == {1: 40, 2: 5}
    assert it.open_front(1, floor=7) == 40
    assert it.open_front(2, floor=45) == 45


def test_opening_a_front_twice_is_once() -> None:
    it = tracker()
    it.open_front(1, floor=7)
    Scribe(it).acks(beats={0: 40, 1: 30})
    assert it.open_front(1, floor=7) == 30
    assert it.global_min == 30


def test_a_closed_front_no_longer_holds_min_time() -> None:
    it = tracker(fronts={0: 0, 1: 0})
    Scribe(it).acks(beats={0: 40})
    assert it.close_front(1) == [Notice(1, 1, 0, {1: 40, 2: 40}, 40)]
    assert it.close_front(1) == []


def test_closing_the_last_front_freezes_the_ceiling_at_its_last_heartbeat() -> None:
    it = tracker(fronts={0: 0, 1: 0})
    scribe = Scribe(it)
    scribe.acks((1, 12, 1), beats={0: 40, 1: 30})
    it.close_front(1)
    assert it.close_front(0) == []
    scribe.acks((1, 12, 1))
    assert it.global_min == 40
    assert str(it.holder()) == "no front that feeds segment 1 is open; it stays at tick 40"


def test_a_front_that_was_closed_stays_closed() -> None:
    it = tracker(fronts={0: 0, 1: 3})
    it.close_front(1)
    with pytest.raises(FrontIsClosed, match="front 1 was closed for good at heartbeat 3"):
        it.open_front(1, 0)
    with pytest.raises(FrontIsClosed):
        Scribe(it).acks(beats={1: 10})
    with pytest.raises(UnknownFront, match="front 8 is not open"):
        it.close_front(8)


def test_without_fronts_min_time_stays_at_the_start() -> None:
    it = tracker(fronts={})
    assert Scribe(it).acks((1, 3, 1), (1, 3, 1)) == []
    assert it.global_min == 0
    assert it.open_front(0, floor=5) == 5
    assert Scribe(it, worker=2).acks((1, 8, 1))[0].min_times == {1: 5, 2: 5}


def test_a_front_may_feed_a_later_segment() -> None:
    it = Tracker(CHAIN, {0: 0, 1: 0}, start=0, capacity_ticks=16, feeds={1: [2]})
    Scribe(it).acks(beats={0: 40, 1: 30})
    assert it.min_times() == {1: 40, 2: 30}
    it.close_front(1)
    assert it.min_times() == {1: 40, 2: 40}


def test_a_feedback_front_feeds_no_segment_and_counts_in_no_minimum() -> None:
    """W16: its records keep their ticks, and what is in flight in its segment holds min time."""
    it = Tracker(CHAIN, {0: 0, 1: 0}, start=0, capacity_ticks=16, feeds={1: []})
    assert Scribe(it).acks(beats={0: 40})[0].min_times == {1: 40, 2: 40}


def test_a_heartbeat_may_be_repeated_but_not_taken_back() -> None:
    scribe = Scribe(tracker())
    scribe.acks(beats={0: 40})
    assert scribe.acks(beats={0: 40}) == []
    with pytest.raises(HeartbeatWentBack, match="heartbeat 39 after 40"):
        scribe.acks(beats={0: 39})


# -- notices -----------------------------------------------------------------------------------------------------------


def test_notices_come_in_order_once_and_only_for_a_change() -> None:
    scribe = Scribe(tracker())
    seen = [
        *scribe.acks((1, 3, 7), beats={0: 9}),
        *scribe.acks((2, 3, 8)),
        *scribe.acks((1, 3, 7)),
        *scribe.acks((2, 3, 8)),
    ]
    assert seen == [
        Notice(1, 1, 0, {1: 3, 2: 3}, 3),
        Notice(1, 2, 1, {1: 9}, 3),
        Notice(1, 3, 2, {2: 9}, 9),
    ]


def test_a_jump_of_millions_of_ticks_is_one_notice() -> None:
    assert Scribe(tracker()).acks(beats={0: 5_000_000_000}) == [
        Notice(1, 1, 0, {1: 5_000_000_000, 2: 5_000_000_000}, 5_000_000_000)
    ]


def test_floors_travel_with_the_notice_that_rests_on_them() -> None:
    it = tracker()
    assert it.receive(Flush.of(1, 1, [(1, 0, 7)], [(0, 9)], [Floor(0, 5, 9)])) == []
    [notice] = it.receive(Flush.of(1, 2, [(1, 0, 7)], floors=[Floor(0, 6, 8, cap=True)]))
    assert notice.floors == (Floor(0, 5, 9), Floor(0, 6, 8, cap=True))
    [notice] = it.receive(Flush.of(1, 3, heartbeats=[(0, 10)]))
    assert notice.floors == ()


def test_the_whole_notice_says_everything() -> None:
    it = tracker()
    assert it.whole_notice() == Notice(1, 0, 0, {1: 0, 2: 0}, 0)
    it.receive(Flush.of(1, 1, [(2, 3, 7)], [(0, 9)], [Floor(0, 5, 9)]))
    assert it.whole_notice() == Notice(1, 1, 0, {1: 9, 2: 3}, 3, (Floor(0, 5, 9),))
    it.forget_floors(0, 6)
    assert it.whole_notice().floors == ()


# -- who holds min time ------------------------------------------------------------------------------------------------


def test_the_holder_is_the_root_cause() -> None:
    it = tracker(Graph({1: [], 2: [1], 3: [2]}), fronts={4: 0, 5: 0})
    scribe = Scribe(it)
    scribe.acks((1, 3, 7), beats={4: 9, 5: 8})
    assert str(it.holder(3)) == str(it.holder()) == "segment 1 has an open ack at tick 3"
    scribe.acks((1, 3, 7), (2, 5, 7))
    assert str(it.holder(3)) == str(it.holder()) == "segment 2 has an open ack at tick 5"
    assert str(it.holder(1)) == "front 5 may still label at tick 8"
    scribe.acks((2, 5, 7))
    assert (it.holder().front, it.holder().tick) == (5, 8)
    with pytest.raises(UnknownSegment):
        it.holder(9)
