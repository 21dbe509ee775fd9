"""Records as they come from an exchange: Arrow columns with their meta, of one front or of two that interleave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowtide.bench.record import KEYS, Sample
from lowtide.operators.batch import Batch
from lowtide.operators.exchange import ExchangeOperator
from lowtide.operators.meta import Meta
from lowtide.operators.order import step_id
from lowtide.plan import Plan
from lowtide.schema import schema_of
from lowtide.steps import KeyBy

RECORDS_PER_TICK = 200
"""100,000 records/s where a tick is 2 ms."""
LAG_TICKS = 2
"""How far the second of two fronts is behind the first."""
FIRST_TICK = 10**12
_TEXT = "abcdefghijklmnopqrstuv"


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """One batch as a worker gets it.

    Attributes:
        table: Columns and meta.
        min_time: What min time is once it has come: nothing below it comes later.
    """

    table: pa.RecordBatch
    min_time: int


def arrivals(plan: Plan, size: int, count: int, *, fronts: int = 1, keys: int = KEYS) -> list[Arrival]:
    """Return batches of records with random keys.

    Args:
        plan: The plan; its first exchange is a `key_by("key")`.
        size: Records in a batch.
        count: How many batches.
        fronts: 1 for records in order; 2 for batches of which one half comes from a front that is `LAG_TICKS` behind
            the other, so that some records come after later ones of their key.
        keys: How many keys there are.
    """
    random = np.random.default_rng(7)
    exchange = next(vertex for vertex in plan.exchanges() if vertex.level == 1)
    assert isinstance(exchange.step, KeyBy)
    operator = ExchangeOperator(plan.name, exchange.name, exchange.step, plan.units)
    # Room for one record per front at least.
    share = max(1, size // fronts)
    result = []
    for index in range(count):
        sequence = np.arange(index * share, (index + 1) * share, dtype=np.int64)
        parts = [_part(plan, front, fronts, sequence, columns(sequence, random, keys)) for front in range(fronts)]
        batch = Batch.concat([operator.assign(part) for part in parts])
        result.append(Arrival(batch.to_arrow(), min(int(part.meta.tick[-1]) for part in parts)))
    return result


def _part(plan: Plan, front: int, fronts: int, sequence: npt.NDArray[np.int64], data: list[pa.Array]) -> Batch:
    tick = FIRST_TICK + sequence * fronts // RECORDS_PER_TICK - front * LAG_TICKS
    trace = int(step_id(plan.name, next(iter(plan.sources())).name, 0, front))
    return Batch(schema_of(Sample), Meta.of_source(front, trace, sequence, tick), columns=data)


def columns(sequence: npt.NDArray[np.int64], random: np.random.Generator, keys: int = KEYS) -> list[pa.Array]:
    """Return the columns of samples with these numbers and random keys."""
    names = pa.array([f"k{key:03d}" for key in range(keys)])
    texts = pa.array([_TEXT] * len(sequence))
    return [
        names.take(pa.array(random.integers(0, keys, len(sequence)))),
        pa.array(sequence),
        pa.array(sequence),
        texts,
    ]


def late_share(arrived: list[Arrival]) -> float:
    """Return the share of records that come in a later batch than a record of their key that stands behind them."""
    newest: dict[str, tuple[int, int, int]] = {}
    late = total = 0
    for keys, places in _by_batch(arrived):
        total += len(keys)
        late += sum(place < newest.get(key, place) for key, place in zip(keys, places, strict=True))
        for key, place in zip(keys, places, strict=True):
            newest[key] = max(place, newest.get(key, place))
    return late / total


def _by_batch(arrived: list[Arrival]) -> Iterator[tuple[list[str], list[tuple[int, int, int]]]]:
    for arrival in arrived:
        table = arrival.table
        parts = (table.column(name).to_pylist() for name in ("_tick", "_front", "_sequence"))
        yield table.column("key").to_pylist(), list(zip(*parts, strict=True))
