"""Figures of one system at one rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.histogram import Histogram
from lowtide_bench import boundaries
from lowtide_bench.arrivals import Arrivals, percentiles
from lowtide_bench.breakdown import Part, breakdown
from lowtide_bench.quiet import Noise
from lowtide_bench.roles import OF_SYSTEM, WORKERS
from lowtide_bench.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations from outside while a system ran.

    Attributes:
        sent: Records that Kafka took from the generator.
        due: Messages that have to come out for them.
        lag_p99_ms: p99 of the generator's lag behind its schedule, sampled at each send.
        lag_max_ms: The largest lag of the generator.
        ends_ns: Times at which epochs ended.
        hops: The system's own measurements in that time.
        cpu_s: CPU time within the window, in s, by the role of a process; see `roles`.
        noise: CPU of everything else on the machine within the window, and of the machine.
        start_s: From the start to the first record at the reader.
        fed_per_s: Keys per second that came through while the state was filled; None if it was not filled.
        tries: Number of tries that this is the last of; see `quiet`.
    """

    sent: int
    due: int
    lag_p99_ms: float
    lag_max_ms: float
    ends_ns: Sequence[int]
    hops: Mapping[str, Histogram]
    cpu_s: Mapping[str, float]
    noise: Noise
    start_s: float
    fed_per_s: float | None = None
    tries: int = 1

    def cpu_json(self, records: int) -> dict[str, Any]:
        """Return the JSON object's entries on CPU time, given the number of records it was used for."""
        workers_s = self.cpu_s.get(WORKERS)
        return {
            "cpu_s": round(sum(used for role, used in self.cpu_s.items() if role in OF_SYSTEM), 2),
            "cpu_by_process_s": {role: round(used, 2) for role, used in self.cpu_s.items()},
            "workers_us_per_record": round(workers_s / records * 1e6, 2) if workers_s and records else None,
            **self.noise_json(),
        }

    def noise_json(self) -> dict[str, Any]:
        """Return the JSON object's entries on what disturbed the measurement."""
        return self.noise.as_json(self.tries)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one system at one rate; times in ms unless named otherwise, nan where nothing arrived.

    Attributes:
        sustained_per_s: Records received per second, in the measured window.
        p50_ms: And p90, p99: of the records that no epoch's boundary caught.
        p99_all_ms: Of all records.
        max_ms: Of all records.
        boundary_stalls_ms: For each boundary, the longest latency of a record that it caught.
        caught: Records that boundaries caught.
        records: Messages that count.
        done: Records that came out within the window, whenever they were due; the divisor of CPU time.
        lost: Due, warm-up included, and never received.
        duplicated: Received more than once, warm-up included.
        faults: Records with wrong content, such as a count that is not one more than the previous; None if unknown.
    """

    sustained_per_s: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p99_all_ms: float
    max_ms: float
    boundary_stalls_ms: Sequence[float]
    caught: int
    records: int
    done: int
    lost: int
    duplicated: int
    faults: int | None
    observed: Observed
    parts: Sequence[Part]

    @classmethod
    def of(cls, arrivals: Arrivals, schedule: Schedule, observed: Observed) -> Figures:
        """Compute all figures from the arrivals and the observations."""
        measured = arrivals.measured(schedule)
        found = boundaries.find(measured, observed.ends_ns)
        latency = measured.latency_ms()
        p50, p90, p99 = percentiles(latency[~found.caught])
        p99_all, longest = percentiles(latency, (99, 100))
        return cls(
            sustained_per_s=round(arrivals.sustained_per_s(schedule), 1),
            p50_ms=round(p50, 3),
            p90_ms=round(p90, 3),
            p99_ms=round(p99, 3),
            p99_all_ms=round(p99_all, 3),
            max_ms=round(longest, 3),
            boundary_stalls_ms=found.stalls_ms,
            caught=int(found.caught.sum()),
            records=len(measured),
            done=arrivals.done(schedule.window_ns),
            lost=observed.due - len(arrivals),
            duplicated=arrivals.duplicated,
            faults=arrivals.faults,
            observed=observed,
            parts=breakdown(measured.only(~found.caught), observed.hops),
        )

    def as_json(self) -> dict[str, Any]:
        """Return this system's entries of the JSON object; null for nan."""
        seen = self.observed
        stalls = list(self.boundary_stalls_ms)
        plain = {
            "sustained_per_s": self.sustained_per_s,
            "p50_ms": self.p50_ms,
            "p90_ms": self.p90_ms,
            "p99_ms": self.p99_ms,
            "p99_all_ms": self.p99_all_ms,
            "max_ms": self.max_ms,
            "boundary_stalls_ms": stalls,
            "boundary_stall_max_ms": max(stalls, default=None),
            "records": self.records,
            "caught": self.caught,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "faults": self.faults,
            **seen.cpu_json(self.done),
            "start_s": round(seen.start_s, 2),
            "generator_lag_p99_ms": seen.lag_p99_ms,
            "generator_lag_max_ms": seen.lag_max_ms,
            "breakdown": {part.name: part.as_json() for part in self.parts},
        }
        return {name: null_for_nan(value) for name, value in plain.items()}


def null_for_nan(value: Any) -> Any:
    """Return a value with None for each nan, which JSON cannot express."""
    if isinstance(value, dict):
        return {name: null_for_nan(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
