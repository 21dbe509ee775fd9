"""Subscriptions to the ends of labels: asked for while somebody waits, published once, then forgotten."""

import pytest

import lowtide as lt
from lowtide.status.subscriptions import Hub, Subscription, SubscriptionRefused


def hub(incarnation: int = 3) -> Hub:
    labels = {"indexed": {"name": "str"}, "paid": {"order": "int"}, "read": {"shop": "str", "order": "int"}}
    return Hub(incarnation=incarnation, slack_ms=2, start_ms=None, segments={1: "index"}, labels=labels)


def reported(subscription: Subscription) -> list[tuple[object, int | None]]:
    return [(each.data["about"], each.time_ms) for each in subscription.take() if each.kind == "done"]


def test_a_label_is_reported_once_and_ends_the_subscription() -> None:
    of, woken = hub(), list[str]()
    of.on_label = lambda: woken.append("asked")
    waiting = of.subscribe(["done:indexed:a"], at_ms=0, wake=lambda: woken.append("published"))
    assert (woken, of.labels_waited_for) == (["asked"], {"indexed": ["a"]})
    assert reported(waiting) == []
    of.reached("done:indexed:a", 50)
    assert woken == ["asked", "published"]
    assert reported(waiting) == [("done:indexed:a", 100)]
    assert waiting.is_over


def test_one_that_comes_later_learns_of_a_label_that_others_know_to_have_ended() -> None:
    of = hub()
    first = of.subscribe(["done:indexed:a"], at_ms=0)
    of.reached("done:indexed:a", 50)
    assert reported(of.subscribe(["done:indexed:a"], at_ms=0)) == [("done:indexed:a", 100)]
    assert reported(first) == [("done:indexed:a", 100)]


def test_a_label_that_ends_again_is_reported_again_to_those_who_want_every_end_or_a_later_one() -> None:
    of = hub()
    every, later = of.subscribe(["done:indexed:a"]), of.subscribe(["done:indexed:a"], at_ms=150)
    for tick in (50, 50, 80):
        of.reached("done:indexed:a", tick)
        if tick == 50:
            assert reported(later) == []
    assert reported(every) == [("done:indexed:a", 160)], "the newest"
    assert reported(later) == [("done:indexed:a", 160)]
    of.reached("done:indexed:a", 90)
    assert reported(every) == [("done:indexed:a", 180)]


def test_nothing_is_kept_of_a_label_that_nobody_waits_for() -> None:
    of = hub()
    subscriptions = [of.subscribe(["done:indexed:a", "delivered", f"done:indexed:{number}"]) for number in range(5)]
    of.reached("done:indexed:a", 50)
    assert len(of.labels_waited_for["indexed"]) == 6
    for subscription in subscriptions:
        subscription.close()
        subscription.close()
    assert of.labels_waited_for == {}
    assert not any(subject.startswith("done:") for subject in (*of._reached, *of._followers, *of._waiters))


def test_the_next_life_tells_it_nobody_twice() -> None:
    of = hub(3)
    subscription = of.subscribe(["done:indexed:a"])
    of.reached("done:indexed:a", 50)
    (last,) = [each.id for each in subscription.take() if each.kind == "done"]
    after = hub(4)
    again = after.subscribe(["done:indexed:a"], last_id=last)
    after.reached("done:indexed:a", 50)
    assert reported(again) == []
    after.reached("done:indexed:a", 51)
    assert reported(again) == [("done:indexed:a", 102)]


def test_a_label_may_have_any_characters() -> None:
    of = hub()
    label = "a:b/c d\u20ac\n"
    waiting = of.subscribe([f"done:indexed:{label}"], at_ms=0)
    assert of.labels_waited_for == {"indexed": [label]}
    of.reached(f"done:indexed:{label}", 5)
    assert reported(waiting) == [(f"done:indexed:{label}", 10)]


@pytest.mark.parametrize(
    ("subject", "match"),
    [
        ("done:index:a", "no when_done with labels of this job is called 'index'"),
        ("done:indexed", "'' is not a label"),
        ("done:indexed:", "'' is not a label"),
        ("done:paid:seven", "'seven' is not a label of \"paid\", whose labels are int"),
        ("done:read:acme", r"'acme' is not a label of \"read\", whose labels are shop \(str\), order \(int\)"),
        ('done:read:{"shop":"acme"}', "is not a label"),
        ('done:read:{"shop":"acme","order":"x"}', "is not a label"),
        ('done:read:{"shop":"acme","order":"7","more":"x"}', "is not a label"),
        (f"done:indexed:{'x' * 1_001}", "is not a label"),
    ],
)
def test_what_is_no_label_is_refused(subject: str, match: str) -> None:
    with pytest.raises(SubscriptionRefused, match=match):
        hub().subscribe([subject])
    assert hub().subscribe(["done:paid:-7"], at_ms=0).known == ("done:paid:-7",)
    several = 'done:read:{"order":"7","shop":"a:b"}'
    assert hub().subscribe([several], at_ms=0).known == (several,)
    assert hub().subscribe([lt.done("read", {"shop": "a:b", "order": 7}).text]).known == (several,)
