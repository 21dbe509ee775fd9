"""A worker's figures: its records, and the parts of their latency."""

from __future__ import annotations

from collections import deque

from lowtide.core.fronts.front import Front
from lowtide.core.operators.order.bundle import Bundle
from lowtide.histogram import Histogram
from lowtide.status.gauges import FrontGauges, WorkerGauges

HOPS = ("pack", "exchange", "python", "wait", "sink")
"""The parts of a record's latency: from the JVM's first look at it to level 0; between workers; in this worker's steps;
before the barrier, until min time has passed it; from its bundle until the sink confirms it durable."""


class Figures:
    """Counts and histograms of one worker; times in ns."""

    def __init__(self) -> None:
        self.records_in = 0
        self.records_out = 0
        self.delivered = 0
        self.dead_letters = 0
        self.hops = {hop: Histogram() for hop in HOPS}
        self.latency = Histogram()
        """The time from a record's timestamp (its tick) until it is durable in the sink."""
        self._waiting: deque[tuple[int, int, int]] = deque()

    def waits(self, tick: int, rows: int, now_ns: int) -> None:
        """Note that records up to a tick now wait for min time."""
        self._waiting.append((tick, now_ns, rows))

    def released(self, min_time: int, now_ns: int) -> None:
        """Note that min time has passed what waited below it."""
        waiting = self._waiting
        while waiting and waiting[0][0] < min_time:
            _, came_ns, rows = waiting.popleft()
            self.hops["wait"].add(now_ns - came_ns, rows)

    def durable(self, ticks: tuple[int, int, int], slack_ms: int, put_ns: int, now_ns: int) -> None:
        """Note that a bundle is durable; `ticks` as `span` gave them."""
        first, last, rows = ticks
        if not rows:
            return
        self.delivered += rows
        self.hops["sink"].add(now_ns - put_ns, rows)
        slack_ns = slack_ms * 1_000_000
        self.latency.add(now_ns - first * slack_ns, rows - rows // 2)
        self.latency.add(now_ns - last * slack_ns, rows // 2)

    def gauges(self) -> WorkerGauges:
        """Return the counts, and the histograms as bucket to records."""
        return WorkerGauges(
            records_in=self.records_in,
            records_out=self.records_out,
            delivered=self.delivered,
            dead_letters=self.dead_letters,
            hops={hop: histogram.counts for hop, histogram in self.hops.items() if histogram.counts},
            latency=self.latency.counts,
        )


def front_gauges(front: Front) -> FrontGauges:
    """Return the gauges of a front."""
    return FrontGauges(
        front=front.number,
        heartbeat=front.heartbeat,
        next_offset=front.next_offset,
        parked=front.parked,
        pulling=front.pulling,
        own_floors=front.own_floors,
        tick_bytes=front.tick_bytes,
        overfull=front.overfull,
    )


def span(bundle: Bundle) -> tuple[int, int, int]:
    """Return the first and the last tick of a bundle's records, and their number."""
    pieces = bundle.pieces
    return (pieces[0].tick, pieces[-1].tick, len(bundle)) if pieces else (0, 0, 0)
