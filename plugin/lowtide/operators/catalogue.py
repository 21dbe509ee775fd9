"""Which node does which step that only calls a function."""

from __future__ import annotations

from lowtide.operators.batch_mapping import MapBatchesNode
from lowtide.operators.filtering import FilterNode
from lowtide.operators.flat_mapping import FlatMapNode
from lowtide.operators.mapping import MapNode
from lowtide.operators.node import Node
from lowtide.operators.per_record import PerRecord
from lowtide.plan import Vertex
from lowtide.steps import Filter, FlatMap, Map, MapBatches


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
