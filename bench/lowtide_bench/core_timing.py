"""Timing of short calls: warm or cold, each beside a calibration loop that reveals when the machine was disturbed."""

from __future__ import annotations

import ast
import bisect
import heapq
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import getsource
from statistics import median
from time import perf_counter_ns, thread_time_ns
from typing import Any, Literal, TypeVar

T = TypeVar("T")
State = Literal["warm", "cold"]
STATES: tuple[State, ...] = ("warm", "cold")

QUIET = 1.15
"""A calibration this much slower than the fastest of its run shows that the machine was disturbed."""
LEAST = 20
"""Enough samples from quiet moments for a median; if there are fewer, the quietest are scaled."""
EVICTED_BYTES = 32 << 20
"""Bytes to walk before a cold call: more than a core's share of the caches."""


class Samples:
    """The times of one step, each with the calibration beside it; all in ns."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []
        """(calibration, time)."""

    @property
    def best(self) -> int:
        """The fastest calibration."""
        return min(self._taken)[0]

    def add(self, took: int, calibration: int) -> None:
        """Add a sample."""
        self._taken.append((calibration, took))

    def median_us(self, best: int) -> float:
        """Return the median of samples from quiet moments; if those are few, scale the quietest by their calibration.

        Args:
            best: The fastest calibration of the run.
        """
        quiet = [took for calibration, took in self._taken if calibration <= QUIET * best]
        if len(quiet) >= min(LEAST, len(self._taken)):
            return median(quiet) / 1e3
        return median([took * best / calibration for calibration, took in heapq.nsmallest(LEAST, self._taken)]) / 1e3

    def quiet_share(self, best: int) -> float:
        """The share of samples from quiet moments."""
        return sum(calibration <= QUIET * best for calibration, _ in self._taken) / len(self._taken)


class Timer:
    """Times steps by name; the caches are cold at the start of a worker's turn if `state` says so.

    Args:
        state: "cold" to evict the caches before each turn.
        skipped: Number of first calls of each step that are neither cold nor counted: they fill the worker's state.
    """

    def __init__(self, state: State, skipped: int) -> None:
        self._cold = state == "cold"
        self._skipped = skipped
        self._calls: dict[str, int] = {}
        self.samples: dict[str, Samples] = {}
        """By step, and by step and stage (`step/stage`) where stages are watched."""
        self._stages: dict[str, int] = {}
        """For the current step, the ns of each stage."""
        self._within: list[int] = []
        """For each watched call in progress, the ns of the calls within it."""

    def turn(self, name: str, call: Callable[[], T]) -> T:
        """Time a call that begins a turn of the loop."""
        if self._cold and self._calls.get(name, 0) >= self._skipped:
            evict()
        return self.step(name, call)

    def step(self, name: str, call: Callable[[], T]) -> T:
        """Time a call that follows another in the same turn."""
        stages = self._stages
        stages.clear()
        cpu_began = thread_time_ns()  # Slow to read, hence around the clock: it is less only where others had the core.
        began = perf_counter_ns()
        result = call()
        took = perf_counter_ns() - began
        took = min(took, thread_time_ns() - cpu_began)
        calls = self._calls[name] = self._calls.get(name, 0) + 1
        if calls > self._skipped:
            calibrate()  # Twice, since the first may find its own code out of the caches.
            calibration = calibrate()
            self.samples.setdefault(name, Samples()).add(took, calibration)
            for stage, inner in stages.items():
                self.samples.setdefault(f"{name}/{stage}", Samples()).add(inner, calibration)
        return result

    def watched(self, stage: str, call: Callable[..., T]) -> Callable[..., T]:
        """Wrap a function: its time, without the watched calls in it, counts as a stage of the step."""
        stages, within = self._stages, self._within

        def timed(*args: Any, **kwargs: Any) -> T:
            within.append(0)
            began = perf_counter_ns()
            result = call(*args, **kwargs)
            took = perf_counter_ns() - began
            stages[stage] = stages.get(stage, 0) + took - within.pop()
            if within:
                within[-1] += took
            return result

        return timed


def calibrate() -> int:
    """Time a fixed piece of work of about 15 µs, in ns: a machine's speed may halve within milliseconds."""
    began = perf_counter_ns()
    total = 0
    seen: dict[int, int] = {}
    for number in range(300):
        total += number
        seen[number & 63] = total
    return perf_counter_ns() - began


_WALKED = bytearray(EVICTED_BYTES)
_SOURCE = getsource(bisect)
_DOCUMENT = [{"a": number, "b": [number, str(number)], "c": {"x": None}} for number in range(60)]
_PATTERN = r"(?P<name>\w+)\s*=\s*(['\"])(.*?)\2|(\d+)(\.\d+)?([eE][+-]?\d+)?"


def evict() -> None:
    """Leave the caches as a worker finds them that wakes now and then: full of other data and of other code."""
    _WALKED.find(b"\1")  # No byte matches, so this walks everything.
    re.purge()
    re.compile(_PATTERN)
    ast.parse(_SOURCE)
    json.dumps(_DOCUMENT, indent=1)
    sorted(_DOCUMENT, key=lambda each: str(each["a"]))


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


def spread(values: list[float]) -> Spread:
    """Return the spread of one figure's values, of which there is at least one."""
    return Spread(median(values), min(values), max(values), len(values))
