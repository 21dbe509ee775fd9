"""Breakdown of the time between source and sink, from the workers' own histograms over the measured time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide.histogram import Histogram

Counts = Mapping[str, Mapping[int, int]]
"""Per hop, bucket to records."""

TURN = "turn"
"""The name of what is no hop: turns of the hosts' loops."""
_PER_LEVEL = ("exchange", "python")


def of_status(status: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    """Sum up a job's status: `pack`, `wait`, `sink`, per level `exchange 1`, `python 0`, `python 1`; and `turn`."""
    sums: dict[str, Histogram] = {}
    for worker in status["workers"]:
        turns = worker["gauges"].get("turns")
        for hop, counts in {**worker["gauges"].get("hops", {}), **({TURN: turns} if turns else {})}.items():
            name = f"{hop} {worker['level']}" if hop in _PER_LEVEL else hop
            # Through JSON, a bucket has become text.
            sums.setdefault(name, Histogram()).merge({int(bucket): count for bucket, count in counts.items()})
    return {name: histogram.counts for name, histogram in sums.items()}


def between(before: Counts, after: Counts) -> dict[str, Histogram]:
    """Return the counts from one status to a later one."""
    grown = {}
    for name, counts in after.items():
        old = before.get(name, {})
        grown[name] = Histogram({bucket: count - old.get(bucket, 0) for bucket, count in counts.items()})
    return grown
