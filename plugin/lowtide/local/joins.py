"""Joins in a run here and now: records come in order, so each has only to be looked at as it comes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from lowtide.core.operators.keys import key_of
from lowtide.core.operators.pairing import Pairing
from lowtide.flow.durations import ticks_of
from lowtide.flow.plan import Plan, Vertex
from lowtide.flow.steps import JoinTable, Table
from lowtide.local.items import Item

__all__ = ["ROWS", "Rows"]

ROWS = 1
"""The port of a table."""


class Rows:
    """The newest record of each key, for one `join_table`.

    Attributes:
        inner: Whether records without a row are left out.
        pairing: The step's function.
    """

    def __init__(self, plan: Plan, vertex: Vertex) -> None:
        assert isinstance(vertex.step, JoinTable)
        table = plan.table_of(vertex).step
        assert isinstance(table, Table)
        self._table = table
        self._ttl = None if table.ttl is None else ticks_of(table.ttl, plan.slack_ms)
        self._columns = [plan.key_of(vertex, port) for port in (0, ROWS)]
        self._rows: dict[Hashable, tuple[int, Any]] = {}
        self.inner = vertex.step.how == "inner"
        self.pairing = Pairing(vertex, [plan.vertices[parent].gives for parent in vertex.parents])

    def put(self, item: Item) -> None:
        """Take a record of the table."""
        key = key_of(self._columns[ROWS], item.record)
        if self._table.deleted is not None and getattr(item.record, self._table.deleted):
            self._rows.pop(key, None)
        else:
            self._rows[key] = item.order.tick, item.record

    def of(self, item: Item) -> Any:
        """The row for a record; None if there is none."""
        tick, row = self._rows.get(key_of(self._columns[0], item.record), (item.order.tick, None))
        return None if self._ttl is not None and item.order.tick - tick >= self._ttl else row
