"""The hub of subscriptions: each piece of news once and in order, for slow, absent and many subscribers."""

import random
from itertools import pairwise

import pytest

from lowtide.core.fronts.floors import LAST_TICK
from lowtide.status.subscriptions import Hub, Subscription, SubscriptionRefused
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.record import Commit
from lowtide_snapshots.job.news import News, NewsReader


def hub(incarnation: int = 3) -> Hub:
    return Hub(incarnation=incarnation, slack_ms=2, start_ms=None, segments={1: "last, changes", 2: "index"})


def commit(tick: int, incarnation: int = 3) -> Commit:
    """A commit at a T, in the format that its id has."""
    at = "2026-01-02T03:04:05.000+00:00"
    return Commit(tick, f"{incarnation:06}-{tick:04}", None, "m", "0" * 64, incarnation, at)


def times(news: list[News], kind: str = "") -> list[int | None]:
    return [each.time_ms for each in news if each.kind not in ("life", "end") and kind in ("", each.kind)]


def test_a_slow_subscriber_gets_the_newest_time_and_every_commit() -> None:
    of = hub()
    slow = of.subscribe(["delivered", "commit"])
    for tick in range(1, 101):
        of.reached("delivered", tick)
    of.committed([commit(10), commit(20)])
    of.committed([commit(10), commit(20), commit(30)])
    news = slow.take()
    assert (times(news, "delivered"), times(news, "commit")) == ([200], [20, 40, 60])
    assert slow.take() == []


def test_a_time_that_goes_back_is_no_news() -> None:
    of = hub()
    subscription = of.subscribe(["segment:index"])
    of.reached("segment:2", 50)
    assert times(subscription.take()) == [100]
    of.reached("segment:2", 40)
    of.reached("segment:2", 50)
    assert subscription.take() == []


def test_subscribers_to_delivered_time_are_known_until_gone() -> None:
    of, came = hub(), list[list[bool]]()
    of.on_listener = lambda: came.append([of.listens(99), of.listens(100)])
    of.subscribe(["min_time", "commit"])
    assert not of.listens(100)
    assert came == []
    follower = of.subscribe(["delivered"])
    assert came.pop() == [True, True]
    follower.close()
    waiter = of.subscribe(["delivered"], at_ms=100)
    assert came.pop() == [False, True], "who waits for an hour's end does not get its minutes"
    of.reached("delivered", 50)
    assert times(waiter.take()) == [100]
    assert not of.listens(100)


class Moment(int):
    """A moment that counts how often it is compared."""

    looked = 0

    def __le__(self, other: int) -> bool:
        Moment.looked += 1
        return int(self) <= other


def test_ten_thousand_who_wait_for_later_cost_a_look_no_more_than_one() -> None:
    of = hub()
    for number in range(10_000):
        of.subscribe(["delivered"], at_ms=Moment(1_000 + number))
    gone = [of.subscribe(["delivered"], at_ms=Moment(500)) for _ in range(100)]
    assert of.listens(500)
    for each in gone:
        each.close()
    Moment.looked = 0
    assert not of.listens(500)
    assert Moment.looked <= 1


def test_a_segment_is_found_by_any_of_its_steps_and_by_its_number() -> None:
    of = hub()
    of.segments_reached({1: 7, 2: 5}, 5)
    for name in ("segment:last", "segment:changes", "segment:1"):
        news = of.subscribe([name]).take()
        assert [(each.data["about"], each.time_ms) for each in news[1:]] == [(name, 14)]
    assert times(of.subscribe(["min_time"]).take()) == [10]


def test_a_moment_is_reported_once_and_no_sooner_than_it_is_passed() -> None:
    of = hub()
    woken: list[int] = []
    subscription = of.subscribe(["delivered", "segment:last"], at_ms=100, wake=lambda: woken.append(1))
    subscription.take()
    of.reached("delivered", 49)
    assert (subscription.take(), woken) == ([], [])
    of.reached("delivered", 50)
    assert (times(subscription.take()), woken, subscription.is_over) == ([100], [1], False)
    of.reached("delivered", 60)
    assert (subscription.take(), woken) == ([], [1])
    of.reached("segment:1", 99)
    assert (times(subscription.take()), subscription.is_over) == ([198], True)


def test_a_moment_that_has_passed_is_reported_at_once() -> None:
    of = hub()
    of.reached("delivered", 60)
    of.committed([commit(10), commit(20), commit(30)])
    subscription = of.subscribe(["delivered", "commit"], at_ms=40)
    news = subscription.take()
    assert (times(news, "delivered"), times(news, "commit"), subscription.is_over) == ([120], [40], True)


def test_ten_thousand_who_wait_for_later_are_not_woken() -> None:
    of = hub()
    woken: list[int] = []

    def waiting(at_ms: int) -> Subscription:
        return of.subscribe(["delivered"], at_ms=at_ms, wake=lambda: woken.append(at_ms))

    waiters = [waiting(at_ms) for at_ms in range(2, 20_002, 2)]
    for tick in range(1, 6):
        of.reached("delivered", tick)
    assert woken == [2, 4, 6, 8, 10]
    for each in waiters[:9_990]:
        each.close()
    of.reached("delivered", 10_000)
    assert woken[5:] == list(range(19_982, 20_002, 2))
    assert len(of) == 10


def test_who_is_gone_leaves_nothing() -> None:
    of = hub()
    for _ in range(1000):
        of.subscribe(["delivered"], at_ms=10**12).close()
        of.subscribe(["delivered"]).close()
    assert len(of) == 0
    assert len(of._waiters["delivered"]) < 100
    assert not of._followers["delivered"]


def test_the_end_of_a_life_is_reported_once_with_its_cause() -> None:
    of = hub()
    of.reached("delivered", 5)
    subscription = of.subscribe(["delivered"])
    of.end(Cause("loss", "worker 1/0 is gone"))
    of.end(None)
    *_, last = subscription.take()
    assert (last.kind, last.data["incarnation"]) == ("end", 3)
    assert "worker 1/0 is gone" in str(last.data["cause"])
    assert subscription.is_over
    assert subscription.take() == []


@pytest.mark.parametrize("seed", range(30))
def test_over_lives_and_lost_connections_each_is_reported_once_and_in_order(seed: int) -> None:
    """A connection may be lost after any piece of news; the next one shows the last id that was read."""
    rng = random.Random(seed)
    had: list[News] = []
    commits: list[Commit] = []
    reported, tick, last_id = 0, 0, ""
    for life in range(1, 6):
        of = hub(life)
        of.committed(commits)
        of.reached("delivered", reported)
        tick = rng.randint(0, tick)  # A recovery goes back.
        for _ in range(rng.randint(1, 5)):
            subscription = of.subscribe(["segment:2", "delivered", "commit"], last_id=last_id)
            for _ in range(rng.randint(0, 6)):
                tick += rng.randint(0, 3)
                of.reached("segment:2", tick)
                reported = max(reported, tick - rng.randint(0, 3))
                of.reached("delivered", reported)
                if rng.random() < 0.3 and tick > (commits[-1].tick if commits else 0):
                    commits.append(commit(tick, life))
                    of.committed(commits)
                news = subscription.take()
                read = news[: rng.randint(0, len(news))]
                had += read
                last_id = had[-1].id if had else ""
                if len(read) < len(news):
                    break
            subscription.close()
    last = hub(6)
    last.committed(commits)
    last.reached("delivered", reported)
    had += last.subscribe(["segment:2", "delivered", "commit"], last_id=last_id).take()
    assert times(had, "commit") == [2 * each.tick for each in commits]
    for kind in ("segment", "delivered"):
        assert all(one < other for one, other in pairwise(int(each or 0) for each in times(had, kind)))
    assert [each.time_ms for each in had if each.kind == "delivered"][-1:] == ([2 * reported] if reported else [])
    assert all(one < other for one, other in pairwise(each.incarnation for each in had if each.kind == "life"))


@pytest.mark.parametrize("after", range(4), ids=["at once", "after life", "after one", "two lives later"])
def test_after_a_rewind_the_commits_in_place_of_the_dropped_ones_are_reported(after: int) -> None:
    of = hub(1)
    of.committed([commit(10, 1), commit(20, 1), commit(30, 1)])
    last_id = of.subscribe(["delivered", "commit"]).take()[-1].id
    had: list[News] = []
    for life in (2, 3):
        rewound = hub(life)
        rewound.committed([commit(10, 1)] if after == 0 else [commit(10, 1), commit(15, 2)])
        if after < 3 or life == 3:
            subscription = rewound.subscribe(["delivered", "commit"], last_id=last_id)
            rewound.committed([commit(10, 1), commit(15, 2), commit(25, 2), commit(35, life)])
            news = subscription.take()
            had += news[:after] if life == 2 else news
            last_id = had[-1].id if had else last_id
    assert times(had, "commit") == [30, 50, 70]


def test_the_end_of_time_has_no_time() -> None:
    of = hub()
    subscription = of.subscribe(["min_time"], at_ms=10**15)
    of.reached("min_time", LAST_TICK)
    assert [each.data for each in subscription.take()][1:] == [{"incarnation": 3, "about": "min_time", "time_ms": None}]
    assert subscription.is_over


@pytest.mark.parametrize(
    ("subjects", "last_id", "says"),
    [
        ([], "", "1 to 64 different subjects"),
        (["delivered", "delivered"], "", "1 to 64 different subjects"),
        (["speed"], "", "no subject 'speed'"),
        (["segment:9"], "", "no segment of this job has the number or the step '9'"),
        (["delivered"], "3", "not the id of news about these"),
        (["delivered"], "3.x", "not the id of news about these"),
        (["delivered"], "4.7", "this is life 3, which is older"),
    ],
)
def test_what_cannot_be_reported_is_refused_with_a_way_out(subjects: list[str], last_id: str, says: str) -> None:
    of = hub()
    with pytest.raises(SubscriptionRefused, match=says) as refused:
        of.subscribe(subjects, last_id=last_id)
    assert refused.value.way_out
    assert len(of) == 0


def test_events_are_read_as_they_were_sent() -> None:
    of = hub()
    of.reached("delivered", 5)
    sent = of.subscribe(["delivered"]).take()
    reader = NewsReader()
    lines = b":\n\n" + b"".join(each.encoded() for each in sent)
    assert [each for line in lines.splitlines(keepends=True) if (each := reader.read(line))] == sent
