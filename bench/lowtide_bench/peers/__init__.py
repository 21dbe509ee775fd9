"""Lowtide's peers, measured like Lowtide itself: one Kafka, one generator, one reader."""

from __future__ import annotations

from dataclasses import dataclass

NAMES = (
    "lowtide", "pyflink-thread-50ms", "pyflink-thread-1s", "pyflink-process-50ms", "pyflink-process-1s",
    "spark-micro-batch", "bytewax", "spark-real-time", "bare",
)  # fmt: skip
"""The systems, in the order of the README's table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Extent of the measurement.

    Attributes:
        rates: Rates at which to measure latency, in records per second.
        seconds: Duration of each.
        warmup_s: Duration of the load before that.
        limits: Whether to find the highest rate that each system keeps up with.
        kill: Whether to kill each system once.
        tries: Limit on measurements of one figure, which are repeated while the machine disturbs them.
    """

    rates: tuple[int, ...]
    seconds: float
    warmup_s: float
    limits: bool
    kill: bool
    tries: int
