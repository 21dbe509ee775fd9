"""What the garbage collector costs: Python's defaults and a worker's settings in turn, in one run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from lowtide.bench.core_grouping import STEPS, Step, plan_of, trial
from lowtide.bench.core_records import Arrival, arrivals
from lowtide.bench.core_timing import Extent, spread
from lowtide.bench.record import KEYS
from lowtide.worker.garbage import set_up_collector

SIZE = 1_000
"""Records in a batch."""
KEY_COUNTS = (KEYS, 100 * KEYS)
"""A state that fits into the caches, and one that grows with nearly every record."""
SETTINGS = ("defaults", "worker")


def collector(extent: Extent) -> dict[str, Any]:
    """Return records a second and the longest pause in ms, by step, number of keys and settings."""
    result: dict[str, Any] = {}
    for step in STEPS:
        for keys in KEY_COUNTS:
            arrived = arrivals(plan_of(step), SIZE, extent.batches(SIZE), keys=keys)
            result[f"{step}, {keys} keys"] = _pairs(step, arrived, extent.trials)
    return result


def _pairs(step: Step, arrived: list[Arrival], trials: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {name: [] for name in SETTINGS}
    pauses: dict[str, list[float]] = {name: [0.0] for name in SETTINGS}
    trial(step, "optimistic", arrived)
    for _ in range(trials):
        for name in SETTINGS:
            with _set_up(name), _timed(pauses[name]):
                rates[name].append(trial(step, "optimistic", arrived)["per_s"])
    return {
        name: {"per_s": spread(rates[name]).as_json(), "longest_pause_ms": round(max(pauses[name]), 3)}
        for name in SETTINGS
    }


@contextmanager
def _set_up(name: str) -> Iterator[None]:
    """Have the collector as Python has it, or as a worker has it; afterwards as before."""
    thresholds = gc.get_threshold()
    gc.unfreeze()
    gc.collect()
    if name == "worker":
        set_up_collector()
    else:
        gc.set_threshold(700, 10, 10)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@contextmanager
def _timed(pauses_ms: list[float]) -> Iterator[None]:
    """Note how long each collection takes."""
    began = 0.0

    def note(phase: str, _info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = perf_counter()
        else:
            pauses_ms.append((perf_counter() - began) * 1e3)

    gc.callbacks.append(note)
    try:
        yield
    finally:
        gc.callbacks.remove(note)
