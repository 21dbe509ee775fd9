"""A worker's figures: its records, and the parts of their latency."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from msgspec.structs import replace

from lowtide.core.fronts.front import Front
from lowtide.core.operators.order.bundle import Bundle
from lowtide.histogram import Histogram
from lowtide.status.gauges import FrontGauges, LetterGauges, SinkGauges, WorkerGauges

NONE_WAIT: Mapping[str, tuple[int, float]] = MappingProxyType({})
HOPS = ("pack", "exchange", "python", "wait", "sink")
"""The parts of a record's latency: from the JVM's first look at it to level 0; between workers; in this worker's steps;
before the barrier, until min time has passed it; from its bundle until the sink confirms it durable."""


@dataclass(slots=True)
class _Delivered:
    """The records that were delivered to one sink."""

    records: int = 0
    bytes: int = 0
    newest: int = 0


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
        self.letters: dict[str, LetterGauges] = {}
        """By step, its dead letters."""
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._sinks: dict[str, _Delivered] = {}

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

    def delivered_to(self, sink: str, ticks: tuple[int, int, int], size: int) -> None:
        """Note that a bundle with so many bytes is durable in a sink; `ticks` as `span` gave them."""
        _, last, rows = ticks
        if rows:
            counts = self._sinks.setdefault(sink, _Delivered())
            counts.records += rows
            counts.bytes += size
            counts.newest = max(counts.newest, last)

    def dead(self, step: str, tick: int, at: str, why: str) -> None:
        """Note a dead letter: the step that failed, and the source record."""
        self.dead_letters += 1
        letter = LetterGauges(records=1, tick=tick, at=at, why=why)
        self.letters[step] = self.letters[step].and_(letter) if step in self.letters else letter

    def gauges(self, waiting: Mapping[str, tuple[int, float]] = NONE_WAIT) -> WorkerGauges:
        """Return the counts, and the histograms as bucket to records.

        Args:
            waiting: By sink the records that its store has not taken yet, and for how long the oldest has waited in s.
        """
        sinks = {
            name: SinkGauges(records=each.records, bytes=each.bytes, newest=each.newest)
            for name, each in self._sinks.items()
        }
        for name, (records, waits_s) in waiting.items():
            sinks[name] = replace(sinks.get(name, SinkGauges()), waiting=records, waits_s=waits_s)
        return WorkerGauges(
            records_in=self.records_in,
            records_out=self.records_out,
            delivered=self.delivered,
            dead_letters=self.dead_letters,
            hops={hop: histogram.counts for hop, histogram in self.hops.items() if histogram.counts},
            latency=self.latency.counts,
            sinks=sinks or None,
            letters=dict(self.letters) or None,
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
