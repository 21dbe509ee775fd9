"""A worker that sends no gauges any more is missed."""

from __future__ import annotations

from typing import Any

from lowtide.service.workers.silence import Silence


def said(limit_s: float, seconds: int, gauges: Any) -> list[str]:
    silence = Silence(limit_s)
    looks = (silence.look([{"worker": "1/0", "gauges": gauges(second)}], 100.0 + second) for second in range(seconds))
    return [str(cause or "") for cause in looks]


def test_a_worker_that_has_said_something_and_says_nothing_more_is_named() -> None:
    once = {"busy": True}
    told = said(10.0, 20, lambda _: once)
    assert told[:10] == [""] * 10
    assert "worker 1/0 has said nothing for 10 s" in told[10]


def test_a_worker_that_goes_on_or_has_not_begun_is_not() -> None:
    assert set(said(10.0, 60, lambda _: {"busy": False})) == {""}
    assert set(said(10.0, 60, lambda _: {})) == {""}


def test_who_stood_still_itself_blames_nobody() -> None:
    silence, gauges = Silence(10.0), {"busy": True}
    worker = [{"worker": "1/0", "gauges": gauges}]
    assert [silence.look(worker, at_s) for at_s in (0.0, 1.0, 500.0, 501.0)] == [None] * 4
