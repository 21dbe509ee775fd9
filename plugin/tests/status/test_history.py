"""What `GET /history` tells of a life: its steps, its marks, and that it is bounded."""

import io
import itertools
import json
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from controlled import TOKEN, ControlledJob, controlled
from hanging import HANGS_S
from seen import MIN_TIME, SHAPE, moment, report

from lowtide.events import EventLog
from lowtide.status import history
from lowtide.status.history import History, HistoryView, Mark, Sample
from lowtide.status.job_view import JobView, Percentiles, Rates
from lowtide_tracker import Holder

BEGAN = 1_800_000_000_000


def view(at_s: float, lag_ms: int | None = 5, *, events: list[dict[str, Any]] | None = None, **said: Any) -> JobView:
    """A view that the service made so many seconds after the beginning."""
    usual: dict[str, Any] = {"holder": "front 0 (documents-0)", "held_s": 0.0}
    return JobView(
        job="index",
        incarnation=3,
        phase="running",
        seen_ms=BEGAN + round(at_s * 1000),
        lag_ms=lag_ms,
        events=events or [],
        **(usual | said),
    )


def reported(kept: History, since_ms: int = 0) -> HistoryView:
    found = kept.view(since_ms)
    assert found is not None
    return found


def test_nothing_is_reported_before_the_first_look() -> None:
    assert History().view() is None


def test_a_sample_says_what_the_view_said() -> None:
    kept = History()
    kept.look(
        view(
            1,
            7,
            delivered_time_ms=BEGAN + 400,
            rates=Rates(records_in=12.34, delivered=5.0),
            latency_ms=Percentiles(p50=1.234, p99=20.0),
            held_s=0.51,
        )
    )
    assert reported(kept).fine == [Sample(BEGAN + 1000, 7, 600, 12.3, 5.0, 1.23, 20.0, 0.5, 0)]
    assert (reported(kept).holders, reported(kept).job, reported(kept).incarnation) == (
        ["front 0 (documents-0)"],
        "index",
        3,
    )
    assert reported(kept).seen_ms == BEGAN + 1000


def test_of_several_looks_within_a_second_the_last_one_stays() -> None:
    kept = History()
    for at_s, lag_ms in ((1.0, 5), (1.4, 6), (2.1, 7)):
        kept.look(view(at_s, lag_ms))
    assert [sample.lag_ms for sample in reported(kept).fine] == [6, 7]


def test_a_broker_clock_that_goes_back_adds_nothing() -> None:
    kept = History()
    for at_s in (5, 3, 4, 6):
        kept.look(view(at_s, at_s))
    assert [sample.lag_ms for sample in reported(kept).fine] == [5, 6]


def test_a_coarse_step_tells_its_worst_moment_and_who_held_it() -> None:
    kept = History()
    for second in range(31):
        slow = second == 7
        kept.look(
            view(
                second,
                900 if slow else 5,
                holder="an open ack of segment 2 at 2026-01-02 03:05:00.002" if slow else "front 0 (documents-0)",
                held_s=4.0 if slow else 0.0,
                rates=Rates(records_in=float(second)),
                latency_ms=Percentiles(p50=2.0, p99=80.0 if slow else 4.0),
            )
        )
    first, second_step = reported(kept).coarse
    assert first == Sample(BEGAN + 14_000, 900, None, 7.0, None, 2.0, 80.0, 4.0, 0)
    assert reported(kept).holders == ["an open ack of segment 2", "front 0 (documents-0)"]
    assert (second_step.lag_ms, second_step.records_in, second_step.holder) == (5, 22.0, 1)


def test_what_is_not_known_is_no_figure() -> None:
    kept = History()
    for second in range(16):
        kept.look(view(second, None, holder="", held_s=None))
    assert reported(kept).coarse == [Sample(BEGAN + 14_000, *[None] * 8)]
    assert reported(kept).holders == []


def test_the_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven hours of looks with a holder of its own each: as many samples as are kept, and no more than their names."""
    monkeypatch.setattr(history, "MAX_TEXT_CHARS", 20)
    kept = History()
    for second in range(7 * 3600):
        kept.look(view(second, second, holder=f"worker {second} " + "x" * 100))
    found = reported(kept)
    assert (len(found.fine), len(found.coarse)) == (history.FINE_KEPT, history.COARSE_KEPT)
    assert found.fine[-1].lag_ms == 7 * 3600 - 1
    assert found.coarse[-1].at_ms > found.fine[0].at_ms
    assert len(msgspec.json.encode(found)) < 400_000


def test_only_what_is_new_goes_to_those_who_have_the_rest() -> None:
    kept = History()
    for second in range(40):
        kept.look(view(second, second))
    seen_ms = reported(kept).seen_ms
    assert reported(kept, seen_ms).fine == []
    kept.look(view(40, 40))
    assert [sample.lag_ms for sample in reported(kept, seen_ms).fine] == [40]
    assert reported(kept, seen_ms).coarse == []


def test_each_event_is_marked_once() -> None:
    """The view shows the last events again and again; a mark has the event's own time, reason and snapshot."""
    at = datetime.fromtimestamp(BEGAN / 1000, UTC)
    log = EventLog("index", 3, io.StringIO(), clock=lambda: at)
    kept = History()
    log.event("life_begun", fronts=2)
    log.event("worker_forked", worker="1/0")
    kept.look(view(0, events=log.last))
    kept.look(view(1, events=log.last))
    at += timedelta(seconds=1)
    log.event("snapshot_sealed", snapshot="000003-0001", called="before", took_s=1.5)
    log.event("snapshot_failed", snapshot="000003-0002", called=None, took_s=2.0, why="no " * 200)
    kept.look(view(2, events=log.last))
    begun, sealed, failed = reported(kept).marks
    assert begun == Mark(at_ms=BEGAN, event="life_begun")
    assert sealed == Mark(
        at_ms=BEGAN + 1000, event="snapshot_sealed", snapshot="000003-0001", called="before", took_s=1.5
    )
    assert len(failed.why) == history.MAX_TEXT_CHARS
    # Their clock is not the broker's: what is new is what was found after the last look.
    assert [mark.event for mark in reported(kept, BEGAN + 1500).marks] == ["snapshot_sealed", "snapshot_failed"]
    assert reported(kept, BEGAN + 2000).marks == []


def test_the_marks_are_bounded() -> None:
    times = itertools.count()
    log = EventLog("index", 3, io.StringIO(), clock=lambda: datetime.fromtimestamp(BEGAN / 1000 + next(times), UTC))
    kept = History()
    for _ in range(2 * history.MARKS_KEPT):
        log.event("resumed")
        kept.look(view(0, events=log.last))
    marks = reported(kept).marks
    assert len(marks) == len({mark.at_ms for mark in marks}) == history.MARKS_KEPT


def ask(job: ControlledJob, query: str, token: str = TOKEN) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"https://{job.address}/history{query}", headers={"Authorization": f"Bearer {token}"}
    )
    tls = ssl.create_default_context(cadata=job.certificate)
    try:
        with urllib.request.urlopen(request, timeout=HANGS_S, context=tls) as answer:
            return answer.status, msgspec.json.decode(answer.read(), type=HistoryView)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_control_api_tells_the_history_to_who_has_the_token() -> None:
    events = EventLog("index", 3, io.StringIO())
    with controlled(SHAPE, events) as job:
        assert ask(job, "")[0] == 503
        events.event("life_begun")
        job.watch.look(0.0, moment(4000))
        job.watch.look(1.0, moment(5000, tracker=report(Holder(MIN_TIME, 2, None))))
        status, found = ask(job, "")
        assert status == 200
        assert [sample.lag_ms for sample in found.fine] == [4000, 5000]
        assert found.holders == ["front 3 (documents-1)", "an open ack of segment 2"]
        assert [mark.event for mark in found.marks] == ["life_begun"]
        status, found = ask(job, f"?since_ms={2 * MIN_TIME + 4000}")
        assert [sample.lag_ms for sample in found.fine] == [5000]
        assert ask(job, "", "another")[0] == 401
        for wrong in ("x", "-1", "1e9", "9" * 16, "%C2%B2"):
            status, said = ask(job, f"?since_ms={wrong}")
            assert (status, "ms since 1970" in said["what_to_do"]) == (400, True), wrong


def test_it_has_a_megabyte_at_most_as_json() -> None:
    """Here another one holds min time at each look, and all texts are as long as they may be."""
    kept = History()
    for second in range(history.COARSE_KEPT * history.COARSE_STEP_MS // 1000):
        event = {
            "ts": datetime.fromtimestamp(BEGAN / 1000 + second, UTC).isoformat(),
            "event": "snapshot_committed",
            "snapshot": f"000003-{second:04}",
            "called": "n" * 64,
            "why": f"{second} {'r' * 500}",
        }
        kept.look(
            view(
                second,
                10**9,
                events=[event],
                holder=f"{second} {'h' * 500}",
                held_s=10**6 + 0.1,
                rates=Rates(records_in=10**7 + 0.1, delivered=10**7 + 0.1),
                latency_ms=Percentiles(p50=10**7 + 0.01, p99=10**7 + 0.01),
                delivered_time_ms=BEGAN,
            )
        )
    assert 500_000 < len(msgspec.json.encode(reported(kept))) < 1_000_000
