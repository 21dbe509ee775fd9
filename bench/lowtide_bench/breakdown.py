"""Breakdown of a record's latency into parts. Pure.

Percentiles of parts do not add up to the percentile of the whole. The remainder is the p50 (p99) of the whole minus the
p50 (p99) of each measured part, so it is right for the median and only a hint for the tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lowtide.flow.plan.compiler import DEFAULT_SLACK_MS
from lowtide.histogram import Histogram
from lowtide_bench.arrivals import Arrivals, percentiles


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a record's path.

    Attributes:
        name: Its name in the breakdown.
        means: Its two ends.
        p50_ms: Median.
        p99_ms: 99th percentile.
        how: "measured" by record, "counted" in buckets of 1/8, or "remainder".
    """

    name: str
    means: str
    p50_ms: float
    p99_ms: float
    how: Literal["measured", "counted", "remainder"]

    def as_json(self) -> dict[str, Any]:
        """Return it without its name."""
        return {"p50_ms": self.p50_ms, "p99_ms": self.p99_ms, "how": self.how, "means": self.means}


LEVELS = 16
"""More than any measured flow has."""


def _counted() -> Iterator[tuple[str, str, str]]:
    """Every hop that may be counted, in the order of the path: its name, the part's name, and its two ends."""
    yield "source", "source", "Kafka's timestamp -> first look at it"
    yield "pack", "stages", "first look in the JVM -> level 0 has it: packing and socket"
    yield "python 0", "python_0", "steps of level 0, to the frame"
    for level in range(1, LEVELS):
        way = f"level {level - 1} has written the frame -> level {level} has it: sockets, JVM, Spark's shuffle"
        yield f"exchange {level}", f"exchange_{level}", way
        yield f"python {level}", f"python_{level}", f"steps of level {level}, to the frame, barrier or producer"
    yield "wait", "wait", "before the barrier -> min time has passed it"
    yield "sink", "sink", "in a bundle -> Kafka has committed it"


def breakdown(arrivals: Arrivals, hops: Mapping[str, Histogram]) -> list[Part]:
    """Return the parts of the path, in order.

    Args:
        arrivals: The records that count.
        hops: Histograms of the same time, named as in `hops.of_status`; others are left out.
    """
    # Timestamps are whole milliseconds, those that a flow delivers whole ticks, rounded down: half is right on average.
    width_ms = DEFAULT_SLACK_MS if "python 0" in hops else 1
    to_source = np.asarray((arrivals.stamp_ms * 1e6 + width_ms * 5e5 - arrivals.sent_ns) / 1e6, dtype=np.float64)
    p50, p99 = percentiles(to_source, (50, 99))
    first50, first99 = (round(max(0.0, value), 3) for value in (p50, p99))
    parts = [Part("generator", "due -> Kafka's timestamp", first50, first99, "measured")]
    for hop, name, means in _counted():
        if hop in hops and any(hops[hop].counts.values()):
            half, most = (round(hops[hop].percentile_ms(percent), 3) for percent in (50, 99))
            parts.append(Part(name, means, half, most, "counted"))
    total50, total99 = percentiles(arrivals.latency_ms(), (50, 99))
    rest50 = round(total50 - sum(part.p50_ms for part in parts), 3)
    rest99 = round(total99 - sum(part.p99_ms for part in parts), 3)
    before = "" if "source" in hops else "Kafka's timestamp -> first look of the next, and "
    last_hop = "committed -> reader" if "sink" in hops else "produce -> reader"
    name = "reader" if "source" in hops else "source_and_reader"
    return [*parts, Part(name, before + last_hop, rest50, rest99, "remainder")]
