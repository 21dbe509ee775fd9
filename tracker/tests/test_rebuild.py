"""R10: a tracker process that died is rebuilt from absolute sums, whenever it died, and announces nothing too early."""

import pytest

from lowtide_tracker import (
    Floor,
    Flush,
    FlushGap,
    Graph,
    LocalTracker,
    Notice,
    ProtocolError,
    StillRebuilding,
    Tracker,
    UnknownWorker,
)

GRAPH = Graph({1: [], 2: [1]})
CAPACITY = 64


def rebuilding(workers: list[int], fronts: dict[int, int] | None = None, era: int = 2) -> Tracker:
    return Tracker(GRAPH, {0: 0} if fronts is None else fronts, start=0, capacity_ticks=CAPACITY, era=era).rebuilt_from(
        workers
    )


def flushed(local: LocalTracker) -> Flush:
    flush = local.flush()
    assert flush is not None
    return flush


def test_nothing_is_announced_before_all_have_reported() -> None:
    sender, receiver = LocalTracker(1, 1), LocalTracker(2, 1)
    sender.fold(1, [3], 77)
    sender.heartbeat(0, 9)
    flushed(sender)
    receiver.fold(1, [3], 77)
    flushed(receiver)
    tracker = rebuilding([1, 2])
    assert tracker.receive(receiver.absolute()) == []
    assert (tracker.missing, tracker.global_min, tracker.applied(2)) == ((1,), 0, 1)
    with pytest.raises(StillRebuilding, match="waits for workers 1"):
        tracker.whole_notice()
    with pytest.raises(StillRebuilding):
        tracker.open_front(3, 0)
    with pytest.raises(StillRebuilding, match="waits for workers 1"):  # And no front, whatever its heartbeat.
        tracker.holder()
    assert tracker.receive(sender.absolute()) == [Notice(2, 1, 0, {1: 9, 2: 9}, 9)]
    assert (tracker.missing, tracker.applied(1)) == ((), 1)


def test_sums_of_which_some_have_dropped_their_part_are_left_out() -> None:
    """Worker 1 has heard of min time 5 and dropped its half; worker 2 has not, and still reports its own."""
    sender, receiver = LocalTracker(1, 1), LocalTracker(2, 1)
    sender.fold(1, [3], 77)
    sender.heartbeat(0, 5)
    flushed(sender)
    receiver.fold(1, [3], 77)
    flushed(receiver)
    sender.hear(Notice(1, 1, 0, {1: 5}, 0))
    assert (len(sender.absolute().acks), len(receiver.absolute().acks)) == (0, 1)
    tracker = rebuilding([1, 2])
    tracker.receive(receiver.absolute())
    assert tracker.receive(sender.absolute())[0].min_times == {1: 5, 2: 5}


def test_flushes_go_on_where_the_report_ended() -> None:
    one, two = LocalTracker(1, 1), LocalTracker(2, 1)
    one.heartbeat(0, 5)
    first = flushed(one)
    tracker = rebuilding([1, 2])
    tracker.receive(one.absolute())
    one.fold(2, [7], 5)
    one.heartbeat(0, 8)
    tracker.receive(first)  # Sent again by a client that does not know: it is part of the report.
    tracker.receive(flushed(one))
    with pytest.raises(FlushGap):
        tracker.receive(Flush.of(1, 4))
    with pytest.raises(FlushGap):
        tracker.receive(Flush.of(2, 1))
    [notice] = tracker.receive(two.absolute())
    assert notice.min_times == {1: 8, 2: 7}
    assert tracker.receive(Flush.of(1, 3, heartbeats=[(0, 9)])) == [Notice(2, 2, 1, {1: 9}, 7)]


def test_a_second_report_changes_nothing() -> None:
    one = LocalTracker(1, 1)
    one.fold(1, [3], 5)
    flushed(one)
    tracker = rebuilding([1, 2])
    tracker.receive(one.absolute())
    tracker.receive(one.absolute())
    one.fold(1, [4], 6)
    tracker.receive(flushed(one))
    tracker.receive(one.absolute())  # The flush is in it, too: taken as well, its acks would cancel themselves out.
    tracker.receive(LocalTracker(2, 1).absolute())
    assert str(tracker.holder()) == "front 0 may still label at tick 0"
    tracker.receive(Flush.of(1, 3, heartbeats=[(0, 9)]))
    assert str(tracker.holder()) == "segment 1 has an open ack at tick 3"
    tracker.receive(Flush.of(2, 1, [(1, 3, 5)]))
    assert str(tracker.holder()) == "segment 1 has an open ack at tick 4"
    with pytest.raises(ProtocolError):
        tracker.receive(one.absolute())


def test_floors_are_announced_again() -> None:
    """Some subscriber may have missed the notice that carried them."""
    one = LocalTracker(1, 1)
    one.floor(Floor(0, 4, 9))
    one.heartbeat(0, 9)
    flushed(one)
    assert rebuilding([1]).receive(one.absolute())[0].floors == (Floor(0, 4, 9),)


def test_a_worker_that_the_register_does_not_name_is_refused() -> None:
    tracker = rebuilding([1, 2])
    with pytest.raises(UnknownWorker, match=r"from workers 1, 2; worker 3 is not one of them"):
        tracker.receive(LocalTracker(3, 1).absolute())
    with pytest.raises(UnknownWorker):
        tracker.receive(Flush.of(3, 1))


def test_a_register_without_workers_needs_no_report() -> None:
    assert rebuilding([]).missing == ()


def test_a_closed_front_keeps_its_last_heartbeat() -> None:
    one = LocalTracker(1, 1)
    one.heartbeat(0, 9)
    flushed(one)
    tracker = Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=CAPACITY, era=2, closed=[0]).rebuilt_from([1])
    assert tracker.receive(one.absolute())[0].global_min == 9


def test_of_several_closed_fronts_the_largest_last_heartbeat_counts() -> None:
    one = LocalTracker(1, 1)
    one.heartbeat(0, 9)
    one.heartbeat(1, 4)
    flushed(one)
    tracker = Tracker(GRAPH, {0: 0, 1: 0}, start=0, capacity_ticks=CAPACITY, era=2, closed=[0, 1]).rebuilt_from([1])
    assert tracker.receive(one.absolute())[0].global_min == 9


@pytest.mark.parametrize("closed", [[0, 1], [1, 0]])
def test_fronts_closed_before_their_first_heartbeat_leave_the_largest_floor(closed: list[int]) -> None:
    """The process before closed front 1, then front 0, and announced 90; no register says in which order it was."""
    one = LocalTracker(1, 1)
    one.hear(Notice(1, 1, 0, {1: 90}, 90))
    tracker = Tracker(GRAPH, {0: 90, 1: 50}, start=0, capacity_ticks=CAPACITY, era=2, closed=closed).rebuilt_from([1])
    assert tracker.receive(one.absolute())[0].min_times == {1: 90, 2: 90}
    tracker.check()
