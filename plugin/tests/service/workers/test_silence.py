"""A worker that sends no gauges any more is missed."""

from __future__ import annotations

from collections.abc import Callable

from lowtide.service.workers.silence import Silence
from lowtide.status.gauges import WorkerGauges, WorkerState


def worker(gauges: WorkerGauges | None) -> WorkerState:
    return WorkerState(worker="1/0", level=1, gauges=gauges)


def said(limit_s: float, seconds: int, gauges: Callable[[int], WorkerGauges | None]) -> list[str]:
    silence = Silence(limit_s)
    looks = (silence.look([worker(gauges(second))], 100.0 + second) for second in range(seconds))
    return [str(cause or "") for cause in looks]


def test_a_worker_that_has_said_something_and_says_nothing_more_is_named() -> None:
    once = WorkerGauges(busy=True)
    told = said(10.0, 20, lambda _: once)
    assert told[:10] == [""] * 10
    assert "worker 1/0 has been silent for 10 s" in told[10]


def test_a_worker_that_goes_on_or_has_not_begun_is_not() -> None:
    assert set(said(10.0, 60, lambda _: WorkerGauges(busy=False))) == {""}
    assert set(said(10.0, 60, lambda _: None)) == {""}


def test_who_stood_still_itself_blames_nobody() -> None:
    silence, workers = Silence(10.0), [worker(WorkerGauges(busy=True))]
    assert [silence.look(workers, at_s) for at_s in (0.0, 1.0, 500.0, 501.0)] == [None] * 4
