"""The tracker's laws: R5 (flushes), R7 (segments), notices, and who holds min time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from lowtide_tracker import (
    Floor,
    Flush,
    FlushGap,
    Graph,
    HeartbeatWentBack,
    LocalTracker,
    Notice,
    ProtocolError,
    Request,
    StillRebuilding,
    Table,
    TableFull,
    TimeWentBack,
    Tracker,
    UnknownFront,
    UnknownSegment,
)
from lowtide_tracker.backlog import Backlog
from lowtide_tracker.messages import Absolute

if TYPE_CHECKING:
    from tracker_rig import Scribe

    ScribeOf = Callable[..., Scribe]

CHAIN = Graph({1: [], 2: [1]})


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


def test_a_heartbeat_comes_after_the_acks_of_its_flush(scribe_of: ScribeOf) -> None:
    assert scribe_of(tracker()).acks((1, 4, 77), beats={0: 9})[0].min_times == {1: 4, 2: 4}


def test_a_forced_false_zero_is_found_out_and_not_announced_again(scribe_of: ScribeOf) -> None:
    """Two acks that cancel while their frame is in flight: min time passes it, and its next ack names the fault."""
    it = tracker()
    scribe = scribe_of(it)
    scribe.acks((1, 4, 77), (1, 4, 77), beats={0: 9})
    assert it.min_time(1) == 9
    with pytest.raises(TimeWentBack, match="segment 1: an ack at tick 4 is below min time 9"):
        scribe.acks((1, 4, 77))
    assert it.min_time(1) == 9


def test_a_burst_beyond_the_table_is_an_error_and_not_a_dead_tracker(scribe_of: ScribeOf) -> None:
    """The papers' own system died silently of a burst, and the job hung."""
    it = tracker(capacity_ticks=4)
    with pytest.raises(TableFull, match="stop fronts earlier"):
        scribe_of(it).acks(*((1, tick, 1) for tick in range(5)))
    assert scribe_of(it).acks(*((1, tick, 1) for tick in range(4)), beats={0: 3}) == []
    assert scribe_of(it, worker=2).acks(*((1, tick, 1) for tick in range(4)))[0].min_times == {1: 3, 2: 3}


def test_a_report_is_taken_only_when_asked_for() -> None:
    with pytest.raises(ProtocolError, match="not rebuilding"):
        tracker().receive(Absolute(1, 0))


# -- R7: segments ------------------------------------------------------------------------------------------------------


def test_a_segment_never_passes_one_that_feeds_it(scribe_of: ScribeOf) -> None:
    it = tracker(Graph({1: [], 2: [1], 3: [], 4: [2, 3]}))
    scribe = scribe_of(it)
    scribe.acks((1, 3, 1), (3, 2, 1), beats={0: 9})
    assert it.min_times() == {1: 3, 2: 3, 3: 2, 4: 2}
    scribe.acks((3, 2, 1))
    assert it.min_times() == {1: 3, 2: 3, 3: 9, 4: 3}


def test_levels_on_a_cycle_are_tracked_to_their_end(scribe_of: ScribeOf) -> None:
    """H3: with a min time for each, both would wait for the other for ever."""
    it = tracker(Graph({1: [], 2: [1, 3], 3: [2], 4: [3]}))
    scribe = scribe_of(it)
    scribe.acks((2, 5, 1), beats={0: 9})
    assert it.min_times() == {1: 9, 2: 5, 3: 5, 4: 5}
    for turn in range(3):
        scribe.acks((3, 5, 10 + turn), (2, 5, turn or 1))
        assert it.min_times() == {1: 9, 2: 5, 3: 5, 4: 5}
        scribe.acks((2, 5, turn + 1), (3, 5, 10 + turn))
    assert it.min_time(4) == 5
    [notice] = scribe.acks((2, 5, 3))
    assert list(notice.min_times.items()) == [(2, 9), (3, 9), (4, 9)]


def test_a_cycle_that_is_held_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an hour of replay in one segment, and another that holds it, each flush would search the hour."""
    it, searched = tracker(Graph({1: [2], 2: [1]}), capacity_ticks=1000), list[int]()
    search = Table.first_open

    def first_open(table: Table, segment: int, limit: int) -> int:
        searched.append(segment)
        return search(table, segment, limit)

    monkeypatch.setattr(Table, "first_open", first_open)
    it.receive(Flush.of(1, 1, [(2, 0, 5), (1, 900, 7)], [(0, 900)]))
    it.receive(Flush.of(1, 2, [(1, 900, 7)]))
    assert searched == []
    assert it.receive(Flush.of(1, 3, [(2, 0, 5)]))[0].min_times == {1: 900, 2: 900}
    assert sorted(searched) == [1, 2]


def test_the_smallest_open_tick_of_a_cycle_counts_for_all_of_it(scribe_of: ScribeOf) -> None:
    it = tracker(Graph({1: [2], 2: [1]}))
    scribe_of(it).acks((1, 6, 1), (2, 4, 1), beats={0: 9})
    assert it.min_times() == {1: 4, 2: 4}


# -- notices -----------------------------------------------------------------------------------------------------------


def test_notices_come_in_order_once_and_only_for_a_change(scribe_of: ScribeOf) -> None:
    scribe = scribe_of(tracker())
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


def test_a_jump_of_millions_of_ticks_is_one_notice(scribe_of: ScribeOf) -> None:
    assert scribe_of(tracker()).acks(beats={0: 5_000_000_000}) == [
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


def test_a_request_is_a_notice_of_its_own_at_the_global_min_time_of_now() -> None:
    """R14."""
    it = tracker()
    it.receive(Flush.of(1, 1, [(2, 3, 7)], [(0, 9)]))
    it.receive(Flush.of(1, 2, floors=[Floor(0, 5, 9)]))
    assert it.request(4) == Notice(1, 2, 1, {}, 3, (Floor(0, 5, 9),), Request(4, 3))
    [notice] = it.receive(Flush.of(1, 3, heartbeats=[(0, 10)]))
    assert (notice.number, notice.request) == (3, None), "it asks once"
    assert it.whole_notice().request == Request(4, 3), "but of who joins later as well"


def test_a_tracker_that_is_rebuilt_takes_no_request_and_knows_of_none() -> None:
    graph = Graph({1: []})
    it = Tracker(graph, {0: 0}, start=0, capacity_ticks=8, era=2).rebuilt_from([1])
    with pytest.raises(StillRebuilding):
        it.request(1)
    [notice] = it.receive(LocalTracker(1, 1).absolute())
    assert notice.request is None


def test_a_merged_notice_keeps_the_newest_request() -> None:
    merged = Backlog()
    for number, request in enumerate([None, Request(1, 3), Request(2, 4), None], 1):
        merged.add(Notice(1, number, number - 1, {}, 5 + number, (), request))
    assert merged.take() == Notice(1, 4, 0, {}, 9, (), Request(2, 4))
    merged.add(Notice(1, 5, 4, {}, 10))
    assert merged.take() == Notice(1, 5, 4, {}, 10)


# -- who holds min time ------------------------------------------------------------------------------------------------


def test_the_holder_is_the_root_cause(scribe_of: ScribeOf) -> None:
    it = tracker(Graph({1: [], 2: [1], 3: [2]}), fronts={4: 0, 5: 0})
    scribe = scribe_of(it)
    scribe.acks((1, 3, 7), beats={4: 9, 5: 8})
    assert str(it.holder(3)) == str(it.holder()) == "segment 1 has an open ack at tick 3"
    scribe.acks((1, 3, 7), (2, 5, 7))
    assert str(it.holder(3)) == str(it.holder()) == "segment 2 has an open ack at tick 5"
    assert str(it.holder(1)) == "front 5 may still label at tick 8"
    scribe.acks((2, 5, 7))
    assert (it.holder().front, it.holder().tick) == (5, 8)
    with pytest.raises(UnknownSegment):
        it.holder(9)
