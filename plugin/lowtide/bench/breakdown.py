"""Where the time of a record goes. Pure.

Percentiles of parts do not add up to the percentile of the whole; the remainder is what p50 (p99) of the whole leaves
after p50 (p99) of each part that is measured, so it is right for the median and only a hint for the tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lowtide.bench.arrivals import Arrivals, percentiles
from lowtide.compiler import DEFAULT_SLACK_MS
from lowtide.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the way.

    Attributes:
        name: As the breakdown has it.
        means: From where to where.
        p50_ms: Half of the records took less.
        p99_ms: One in a hundred took longer.
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


_COUNTED = {
    "source": ("source", "Kafka append -> first look at it"),
    "pack": ("stages", "first look in the JVM -> level 0 has it: packing and socket"),
    "python 0": ("python_0", "steps of level 0, to the frame"),
    "exchange": ("exchange", "level 0 has written the frame -> level 1 has it: sockets, JVM, Spark's shuffle"),
    "python 1": ("python_1", "steps of level 1, to the producer"),
}


def breakdown(arrivals: Arrivals, hops: Mapping[str, Histogram]) -> list[Part]:
    """Return the parts of the way, in its order.

    Args:
        arrivals: The records that count.
        hops: What was counted meanwhile; names as `hops.of_status` gives them, others are left out.
    """
    # Timestamps are whole milliseconds, those that a flow delivers whole ticks, rounded down: half is right on average.
    width_ms = DEFAULT_SLACK_MS if hops else 1
    to_source = np.asarray((arrivals.stamp_ms * 1e6 + width_ms * 5e5 - arrivals.sent_ns) / 1e6, dtype=np.float64)
    p50, p99 = percentiles(to_source, (50, 99))
    parts = [Part("generator", "due -> Kafka append", round(max(0.0, p50), 3), round(max(0.0, p99), 3), "measured")]
    for hop, (name, means) in _COUNTED.items():
        if hop in hops and any(hops[hop].counts.values()):
            half, most = (round(hops[hop].percentile_ms(percent), 3) for percent in (50, 99))
            parts.append(Part(name, means, half, most, "counted"))
    total50, total99 = percentiles(arrivals.latency_ms(), (50, 99))
    rest50 = round(total50 - sum(part.p50_ms for part in parts), 3)
    rest99 = round(total99 - sum(part.p99_ms for part in parts), 3)
    name, means = "sink", "produce -> reader"
    if "source" not in hops:
        name, means = "source_and_sink", "Kafka append -> first look of the next, and produce -> reader"
    return [*parts, Part(name, means, rest50, rest99, "remainder")]
