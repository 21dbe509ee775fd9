"""Labels: the formula alone (R1), and a front that labels, hands out and reports."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from lowtide.bench.core_timing import Extent, measured
from lowtide.bytes_column import BytesColumn
from lowtide.fronts.floors import NO_TICK, Floors
from lowtide.fronts.front import Front, Window
from lowtide.fronts.labels import Clock, label
from lowtide.operators.source import SourceRows
from lowtide_tracker import Floor

SLACK_MS = 2
FIRST_MS = 1_700_000_000_000
PER_MS = 100
LATE_SHARE = 0.01
"""Messages whose timestamp is a few ms below that of the one before: a log is not monotone in practice."""
FLOOR_EVERY = 50_000
"""One idle heartbeat in so many messages."""
VALUE = b"x" * 100
MAX_FUTURE_MS = 60_000


def timestamps(n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return int64[n], ms."""
    random = np.random.default_rng(5)
    result: np.ndarray[Any, np.dtype[np.int64]] = FIRST_MS + np.arange(n, dtype=np.int64) // PER_MS
    return result - np.where(random.random(n) < LATE_SHARE, random.integers(1, 5, n), 0)


def floors(n: int) -> list[Floor]:
    """Return the floors of a log of n messages: the opening one, and some of idle times."""
    offsets = range(0, n, FLOOR_EVERY)
    return [Floor(0, offset, (FIRST_MS + offset // PER_MS) // SLACK_MS) for offset in offsets]


def labels(extent: Extent) -> dict[str, Any]:
    """Return records a second by batch size: `label_per_s` of the formula, `front_per_s` of a whole front."""
    result: dict[str, Any] = {}
    for size in extent.sizes:
        count = extent.batches(size)
        spreads = measured(lambda size=size, count=count: _trial(size, count), extent)  # type: ignore[misc]
        result[str(size)] = {name: spread.as_json() for name, spread in spreads.items()}
    return result


def _trial(size: int, count: int) -> dict[str, float]:
    n = size * count
    stamps, offsets = timestamps(n), np.arange(n, dtype=np.int64)
    known, clock = Floors(floors(n)), Clock(SLACK_MS, FIRST_MS + n, MAX_FUTURE_MS)
    before = NO_TICK
    began = perf_counter()
    for start in range(0, n, size):
        part = slice(start, start + size)
        ticks, _ = label(0, offsets[part], stamps[part], before=before, floors=known, clock=clock)
        before = int(ticks[-1])
    labelled = perf_counter() - began
    return {"label_per_s": n / labelled, "front_per_s": n / _front_s(size, stamps, offsets)}


def _front_s(size: int, stamps: Any, offsets: Any) -> float:
    """How long a front takes for the messages, told min time after each batch."""
    n = len(stamps)
    column = BytesColumn(VALUE * size, np.arange(0, (size + 1) * len(VALUE), len(VALUE), dtype=np.int64))
    batches = [
        SourceRows(0, offsets[start : start + size], stamps[start : start + size], column, column)
        for start in range(0, n, size)
    ]
    front = Front(
        0,
        slack_ms=SLACK_MS,
        opening=FIRST_MS // SLACK_MS,
        window=Window(1 << 20, 1 << 40),
        max_future_ms=MAX_FUTURE_MS,
        floors=floors(n),
    )
    began = perf_counter()
    for rows in batches:
        front.take(rows, FIRST_MS + n)
        front.admitted(front.heartbeat)
        front.prune(front.report().heartbeat)
    return perf_counter() - began
