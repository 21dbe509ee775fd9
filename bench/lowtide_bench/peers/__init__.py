"""Lowtide's peers, measured like Lowtide itself: one Kafka, one generator, one reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NAMES = (
    "lowtide", "pyflink-thread-50ms", "pyflink-thread-1s", "pyflink-process-50ms", "pyflink-process-1s",
    "spark-micro-batch", "bytewax", "spark-real-time", "bare",
)  # fmt: skip
"""The systems, in the order of the README's table."""

FLOWS: Mapping[str, tuple[int, ...]] = {
    "running-count": (1_000, 50_000), "word-count": (100, 1_000), "inverted-index": (100, 1_000),
}  # fmt: skip
"""The flows, each with the rates to measure it at by default: a document is the work of some 20 records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Extent of the measurement.

    Attributes:
        flow: The flow, one of `FLOWS`.
        rates: Rates at which to measure latency, in records per second.
        seconds: Duration of each.
        warmup_s: Duration of the load before that.
        limits: Whether to find the highest rate that each system keeps up with.
        kill: Whether to kill each system once.
        tries: Limit on measurements of one figure, which are repeated while the machine disturbs them.
    """

    flow: str
    rates: tuple[int, ...]
    seconds: float
    warmup_s: float
    limits: bool
    kill: bool
    tries: int
