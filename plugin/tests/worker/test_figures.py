"""Where a record's time goes is counted once per record."""

from __future__ import annotations

from lowtide.status.gauges import LetterGauges, SinkGauges
from lowtide.worker.figures import Figures

MS = 1_000_000


def counts(figures: Figures, hop: str) -> int:
    return sum(figures.gauges().hops.get(hop, {}).values())


def test_records_wait_until_min_time_has_passed_them() -> None:
    figures = Figures()
    figures.waits(5, 10, 100 * MS)
    figures.waits(7, 20, 100 * MS)
    figures.released(5, 103 * MS)
    assert counts(figures, "wait") == 0
    figures.released(6, 103 * MS)
    assert counts(figures, "wait") == 10
    figures.released(8, 200 * MS)
    figures.released(9, 200 * MS)
    assert counts(figures, "wait") == 30
    assert 100 <= figures.hops["wait"].percentile_ms(99) < 120


def test_latency_goes_from_a_records_tick_to_its_being_durable() -> None:
    figures = Figures()
    figures.durable((100, 110, 5), slack_ms=10, put_ns=1_150 * MS, now_ns=1_200 * MS)
    figures.durable((0, 0, 0), slack_ms=10, put_ns=0, now_ns=1_200 * MS)
    assert (figures.delivered, sum(figures.latency.counts.values()), counts(figures, "sink")) == (5, 5, 5)
    assert 100 <= figures.latency.percentile_ms(30) < 110
    assert 200 <= figures.latency.percentile_ms(99) < 220


def test_each_sink_has_counts_of_its_own() -> None:
    figures = Figures()
    assert figures.gauges().sinks is None
    figures.delivered_to("index", (100, 110, 5), 400)
    figures.delivered_to("index", (90, 95, 2), 100)
    figures.delivered_to("refunds", (0, 0, 0), 0)
    assert figures.gauges().sinks == {"index": SinkGauges(records=7, bytes=500, newest=110)}


def test_what_waits_stands_beside_what_was_delivered() -> None:
    figures = Figures()
    figures.delivered_to("index", (100, 110, 5), 400)
    assert figures.gauges({"index": (3, 1.5), "rows": (1, 0.5)}).sinks == {
        "index": SinkGauges(records=5, bytes=400, newest=110, waiting=3, waits_s=1.5),
        "rows": SinkGauges(waiting=1, waits_s=0.5),
    }


def test_dead_letters_are_counted_by_step_and_the_newest_is_kept() -> None:
    figures = Figures()
    assert figures.gauges().letters is None
    figures.dead("index", 7, "orders-0, offset 4", "raised KeyError")
    figures.dead("index", 5, "orders-1, offset 9", "raised ValueError")
    figures.dead("orders", 5, "orders-1, offset 9", "no JSON")
    letters = figures.gauges().letters
    assert letters == {
        "index": LetterGauges(records=2, tick=7, at="orders-0, offset 4", why="raised KeyError"),
        "orders": LetterGauges(records=1, tick=5, at="orders-1, offset 9", why="no JSON"),
    }
    assert figures.gauges().dead_letters == 3
