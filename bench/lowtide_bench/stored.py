"""A worker with the state of a count, running or in windows, of many keys: for `lowtide bench store` to save."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from lowtide import Flow, Window, kafka, minutes, raw, tumbling
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.raw_record import Raw
from lowtide_bench.counted import SPREAD, count, state_message
from lowtide_tracker import LocalTracker

STEP = "count"
START = 1
"""The tick of the state."""


Kept = Literal["scan", "windows"]
"""Owner of the state: a scan for each key, or one open window of each."""
SPAN_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Padded:
    """A count with bytes beside it, for larger states."""

    count: int
    padding: bytes


def count_padded(seen: Padded, record: Raw) -> tuple[Padded, Raw]:
    """The running count with such a state."""
    _, counted = count(seen.count, record)
    return Padded(seen.count + 1, seen.padding), counted


def add(seen: int, _: Raw) -> int:
    """A window's count."""
    return seen + 1


def add_padded(seen: Padded, _: Raw) -> Padded:
    """A window's count with such a state."""
    return Padded(seen.count + 1, seen.padding)


def closed(window: Window, seen: int | Padded) -> Raw:
    """A window's result: nothing of it is measured."""
    return Raw(window.key[0], repr(seen).encode())


def flow_of(state_bytes: int, kept: Kept) -> Flow:
    """Return the count; its state is a number, with this many bytes beside it if not 0."""
    flow = Flow("stored")
    keyed = flow.read("source", kafka("source", raw())).key_by("key")
    if kept == "windows":
        windows = keyed.window(STEP, tumbling(minutes(1)))
        counted = (
            windows.fold(add_padded, Padded(0, b""), closed, returns=Raw)
            if state_bytes
            else windows.fold(add, 0, closed, returns=Raw)
        )
    else:
        counted = keyed.scan(STEP, count_padded, Padded(0, b"")) if state_bytes else keyed.scan(STEP, count, 0)
    counted.write("sink", kafka("sink", raw()))
    return flow


def plan_of(state_bytes: int, kept: Kept) -> Plan:
    """Return the plan of the count on one worker."""
    return compile_flow(flow_of(state_bytes, kept), parallelism=1)


def filled(keys: int, state_bytes: int, kept: Kept = "scan") -> WorkerCore:
    """Return a worker with this many keys, over all hash units; their bytes are random, to resist compression."""
    plan, draw = plan_of(state_bytes, kept), Random(0)  # noqa: S311 - the same each time
    units: dict[int, list[tuple[Any, Any]]] = {unit: [] for unit in range(plan.units)}
    for number in range(keys):
        key, _ = state_message(number, 0)
        seen = draw.randrange(1, 1_000_000)
        state = Padded(seen, draw.randbytes(state_bytes)) if state_bytes else seen
        entry = state if kept == "scan" else [((0, SPAN_US), state)]
        units[(number * SPREAD >> 16) % plan.units].append((key, entry))
    core = WorkerCore(plan, 1, 0, tracker=LocalTracker(1, 1, start=START))
    core.restore({STEP: {unit: entries for unit, entries in units.items() if entries}}, START)
    return core
