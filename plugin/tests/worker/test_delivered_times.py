"""Delivered times: reported at once while somebody listens, coalesced, and never while nothing moves."""

from __future__ import annotations

from lowtide.assignment.messages import Delivered
from lowtide.worker.delivered_times import EVERY_S, DeliveredTimes


def test_nothing_is_reported_where_nobody_listens() -> None:
    it = DeliveredTimes()
    assert not it.due(5.0)
    it.listen(8.0)
    assert it.due(7.9)
    assert not it.due(8.0)


def test_what_moves_is_reported_at_once_and_then_not_too_often() -> None:
    it = DeliveredTimes()
    it.listen(100.0)
    assert it.moved({"1/0": 7, "1/1": 9}, 1.0) == [("1/0", Delivered(7)), ("1/1", Delivered(9))]
    assert not it.due(1.0 + EVERY_S / 2)
    assert it.due(1.0 + EVERY_S)
    assert it.moved({"1/0": 7, "1/1": 10}, 2.0) == [("1/1", Delivered(10))]
    assert it.moved({"1/0": 7, "1/1": 10}, 3.0) == []
    assert it.due(3.0), "as nothing was reported, what comes now is reported at once"


def test_a_lease_is_not_cut_short_by_an_older_one() -> None:
    it = DeliveredTimes()
    it.listen(9.0)
    it.listen(4.0)
    assert it.listened(8.0)
