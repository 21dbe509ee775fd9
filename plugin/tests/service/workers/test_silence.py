"""A worker that sends no gauges any more is missed."""

from __future__ import annotations

from collections.abc import Callable

from lowtide.service.workers.silence import QUIET_S, Silence
from lowtide.status.gauges import WorkerGauges, WorkerState


def worker(gauges: WorkerGauges | None) -> WorkerState:
    return WorkerState(worker="1/0", level=1, gauges=gauges)


def said(limit_s: float, seconds: int, gauges: Callable[[int], WorkerGauges | None]) -> list[str]:
    silence = Silence(limit_s)
    looks = (silence.look([worker(gauges(second))], 100.0 + second) for second in range(seconds))
    return [str(cause or "") for cause in looks]


def test_a_worker_that_has_said_something_and_says_nothing_more_is_named() -> None:
    once = WorkerGauges(busy=True)
    reported = said(10.0, 20, lambda _: once)
    assert reported[:10] == [""] * 10
    assert "worker 1/0 has been silent for 10 s" in reported[10]


def test_a_worker_that_goes_on_or_has_not_begun_is_not() -> None:
    assert set(said(10.0, 60, lambda _: WorkerGauges(busy=False))) == {""}
    assert set(said(10.0, 60, lambda _: None)) == {""}


def test_what_a_worker_in_a_long_call_said_before_is_not_what_it_does_now() -> None:
    """A function that takes a minute is not over, whatever the gauges before it said."""
    silence, before = Silence(300.0), [worker(WorkerGauges(busy=False))]
    for second in range(60):
        assert silence.look(before, 100.0 + second) is None
        known = silence.now(before, 100.0 + second)
        assert known == (before if second <= QUIET_S else [worker(None)])
    after = [worker(WorkerGauges(busy=True))]
    silence.look(after, 160.0)
    assert silence.now(after, 160.0) == after


def test_who_stood_still_itself_blames_nobody() -> None:
    silence, workers = Silence(10.0), [worker(WorkerGauges(busy=True))]
    assert [silence.look(workers, at_s) for at_s in (0.0, 1.0, 500.0, 501.0)] == [None] * 4
