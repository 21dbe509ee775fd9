"""What is due far ahead: reported as absolute values, so that no table bounds it and a rebuilt tracker has it (R6b)."""

import pytest

from lowtide_tracker import DuePassed, Flush, Graph, LocalTracker, Tracker, UnknownOwner, UnknownSegment

GRAPH = Graph({1: [], 2: [1], 3: [2]})
FAR = 1 << 40
FRONT, STEP, OTHER = 1, 2, 3
"""Workers: one that reads front 0, and two that receive in segment 1 and send into segment 2."""


def tracker(owners: tuple[int, ...] = (0,)) -> Tracker:
    return Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=8, dues={2: owners})


def flushed(local: LocalTracker) -> Flush:
    flush = local.flush()
    assert flush is not None
    return flush


def locals_of(*workers: int) -> list[LocalTracker]:
    return [LocalTracker(worker, 1, start=0) for worker in workers]


def test_a_due_holds_what_is_behind_it_and_not_what_it_waits_for() -> None:
    it, (front, step) = tracker(), locals_of(FRONT, STEP)
    step.due(2, FAR)
    front.heartbeat(0, FAR + 5)
    it.receive(flushed(step))
    [notice] = it.receive(flushed(front))
    assert notice.min_times == {1: FAR + 5, 2: FAR, 3: FAR}
    it.check()
    value = step.new_value()
    step.fold(2, [FAR], value)
    step.due(2, FAR + 3)
    assert it.receive(flushed(step)) == [], "the frame holds now what was due"
    receiver = LocalTracker(OTHER, 1)
    receiver.fold(2, [FAR], value)
    [notice] = it.receive(flushed(receiver))
    assert notice.min_times == {2: FAR + 3, 3: FAR + 3}
    step.due(2, None)
    [notice] = it.receive(flushed(step))
    assert notice.min_times == {2: FAR + 5, 3: FAR + 5}


def test_the_smallest_of_several_owners_counts_and_one_process_may_be_several() -> None:
    it, (front, step, other) = tracker((0, 1, 2)), locals_of(FRONT, STEP, OTHER)
    step.due(2, 4, owner=0)
    step.due(2, 3, owner=2)
    other.due(2, None, owner=1)
    front.heartbeat(0, 7)
    for local in (step, other, front):
        it.receive(flushed(local))
    assert it.min_times() == {1: 7, 2: 3, 3: 3}
    assert str(it.holder(3)) == "owner 2 of segment 2 has something due at tick 3"
    step.due(2, 6, owner=2)
    it.receive(flushed(step))
    assert it.min_time(2) == 4
    it.check()


def test_an_owner_that_has_reported_nothing_may_be_about_to_be_restored() -> None:
    it, (front, step) = tracker(), locals_of(FRONT, STEP)
    front.heartbeat(0, 7)
    it.receive(flushed(front))
    assert it.min_times() == {1: 7, 2: 0, 3: 0}
    assert str(it.holder()) == "owner 0 of segment 2 has not reported yet what is due"
    step.due(2, None)
    it.receive(flushed(step))
    assert it.min_times() == {1: 7, 2: 7, 3: 7}


@pytest.mark.parametrize(
    ("due", "error", "says"),
    [
        ((2, 0, 4), DuePassed, "owner 0 has something due at tick 4, below min time 5"),
        ((2, 9, None), UnknownOwner, "owner 9 of segment 2 is not registered"),
        ((1, 0, 9), UnknownOwner, "owner 0 of segment 1 is not registered"),
        ((7, 0, 9), UnknownSegment, "no segment 7"),
    ],
)
def test_a_flush_with_a_due_that_is_wrong_changes_nothing(
    due: tuple[int, int, int | None], error: type[Exception], says: str
) -> None:
    it = tracker()
    it.receive(Flush.of(1, 1, heartbeats=[(0, 5)], dues=[(2, 0, None)]))
    with pytest.raises(error, match=says):
        it.receive(Flush.of(1, 2, [(1, 5, 1)], [(0, 9)], dues=[(2, 0, 6), due]))
    it.check()
    it.receive(Flush.of(1, 2, heartbeats=[(0, 9)]))
    assert it.min_times() == {1: 9, 2: 9, 3: 9}


def test_an_owner_is_registered_for_a_segment_that_there_is() -> None:
    with pytest.raises(UnknownSegment):
        Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=8, dues={4: [0]})
    with pytest.raises(ValueError, match="must be 0 to 65535"):
        tracker((1 << 16,))


def test_a_due_is_reported_when_it_changes_and_only_then() -> None:
    local = LocalTracker(2, 1)
    local.due(2, None)
    assert local.unflushed
    assert flushed(local).dues == ((2, 0, None),)
    local.due(2, None)
    assert local.flush() is None
    local.due(2, 7)
    local.due(2, 9)
    local.due(2, 5, owner=4)
    assert flushed(local).dues == ((2, 0, 9), (2, 4, 5))


def test_a_report_has_what_was_flushed_of_dues_and_no_more() -> None:
    local = LocalTracker(2, 1)
    local.due(2, 7)
    local.due(2, None, owner=1)
    flushed(local)
    local.due(2, 9)
    assert local.absolute().dues == ((2, 0, 7), (2, 1, None))


def test_a_rebuilt_tracker_has_what_is_due() -> None:
    it, (front, step) = tracker(), locals_of(FRONT, STEP)
    step.due(2, FAR)
    front.heartbeat(0, FAR - 5)
    for local in (step, front):
        [*notices] = it.receive(flushed(local))
        for notice in notices:
            front.hear(notice)
    new = Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=8, era=2, dues={2: [0]}).rebuilt_from([FRONT, STEP])
    new.receive(step.absolute())
    front.heartbeat(0, FAR + 5)
    [notice] = new.receive(front.absolute())
    assert notice.min_times == {1: FAR - 5, 2: FAR - 5, 3: FAR - 5}
    new.receive(flushed(front))
    assert new.min_times() == {1: FAR + 5, 2: FAR, 3: FAR}
    new.check()


def test_a_due_below_what_was_heard_of_the_tracker_before_is_a_fault() -> None:
    one, other = locals_of(FRONT, STEP)
    old = Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=8)
    one.heartbeat(0, 9)
    for notice in old.receive(flushed(one)):
        one.hear(notice)
    other.due(2, 4)
    flushed(other)
    new = Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=8, era=2, dues={2: [0]}).rebuilt_from([FRONT, STEP])
    new.receive(one.absolute())
    with pytest.raises(DuePassed, match="tick 4, below min time 9"):
        new.receive(other.absolute())
