"""What `table`, `join_table` and `join` write down; what no flow can mean is refused here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lowtide.errors import FlowError
from lowtide.flow import steps
from lowtide.flow.calls import check_text, function_of, user_site
from lowtide.flow.durations import duration_of

if TYPE_CHECKING:
    from lowtide.flow.graph import FlowGraph

__all__ = ["Table", "join_table_of", "table_of"]

R = TypeVar("R")


class Table(Generic[R]):
    """The newest record of every key of a stream, for `join_table(name, this, ...)`."""

    def __init__(self, flow: FlowGraph, call: int) -> None:
        self._flow = flow
        self._call = call

    def __repr__(self) -> str:
        return f"Table({self._flow.name!r}, {self._flow.calls[self._call].name!r})"


def table_of(name: str, deleted: object, ttl: timedelta | None) -> steps.Table:
    """The step, as `table(...)` says it."""
    check_text("table", name)
    if deleted is not None and not isinstance(deleted, str):
        raise FlowError(f"deleted= takes the name of a column, found {deleted!r}", where=str(user_site()))
    return steps.Table(deleted, None if ttl is None else duration_of("table", "ttl", ttl))


def join_table_of(
    flow: FlowGraph, name: str, table: object, function: Callable[..., Any], how: Any, returns: type | None
) -> tuple[list[int], steps.JoinTable]:
    """The table's call, and the step, as `join_table(...)` says it."""
    check_text("join_table", name)
    if not isinstance(table, Table) or table._flow is not flow:
        raise FlowError(
            f"join_table takes a table of the flow {flow.name!r}, found {table!r}",
            where=str(user_site()),
            way_out="make one: stream.key_by(...).table(name)",
        )
    if how not in ("inner", "left"):
        raise FlowError(f'how= takes "inner" or "left", found {how!r}', where=str(user_site()))
    return [table._call], steps.JoinTable(function_of(function), how, returns)
