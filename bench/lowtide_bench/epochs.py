"""End times of Spark's epochs, from its own progress reports."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def epoch_ends_ns(session: SparkSession) -> list[int]:
    """Return the ends of the last epochs, ns since 1970: the start of a trigger plus its duration."""
    ends = []
    for query in session.streams.active:
        for progress in query.recentProgress:
            began = datetime.fromisoformat(progress["timestamp"])
            took_ms = progress["durationMs"].get("triggerExecution", 0)
            ends.append(round(began.timestamp() * 1e3 + took_ms) * 1_000_000)
    return ends
