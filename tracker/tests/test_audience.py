"""Who is sent what of a notice: what a subscriber has named at once, the rest later, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import pytest

from lowtide_tracker import Floor, Graph, LocalTracker, MinTimes, Notice, ProtocolError, Tracker
from lowtide_tracker.audience import Audience
from lowtide_tracker.messages import Request

if TYPE_CHECKING:
    from tracker_rig import Client, Running

    Serve = Callable[..., Running]
    Join = Callable[..., Client]

WHOLE = Notice(1, 0, 0, {1: 0, 2: 0, 3: 0}, 0)
FLOOR, OTHER = Floor(0, 7, 3), Floor(0, 9, 4)
GRAPH = Graph({1: [], 2: [1], 3: [1]})


def test_a_notice_goes_to_those_whom_it_concerns() -> None:
    audience: Audience[str] = Audience()
    audience.join("all", WHOLE)
    audience.join("two", WHOLE, (2,), global_min=False)
    audience.join("least", WHOLE, ())
    one = Notice(1, 1, 0, {1: 5}, 0, (FLOOR,))
    assert audience.tell(one) == [("all", one)]
    assert audience.behind
    moved = Notice(1, 2, 1, {1: 6, 2: 4}, 0)
    assert audience.tell(moved) == [("all", moved), ("two", Notice(1, 2, 0, {2: 4}, 0, (FLOOR,)))]
    least = Notice(1, 3, 2, {3: 2}, 2, (OTHER,))
    assert audience.tell(least) == [("all", least), ("least", Notice(1, 3, 0, {}, 2, (FLOOR, OTHER)))]
    asked = Notice(1, 4, 3, {}, 2, (), Request(1, 2))
    told = dict(audience.tell(asked))
    assert told == {"all": asked, "two": Notice(1, 4, 2, {}, 2, (OTHER,), Request(1, 2)), "least": asked}


def test_what_concerns_nobody_comes_late_and_once() -> None:
    audience: Audience[str] = Audience()
    audience.join("two", WHOLE, (2,), global_min=False)
    assert audience.late() == []
    audience.tell(Notice(1, 1, 0, {3: 1}, 0))
    assert audience.late() == [], "it has nothing that anybody has to know"
    audience.tell(Notice(1, 2, 1, {3: 2}, 0, (FLOOR,)))
    audience.tell(Notice(1, 3, 2, {1: 4}, 1))
    assert audience.late() == [("two", Notice(1, 3, 0, {}, 1, (FLOOR,)))]
    assert not audience.behind
    assert audience.late() == []
    audience.tell(Notice(1, 4, 3, {3: 3}, 1, (OTHER,)))
    audience.leave("two")
    assert audience.late() == []
    assert len(audience) == 0


def test_who_names_other_segments_is_told_everything_and_goes_on_from_there() -> None:
    audience: Audience[str] = Audience()
    audience.join("it", WHOLE, (2,), global_min=False)
    audience.tell(Notice(1, 1, 0, {3: 1}, 0))
    audience.join("it", Notice(1, 1, 0, {1: 0, 2: 0, 3: 1}, 0), (2, 3), global_min=True)
    assert audience.tell(Notice(1, 1, 0, {3: 1}, 0)) == [], "it is in what it was told"
    assert audience.tell(Notice(1, 2, 1, {3: 4}, 0)) == [("it", Notice(1, 2, 1, {3: 4}, 0))]
    assert audience.named["it"].segments == (2, 3)


@pytest.mark.parametrize("seed", range(40))
def test_a_subscriber_has_all_of_what_it_has_named_and_no_other_is_ahead(seed: int) -> None:
    """At any time each knows its own segments, and once all is late the global min time and all floors."""
    rng, audience = Random(seed), Audience[int]()
    named = [None, *(tuple(sorted(rng.sample(range(6), rng.randrange(4)))) for _ in range(5))]
    heard, floors = [MinTimes(0) for _ in named], [set[Floor]() for _ in named]
    sent = [0] * len(named)
    times = dict.fromkeys(range(6), 0)
    for subscriber, segments in enumerate(named):
        audience.join(subscriber, Notice(1, 0, 0, times, 0), segments, global_min=rng.random() < 0.5)
    for number in range(1, 301):
        moved = {each: times[each] + rng.randint(1, 3) for each in rng.sample(range(6), rng.randint(1, 2))}
        times |= moved
        new = (Floor(0, number, number),) if rng.random() < 0.2 else ()
        told = audience.tell(Notice(1, number, number - 1, moved, min(times.values()), new))
        if rng.random() < 0.1:
            told += audience.late()
        for subscriber, share in told:
            assert heard[subscriber].hear(share)
            floors[subscriber] |= set(share.floors)
            sent[subscriber] += 1
        for segments, knows in zip(named, heard, strict=True):
            assert all(knows[each] == times[each] for each in (times if segments is None else segments))
            assert all(knows[each] <= times[each] for each in times)
    for subscriber, share in audience.late():
        heard[subscriber].hear(share)
        floors[subscriber] |= set(share.floors)
    assert {knows.global_min for knows in heard} == {min(times.values())}
    assert all(each == floors[0] for each in floors)
    assert sent[0] == 300
    assert max(sent[1:]) < 300


def test_what_says_everything_has_news_of_what_the_last_notice_left_out() -> None:
    """Else one that names another segment waits for it to move once more, which it may never do."""
    times = MinTimes(0)
    assert times.hear(Notice(1, 0, 0, {1: 0, 2: 0}, 0)) is True
    assert times.hear(Notice(1, 5, 0, {1: 9}, 0))
    assert not times.hear(Notice(1, 5, 0, {1: 9, 2: 0}, 0))
    assert times.hear(Notice(1, 5, 0, {1: 9, 2: 7}, 0))
    assert times[2] == 7
    assert not times.hear(Notice(1, 4, 0, {1: 9, 2: 8}, 0)), "it is older"
    assert not times.hear(Notice(1, 5, 4, {2: 8}, 0)), "it says nothing new"


def test_a_report_begins_where_the_worker_has_dropped_its_sums() -> None:
    """R10: a segment that notices leave out counts as at the global min time, and so it is reported."""
    local = LocalTracker(7, 1, start=0)
    local.hear(WHOLE)
    local.fold(3, [4, 8], 5)
    local.flush()
    local.hear(Notice(1, 1, 0, {1: 6}, 6))
    report = local.absolute()
    assert report.acks == ((3, 8, 5),)
    assert dict(report.min_times)[3] == local.min_time(3) == 6


def test_sums_of_a_segment_that_notices_leave_out_are_dropped() -> None:
    local = LocalTracker(7, 1, start=0)
    local.hear(WHOLE)
    for tick in range(5_000):
        local.fold(3, [tick], 5)
        flush = local.flush()
        assert flush is not None
        local.applied(flush.number)
        local.hear(Notice(1, tick + 1, tick, {1: tick}, tick))
    assert len(local._kept[3]) < 2_000


def test_a_subscriber_is_woken_by_what_it_has_named(serve: Serve, join: Join) -> None:
    running, local = serve(Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=1 << 20)), LocalTracker(1, 3)
    worker = join(running, local)
    listener, all_of_it = join(running), join(running)
    listener.subscribe((2,), global_min=False)
    listener.hear(lambda at: at.number >= 0 and at.era == 1)
    value = local.new_value()
    local.fold(3, [4], value)
    local.heartbeat(0, 6)
    worker.flush()
    all_of_it.hear(lambda at: at[1] == 6)
    heard = listener.hear(lambda at: at[2] == 6)
    assert [{*notice.min_times} for notice in heard if notice.after] <= [{2}]
    assert listener.min_times.global_min == 4
    before = running.server.traffic.notices
    local.fold(3, [4], value)
    worker.flush()
    all_of_it.hear_up_to(6)
    late = listener.hear_up_to(6)
    assert [notice.min_times for notice in late] == [{}], "3 is left out, and the global min time comes late"
    assert running.server.traffic.notices <= before + 3
    assert running.faults == []


def test_a_segment_that_is_not_there_cannot_be_named(serve: Serve, join: Join) -> None:
    running = serve()
    listener = join(running)
    listener.subscribe((2, 9), global_min=False)
    with pytest.raises(ProtocolError, match="segment 9"):
        listener.hear(lambda at: at[9] > 10)
    assert running.faults == [], "a subscriber ends no life"
