"""The barrier: records and a few tombstones in, bundles out."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Literal

import numpy as np

from lowtide.bench.core_records import FIRST_TICK, RECORDS_PER_TICK, columns
from lowtide.bench.core_timing import Extent, measured
from lowtide.bench.record import Sample
from lowtide.operators.barrier import Barrier
from lowtide.operators.batch import Batch
from lowtide.operators.meta import Meta
from lowtide.schema import schema_of

Form = Literal["columns", "rows"]
FORMS: tuple[Form, ...] = ("columns", "rows")
LANES = 4
UNITS = 128
TOMBSTONE_SHARE = 0.01
"""Of the records so many are taken back and given anew, behind all others of their batch."""


def barrier(extent: Extent) -> dict[str, Any]:
    """Return records a second by what batches hold and by their size; the tombstones count as records."""
    result: dict[str, Any] = {}
    for what in FORMS:
        result[what] = {}
        for size in extent.sizes:
            batches = _batches(size, extent.batches(size), what)
            spreads = measured(lambda batches=batches: _trial(batches), extent)  # type: ignore[misc]
            result[what][str(size)] = {name: spread.as_json() for name, spread in spreads.items()}
    return result


def _trial(batches: list[Batch]) -> dict[str, float]:
    """Add a batch, hear of min time, hand bundles out, hear that they are durable; again and again."""
    lane_of_unit = (np.arange(UNITS) * LANES // UNITS).astype(np.int32)
    held = Barrier("sink", lanes=range(LANES), lane_of_unit=lane_of_unit, depth=0)
    added = released = 0
    # Known beforehand, as a worker knows it from its notices.
    ticks = [int(batch.meta.tick[-1]) for batch in batches]
    began = perf_counter()
    for batch, tick in zip(batches, ticks, strict=True):
        held.add(batch)
        added += len(batch)
        bundles = held.advance(tick)
        while bundles:
            released += sum(map(len, bundles))
            after = [held.durable(bundle.lane) for bundle in bundles]
            bundles = [bundle for bundle in after if bundle is not None]
    seconds = perf_counter() - began
    assert released <= added - len(held), "what is released is no longer held"
    return {"per_s": added / seconds}


def _batches(size: int, count: int, what: Form) -> list[Batch]:
    """Batches of items in order, with items that are taken back and given again at the end."""
    random = np.random.default_rng(3)
    schema = schema_of(Sample)
    again = int(size * TOMBSTONE_SHARE)
    result = []
    for index in range(count):
        items = size - 2 * again
        sequence = np.arange(index * items, (index + 1) * items, dtype=np.int64)
        meta = Meta.of_source(0, 5, sequence, FIRST_TICK + sequence // RECORDS_PER_TICK)
        batch = Batch(
            schema, meta.with_unit(random.integers(0, UNITS, items).astype(np.int32)), columns=columns(sequence, random)
        )
        taken = np.sort(random.choice(items, again, replace=False))
        anew = batch.take(taken)
        back = anew.with_meta(anew.meta.with_tombstone(np.ones(again, np.bool_)))
        whole = Batch.concat([batch, back, anew]) if again else batch
        result.append(whole if what == "columns" else Batch(schema, whole.meta, rows=whole.rows()))
    return result
