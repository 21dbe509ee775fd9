"""Settings of `lowtide bench tracker`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Settings of the measurement.

    Attributes:
        seconds: Duration of each run.
        entries: Acks in a flush.
        capacity_workers: Workers of the run at full speed and of the run for latency.
        rate: Flushes per second of each worker, in runs with a pace.
        workers: Numbers of workers for traffic by workers.
        traffic_rate: The pace of those runs, and of the runs by depth.
        depths: Numbers of segments for traffic by segments.
        depth: Segments in all other runs.
        records: Records per second and worker, for traffic by records.
        shards: Numbers of shards for work by shards.
        keyed: Numbers of workers for notices with early keys.
    """

    seconds: float
    entries: int
    capacity_workers: int
    rate: float
    workers: Sequence[int]
    traffic_rate: float
    depths: Sequence[int]
    depth: int
    records: Sequence[int]
    shards: Sequence[int]
    keyed: Sequence[int]
