"""What an exchange costs besides the steps around it: order keys, columns, frames' bytes, and objects made of them."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import pyarrow as pa

from lowtide.bench.core_grouping import plan_of
from lowtide.bench.core_records import Arrival, arrivals
from lowtide.bench.core_timing import Extent, measured
from lowtide.bench.record import Sample
from lowtide.operators.batch import Batch, exchange_schema
from lowtide.operators.order import pack
from lowtide.schema import schema_of


def exchange(extent: Extent) -> dict[str, Any]:
    """Return records a second by batch size, for each part of the way."""
    result = {}
    for size in extent.sizes:
        arrived = arrivals(plan_of("scan"), size, extent.batches(size))
        spreads = measured(lambda arrived=arrived: _trial(arrived), extent)  # type: ignore[misc]
        result[str(size)] = {name: spread.as_json() for name, spread in spreads.items()}
    return result


def _trial(arrived: list[Arrival]) -> dict[str, float]:
    schema = schema_of(Sample)
    columns = exchange_schema(schema)
    depth = plan_of("scan").vertices[-1].depth
    batches = [Batch.from_arrow(schema, arrival.table) for arrival in arrived]
    messages = [arrival.table.serialize() for arrival in arrived]
    parts: dict[str, tuple[list[Any], Callable[[Any], object]]] = {
        "pack_keys_per_s": (batches, lambda batch: pack(batch.meta, depth)),
        "write_frame_per_s": (batches, lambda batch: batch.to_arrow().serialize()),
        "read_frame_per_s": (
            messages,
            lambda message: Batch.from_arrow(schema, pa.ipc.read_record_batch(message, columns)),
        ),
        "make_rows_per_s": (batches, lambda batch: batch.rows()),
        "make_columns_per_s": (batches, lambda batch: schema.columns(batch.rows())),
    }
    records = sum(map(len, batches))
    return {name: records / _seconds(inputs, part) for name, (inputs, part) in parts.items()}


def _seconds(inputs: list[Any], part: Callable[[Any], object]) -> float:
    began = perf_counter()
    for each in inputs:
        part(each)
    return perf_counter() - began
