"""Which operator does which step."""

from __future__ import annotations

from lowtide.operators.batch_mapping import MapBatchesOperator
from lowtide.operators.filtering import FilterOperator
from lowtide.operators.flat_mapping import FlatMapOperator
from lowtide.operators.mapping import MapOperator
from lowtide.operators.per_record import Operator, PerRecord
from lowtide.plan import Vertex
from lowtide.steps import Filter, FlatMap, Map, MapBatches


def per_record_operator(vertex: Vertex) -> PerRecord | None:
    """The operator of a step whose function is called per record, None if the vertex is none."""
    step = vertex.step
    if isinstance(step, Map):
        return MapOperator(step.function, vertex.gives)
    if isinstance(step, FlatMap):
        return FlatMapOperator(step.function, vertex.gives)
    return FilterOperator(step.function) if isinstance(step, Filter) else None


def operator(vertex: Vertex) -> Operator | None:
    """The operator of a step with a function, None if the vertex has none: a source, an exchange or a sink."""
    if isinstance(vertex.step, MapBatches):
        return MapBatchesOperator(vertex.step.function, vertex.gives)
    return per_record_operator(vertex)
