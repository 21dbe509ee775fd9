"""`scan` and `last(2)` with a user's Python functions, from an exchange's columns to the columns of a sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any, Literal

from lowtide import Flow, json, kafka
from lowtide.bench.core_records import Arrival, arrivals, late_share
from lowtide.bench.core_timing import Extent, measured
from lowtide.bench.record import KEYS, Sample
from lowtide.compiler import compile_flow
from lowtide.operators.batch import Batch
from lowtide.operators.output import Deliver
from lowtide.operators.program import Program
from lowtide.plan import Plan
from lowtide.schema import schema_of

Step = Literal["scan", "last"]
STEPS: tuple[Step, ...] = ("scan", "last")
MODES = ("optimistic", "ordered")
PRUNE_LAG_TICKS = 5
"""How far global min time, at which groupings prune, is behind the min time of the segment."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What the scan gives: a key's running count."""

    key: str
    count: int


@dataclass(frozen=True, slots=True)
class Gap:
    """What comes of a window: how far a key's last two records are apart."""

    key: str
    records: int


def count(state: int, sample: Sample) -> tuple[int, Counted]:
    """The user's function of the scan."""
    return state + 1, Counted(sample.key, state + 1)


def gap(window: tuple[Sample, ...]) -> Gap:
    """The user's function behind `last(2)`."""
    return Gap(window[-1].key, window[-1].sequence - window[0].sequence)


@cache
def plan_of(step: Step) -> Plan:
    """Return `key_by -> step -> write`, on one worker."""
    flow = Flow("core")
    keyed = flow.read("source", kafka("source", json(Sample))).key_by("key")
    if step == "scan":
        keyed.scan("count", count, 0).write("sink", kafka("sink", json(Counted)))
    else:
        keyed.last(2).map(gap).write("sink", kafka("sink", json(Gap)))
    return compile_flow(flow, parallelism=1)


@dataclass(frozen=True, slots=True)
class Course:
    """What went through a program.

    Attributes:
        records: How many records came.
        delivered: How many items and tombstones came out at the sink.
        repairs: How many outputs were taken back.
        seconds: How long it took.
    """

    records: int
    delivered: int
    repairs: int
    seconds: float


def course(program: Program, arrived: list[Arrival], *, decode: bool = True) -> Course:
    """Feed batches as a worker does: after each comes a notice, at which it advances and prunes.

    Args:
        program: Of level 1, with an empty state.
        arrived: The batches.
        decode: Whether reading the columns and making objects of them counts; if not, they are there before.
    """
    exchange = next(vertex.id for vertex in program.plan.exchanges() if vertex.level == 1)
    schema = schema_of(Sample)
    records = delivered = 0
    seconds = 0.0
    for arrival in arrived:
        began = perf_counter()
        batch = Batch.from_arrow(schema, arrival.table)
        if not decode:
            batch = Batch(schema, batch.meta, rows=batch.rows())
            began = perf_counter()
        outputs = program.feed(exchange, batch)
        outputs += program.advance(arrival.min_time)
        program.prune(arrival.min_time - PRUNE_LAG_TICKS)
        seconds += perf_counter() - began
        records += len(batch)
        delivered += sum([len(output.batch) for output in outputs if isinstance(output, Deliver)])
    return Course(records, delivered, program.repairs, seconds)


def trial(step: Step, mode: str, arrived: list[Arrival]) -> Mapping[str, float]:
    """Run courses from an empty state; return records a second, with and without making objects of columns."""
    rates = {}
    for name, decode in (("per_s", True), ("without_decode_per_s", False)):
        done = course(Program(plan_of(step), 1, mode), arrived, decode=decode)
        rates[name] = done.records / done.seconds
    return rates


def grouping(step: Step, extent: Extent) -> dict[str, Any]:
    """Return the figures of a step: by mode, by whether records come in order, by batch size."""
    result: dict[str, Any] = {mode: {"in_order": {}, "two_fronts": {}} for mode in MODES}
    for size in extent.sizes:
        for name, fronts in (("in_order", 1), ("two_fronts", 2)):
            arrived = arrivals(plan_of(step), size, extent.batches(size), fronts=fronts, keys=KEYS)
            late = late_share(arrived)
            for mode in MODES:
                # Bound now: the loop's variables have moved on by the time a closure would look at them.
                spreads = measured(lambda mode=mode, arrived=arrived: trial(step, mode, arrived), extent)  # type: ignore[misc]
                figures: dict[str, Any] = {figure: spread.as_json() for figure, spread in spreads.items()}
                done = course(Program(plan_of(step), 1, mode), arrived)
                figures |= {"late_share": round(late, 4), "repairs_share": round(done.repairs / done.records, 4)}
                result[mode][name][str(size)] = figures
    return result
