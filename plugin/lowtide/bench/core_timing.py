"""Short timed loops, several times each: what every benchmark of the core has in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

Trial = Callable[[], Mapping[str, float]]
"""Prepares what it needs, does the work once, and returns the figures by name: entries, records a second."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured; every loop is bounded in count, and no trial begins after its case's time is over.

    Attributes:
        records: At most so many records in a trial.
        calls: At most so many batches in a trial.
        trials: At most so many after the first one, which counts only if there is no time for others.
        limit_s: A case begins no other trial after this.
        sizes: Records in a batch.
        notices: How many notices are timed.
    """

    records: int = 100_000
    calls: int = 2_000
    trials: int = 5
    limit_s: float = 2.0
    sizes: tuple[int, ...] = (10, 100, 1_000, 10_000)
    notices: int = 1_200

    def batches(self, size: int) -> int:
        """How many batches of a size a trial takes."""
        return max(2, min(self.calls, self.records // size))


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over several trials."""

    median: float
    least: float
    most: float
    trials: int

    def as_json(self) -> dict[str, Any]:
        """Return the figures as numbers to be read."""
        return {"median": round(self.median, 3), "min": round(self.least, 3), "max": round(self.most, 3)}


def measured(trial: Trial, extent: Extent) -> dict[str, Spread]:
    """Run a trial once to get warm, then again and again; return each figure's spread."""
    first = trial()
    began = time.perf_counter()
    results: list[Mapping[str, float]] = []
    while len(results) < extent.trials and time.perf_counter() - began < extent.limit_s:
        results.append(trial())
    results = results or [first]
    return {name: spread([result[name] for result in results]) for name in first}


def spread(values: list[float]) -> Spread:
    """Return the spread of one figure's values, of which there is at least one."""
    return Spread(median(values), min(values), max(values), len(values))
