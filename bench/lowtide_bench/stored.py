"""A worker whose state is that of the running count, as many keys as one likes: what `lowtide bench store` saves."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from lowtide import Flow, kafka, raw
from lowtide.core.worker import WorkerCore
from lowtide.flow.compiler import compile_flow
from lowtide.flow.plan import Plan
from lowtide.flow.raw_record import Raw
from lowtide_bench.counted import SPREAD, count, state_message
from lowtide_tracker import LocalTracker

STEP = "count"
START = 1
"""The tick at which the state is as it is."""


@dataclass(frozen=True, slots=True)
class Padded:
    """A count with bytes beside it, for states that are larger."""

    count: int
    padding: bytes


def count_padded(seen: Padded, record: Raw) -> tuple[Padded, Raw]:
    """The running count with such a state."""
    _, counted = count(seen.count, record)
    return Padded(seen.count + 1, seen.padding), counted


def plan_of(state_bytes: int) -> Plan:
    """Return the running count on one worker; its state is a number, with so many bytes beside it if not 0."""
    flow = Flow("stored")
    keyed = flow.read("source", kafka("source", raw())).key_by("key")
    counted = keyed.scan(STEP, count_padded, Padded(0, b"")) if state_bytes else keyed.scan(STEP, count, 0)
    counted.write("sink", kafka("sink", raw()))
    return compile_flow(flow, parallelism=1)


def filled(keys: int, state_bytes: int) -> WorkerCore:
    """Return a worker with so many keys, over all hash units; their bytes are random, so that they do not shrink."""
    plan, draw = plan_of(state_bytes), Random(0)  # noqa: S311 - the same each time
    units: dict[int, list[tuple[bytes, int | Padded]]] = {unit: [] for unit in range(plan.units)}
    for number in range(keys):
        key, _ = state_message(number, 0)
        seen = draw.randrange(1, 1_000_000)
        state = Padded(seen, draw.randbytes(state_bytes)) if state_bytes else seen
        units[(number * SPREAD >> 16) % plan.units].append((key, state))
    core = WorkerCore(plan, 1, 0, tracker=LocalTracker(1, 1, start=START))
    core.restore({STEP: {unit: entries for unit, entries in units.items() if entries}}, START)
    return core
