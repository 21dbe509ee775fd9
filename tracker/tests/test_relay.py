"""Sums of flushes, which leave a tracker where the flushes would have left it (R5)."""

import random

import pytest
from tracker_rig import GRAPH, Scribe

from lowtide_tracker import (
    Floor,
    Flush,
    FlushGap,
    Graph,
    HeartbeatWentBack,
    LocalTracker,
    ProtocolError,
    StillRebuilding,
    Tracker,
)
from lowtide_tracker.messages import Absolute, Sum
from lowtide_tracker.relay import Relay


def tracker(**more: object) -> Tracker:
    return Tracker(GRAPH, {0: 0, 1: 0}, start=0, capacity_ticks=1 << 10, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_a_sum_leaves_the_tracker_where_its_flushes_would_have(seed: int) -> None:
    rng = random.Random(seed)
    alone, summed, relay = tracker(dues={2: [3]}), tracker(dues={2: [3]}), Relay()
    workers = [LocalTracker(number, 1, start=0) for number in range(3)]
    for local in workers:
        relay.attach(local.worker, applied=0)
    flying: list[tuple[int, int, int]] = []
    label = 0
    for _ in range(60):
        local = rng.choice(workers)
        for _ in range(rng.randrange(4)):
            if flying and rng.random() < 0.5:
                segment, tick, value = flying.pop(rng.randrange(len(flying)))
                if segment == 1:
                    flying.append((2, tick, local.new_value()))
                    local.fold(2, [tick], flying[-1][2])
                local.fold(segment, [tick], value)
            else:
                label += rng.randrange(3)
                flying.append((1, label, workers[0].new_value()))
                workers[0].fold(1, [label], flying[-1][2])
        workers[0].heartbeat(0, label)
        workers[0].heartbeat(1, label)
        workers[2].due(2, rng.choice([None, label + 5]), owner=3)
        workers[1].floor(Floor(1, label, label))
        for each in workers:
            flush = each.flush()
            if flush is not None:
                alone.receive(flush)
                relay.take(flush)
                relay.take(flush)
        if rng.random() < 0.4 and (made := relay.sum()) is not None:
            summed.receive(made)
            summed.check()
            assert summed.min_times() == alone.min_times()
            assert summed.holder() == alone.holder()
            assert [summed.applied(each.worker) for each in workers] == [each.flushed for each in workers]
            assert summed.whole_notice().floors == alone.whole_notice().floors


def test_what_goes_from_worker_to_worker_of_a_relay_costs_the_tracker_nothing() -> None:
    relay = Relay()
    for worker in (1, 2):
        relay.attach(worker, applied=0)
    relay.take(Flush.of(1, 1, [(1, 5, 9)], [(0, 6)]))
    relay.take(Flush.of(2, 1, [(1, 5, 9)]))
    assert relay.sum() == Sum(((1, 1, 1), (2, 1, 1)), (), ((0, 6),))
    assert relay.sum() is None


def test_a_flush_counts_as_applied_once_its_sum_is() -> None:
    relay = Relay()
    relay.attach(1, applied=4)
    for number in (5, 6):
        relay.take(Flush.of(1, number))
    assert relay.sum() is not None
    relay.take(Flush.of(1, 7))
    assert relay.sum() is not None
    assert relay.applied(1) == 4
    assert relay.summed(1) == [1]
    assert relay.applied(1) == 6
    assert relay.summed(1) == []
    assert relay.summed(2) == [1]
    assert relay.applied(1) == 7
    with pytest.raises(ProtocolError, match="applied 3 sums of a relay that made 2"):
        relay.summed(3)


def test_what_a_worker_does_wrong_is_found_at_the_relay() -> None:
    relay = Relay()
    with pytest.raises(ProtocolError, match="before it was welcomed"):
        relay.take(Flush.of(1, 1))
    relay.attach(1, applied=0)
    with pytest.raises(FlushGap):
        relay.take(Flush.of(1, 2))
    relay.take(Flush.of(1, 1, [], [(0, 9)]))
    with pytest.raises(HeartbeatWentBack):
        relay.take(Flush.of(1, 2, [], [(0, 8)]))


def test_a_sum_that_does_not_continue_is_refused_whole() -> None:
    at = tracker()
    Scribe(at, 1).acks(beats={0: 3, 1: 3})
    for parts in (((2, 1, 1), (1, 1, 2)), ((2, 1, 1), (1, 3, 3))):
        with pytest.raises(FlushGap):
            at.receive(Sum(parts, ((1, 5, 9),)))
    assert (at.applied(1), at.applied(2)) == (1, 0)
    at.receive(Sum(((2, 1, 1), (1, 2, 2)), (), ((0, 9), (1, 9))))
    assert (at.applied(1), at.applied(2)) == (2, 1)
    assert at.min_time(2) == 9


def test_a_sum_waits_until_a_tracker_is_rebuilt() -> None:
    at = Tracker(Graph({1: []}), {0: 0}, start=0, capacity_ticks=8, era=2).rebuilt_from([1, 2])
    relay = Relay()
    relay.attach(1, applied=0)
    at.receive(Absolute(1, 4))
    relay.report(Absolute(1, 4))
    relay.take(Flush.of(1, 5, [], [(0, 3)]))
    made = relay.sum()
    assert made is not None
    with pytest.raises(StillRebuilding):
        at.receive(made)
    at.receive(Absolute(2, 0))
    assert at.receive(made)[0].min_times == {1: 3}
