"""Which node does which step that only calls a function."""

from __future__ import annotations

from lowtide.core.operators.batch_mapping import MapBatchesNode
from lowtide.core.operators.filtering import FilterNode
from lowtide.core.operators.flat_mapping import FlatMapNode
from lowtide.core.operators.mapping import MapNode
from lowtide.core.operators.node import Node
from lowtide.core.operators.per_record import PerRecord
from lowtide.flow.plan import Vertex
from lowtide.flow.steps import Filter, FlatMap, Map, MapBatches


def per_record_node(vertex: Vertex) -> PerRecord | None:
    """The node of a step whose function is called per record, None if the vertex is none."""
    if isinstance(vertex.step, Map):
        return MapNode(vertex)
    if isinstance(vertex.step, FlatMap):
        return FlatMapNode(vertex)
    return FilterNode(vertex) if isinstance(vertex.step, Filter) else None


def function_node(vertex: Vertex) -> Node | None:
    """The node of a step with a function and no state, None if the vertex has none."""
    return MapBatchesNode(vertex) if isinstance(vertex.step, MapBatches) else per_record_node(vertex)
