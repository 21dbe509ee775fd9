from collections.abc import Callable

import pytest

from lowtide_tracker import (
    Floor,
    Flush,
    Graph,
    HeartbeatWentBack,
    LocalTracker,
    Notice,
    NoticeGap,
    ProtocolError,
    Tracker,
)
from lowtide_tracker.backlog import Backlog


def flushed(local: LocalTracker) -> Flush:
    flush = local.flush()
    assert flush is not None
    return flush


def rows(flush: Flush) -> list[tuple[int, int, int]]:
    return list(flush.acks)


def test_acks_are_summed_and_go_by_decreasing_tick() -> None:
    local = LocalTracker(1, 1)
    local.fold(1, [3, 4], 0b01)
    local.fold(1, [4], 0b10)
    local.fold(2, [9], 0b11)
    assert rows(flushed(local)) == [(2, 9, 3), (1, 4, 3), (1, 3, 1)]
    assert local.flush() is None


def test_sums_of_zero_are_left_out() -> None:
    """What a worker sends to itself costs the tracker nothing."""
    local = LocalTracker(1, 1)
    local.fold(1, [3, 4], 5)
    local.fold(1, [3], 5)
    assert rows(flushed(local)) == [(1, 4, 5)]
    local.fold(1, [3], 5)
    local.fold(1, [3], 5)
    assert local.flush() is None


def test_the_newest_heartbeat_of_each_front_goes_once() -> None:
    local = LocalTracker(1, 1)
    local.heartbeat(4, 7)
    local.heartbeat(4, 8)
    local.heartbeat(5, 1)
    assert flushed(local).heartbeats == ((4, 8), (5, 1))
    local.heartbeat(4, 8)
    assert local.flush() is None
    with pytest.raises(HeartbeatWentBack):
        local.heartbeat(4, 7)


def test_floors_go_once() -> None:
    local = LocalTracker(1, 1)
    local.floor(Floor(4, 7, 100))
    local.heartbeat(4, 100)
    assert flushed(local) == Flush.of(1, 1, (), [(4, 100)], [Floor(4, 7, 100)])
    assert local.flush() is None


def test_flushes_are_numbered_without_gaps_and_kept_until_applied() -> None:
    local = LocalTracker(1, 1)
    made = []
    for tick in range(5):
        local.heartbeat(0, tick)
        made.append(flushed(local))
        assert local.flush() is None
    assert [flush.number for flush in made] == [1, 2, 3, 4, 5]
    local.applied(3)
    assert local.unacknowledged() == (made[3], made[4])
    local.applied(2)
    local.applied(5)
    assert local.unacknowledged() == ()
    with pytest.raises(ProtocolError, match="flush 6 of worker 1, which made 5"):
        local.applied(6)


def test_while_too_many_flushes_wait_acks_go_on_being_summed_up() -> None:
    local = LocalTracker(1, 1, max_unacknowledged=2)
    for tick in range(2):
        local.heartbeat(0, tick)
        flushed(local)
    local.fold(1, [3], 5)
    local.heartbeat(0, 9)
    assert local.flush() is None
    local.applied(1)
    assert flushed(local) == Flush.of(1, 3, [(1, 3, 5)], [(0, 9)])


def test_what_no_flush_has_is_known() -> None:
    local = LocalTracker(1, 1, max_unacknowledged=1)
    assert not local.unflushed
    tells: list[Callable[[], None]] = [
        lambda: local.fold(1, [3], 5),
        lambda: local.heartbeat(0, 3),
        lambda: local.floor(Floor(0, 7, 3)),
    ]
    for number, tell in enumerate(tells, 1):
        tell()
        before = local.unflushed
        assert (flushed(local).number, before, local.unflushed) == (number, True, False)
        local.applied(number)


def test_what_waits_behind_too_many_flushes_is_unflushed() -> None:
    local = LocalTracker(1, 1, max_unacknowledged=1)
    local.fold(1, [3], 6)
    flushed(local)
    local.fold(1, [3], 7)
    assert local.flush() is None
    assert local.unflushed


def test_a_sum_of_zero_is_nothing_to_flush() -> None:
    local = LocalTracker(1, 1)
    local.fold(1, [3], 7)
    local.fold(1, [3], 7)
    assert not local.unflushed
    local.heartbeat(0, 3)
    flushed(local)
    local.heartbeat(0, 3)
    assert not local.unflushed


# -- R6: holds ---------------------------------------------------------------------------------------------------------


def test_a_hold_keeps_min_time_until_its_emission_is_folded() -> None:
    """R6, W5: an ordered grouping acks the frame on arrival and emits for its tick when segment 1 has passed it."""
    tracker = Tracker(Graph({1: [], 2: [1]}), {0: 0}, start=0, capacity_ticks=16)
    front, grouping, barrier = (LocalTracker(worker, 1) for worker in (1, 2, 3))

    value = front.new_value()
    front.fold(1, [4], value)
    front.heartbeat(0, 10)
    tracker.receive(flushed(front))

    grouping.hold(2, 4)
    grouping.fold(1, [4], value)
    tracker.receive(flushed(grouping))
    assert tracker.min_times() == {1: 10, 2: 4}
    assert str(tracker.holder(2)) == "segment 2 has an open ack at tick 4"

    emitted = grouping.new_value()
    grouping.fold(2, [4], emitted)
    grouping.release(2, 4)
    assert tracker.receive(flushed(grouping)) == []
    barrier.fold(2, [4], emitted)
    assert tracker.receive(flushed(barrier))[0].min_times == {2: 10}


def test_a_hold_is_idempotent() -> None:
    local = LocalTracker(1, 1)
    local.hold(2, 4)
    local.hold(2, 4)
    local.hold(3, 4)
    assert len(rows(flushed(local))) == 2
    local.hold(2, 4)
    assert local.flush() is None
    local.release(2, 4)
    local.release(3, 4)
    assert len(rows(flushed(local))) == 2
    assert local.absolute().acks == ()


def test_two_owners_hold_one_tick_independently() -> None:
    """Several workers in one process share a local tracker: the first release does not end the other's hold."""
    tracker = Tracker(Graph({1: []}), {0: 0}, start=0, capacity_ticks=16)
    local = LocalTracker(1, 1)
    assert [local.hold(1, 4, owner=owner) for owner in (3, 8, 3)] == [True, True, False]
    local.heartbeat(0, 9)
    tracker.receive(flushed(local))
    local.release(1, 4, owner=8)
    with pytest.raises(KeyError):
        local.release(1, 4, owner=8)
    with pytest.raises(KeyError):
        local.release(1, 4)
    assert tracker.receive(flushed(local)) == []
    assert str(tracker.holder()) == "segment 1 has an open ack at tick 4"
    local.release(1, 4, owner=3)
    assert tracker.receive(flushed(local))[0].min_times == {1: 9}


def test_a_hold_that_ends_before_the_flush_is_never_seen() -> None:
    local = LocalTracker(1, 1)
    local.hold(2, 4)
    local.release(2, 4)
    assert local.flush() is None


def test_only_what_is_held_can_be_released() -> None:
    with pytest.raises(KeyError):
        LocalTracker(1, 1).release(2, 4)


# -- notices -----------------------------------------------------------------------------------------------------------


def test_notices_are_heard_in_order_and_once() -> None:
    local = LocalTracker(1, 1, start=5)
    assert (local.min_time(1), local.global_min) == (5, 5)
    assert local.hear(Notice(1, 1, 0, {1: 9}, 6))
    assert not local.hear(Notice(1, 1, 0, {1: 9}, 6))
    assert (local.min_time(1), local.min_time(2), local.global_min) == (9, 6, 6)
    with pytest.raises(NoticeGap, match=r"notice 3 of era 1 continues notice 2.* received is 1"):
        local.hear(Notice(1, 3, 2, {1: 11}, 6))
    assert local.hear(Notice(1, 2, 1, {2: 8}, 8))
    assert local.hear(Notice(1, 5, 0, {1: 12, 2: 12}, 12))
    assert local.min_time(2) == 12


def test_merged_notices_are_heard_as_one() -> None:
    first, second, third = (
        Notice(1, 1, 0, {1: 3}, 0, (Floor(0, 1, 3),)),
        Notice(1, 2, 1, {1: 4, 2: 3}, 3, (Floor(0, 1, 4), Floor(1, 1, 1))),
        Notice(1, 3, 2, {2: 4}, 4),
    )
    backlog = Backlog()
    assert backlog.take() is None
    backlog.add(second)
    backlog.add(third)
    merged = backlog.take()
    assert merged == Notice(1, 3, 1, {1: 4, 2: 4}, 4, second.floors)
    assert backlog.take() is None
    backlog.add(first)
    backlog.add(merged)
    assert backlog.take() == Notice(1, 3, 0, {1: 4, 2: 4}, 4, second.floors)
    local = LocalTracker(1, 1)
    assert local.hear(first)
    assert local.hear(merged)


def test_a_new_era_begins_with_a_notice_that_says_everything() -> None:
    local = LocalTracker(1, 1)
    local.hear(Notice(1, 7, 0, {1: 9, 2: 9}, 9))
    with pytest.raises(NoticeGap):
        local.hear(Notice(2, 2, 1, {1: 12}, 9))
    assert local.hear(Notice(2, 1, 0, {1: 11, 2: 9}, 9))
    assert not local.hear(Notice(1, 8, 7, {1: 99}, 9))
    assert local.min_time(1) == 11


# -- absolute sums -----------------------------------------------------------------------------------------------------


def test_absolute_is_what_was_flushed_and_no_more() -> None:
    local = LocalTracker(7, 1)
    local.fold(1, [3, 4], 5)
    local.heartbeat(0, 4)
    local.floor(Floor(0, 1, 4))
    flushed(local)
    local.fold(1, [4], 5)
    flushed(local)
    local.fold(1, [6], 1)
    local.heartbeat(0, 6)
    report = local.absolute()
    assert (report.worker, report.number) == (7, 2)
    assert report.acks == ((1, 3, 5),)
    assert (report.heartbeats, report.floors, report.min_times) == (((0, 4),), (Floor(0, 1, 4),), ())


def test_absolute_leaves_out_what_min_time_has_passed() -> None:
    local = LocalTracker(7, 1)
    local.fold(1, range(3000), 5)
    local.fold(2, [1], 5)
    flushed(local)
    local.hear(Notice(1, 1, 0, {1: 2990}, 0))
    report = local.absolute()
    assert [tick for _, tick, _ in report.acks] == [*range(2999, 2989, -1), 1]
    assert report.min_times == ((1, 2990), (2, 0))
    assert len(local._kept[1]) == 10  # and the memory is given back


def test_floors_are_reported_until_a_commit_covers_them() -> None:
    local = LocalTracker(7, 1)
    local.floor(Floor(0, 1, 4))
    local.floor(Floor(0, 9, 5))
    flushed(local)
    local.forget_floors(0, 9)
    assert local.absolute().floors == (Floor(0, 9, 5),)
