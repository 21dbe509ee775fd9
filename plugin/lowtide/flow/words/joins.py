"""What `table`, `join_table` and `join` write down; what no flow can mean is refused here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lowtide.errors import FlowError
from lowtide.flow.site import check_text, function_of, user_site
from lowtide.flow.steps import steps
from lowtide.flow.time.durations import duration_of
from lowtide.flow.time.moments import ZERO
from lowtide.flow.words.streams import Stream
from lowtide.flow.words.window_words import LIMIT

if TYPE_CHECKING:
    from lowtide.flow.steps.graph import FlowGraph

__all__ = ["Joined", "Table", "join_asof_of", "join_of", "join_table_of", "table_of"]

T = TypeVar("T")
R = TypeVar("R")
U = TypeVar("U")


class Table(Generic[R]):
    """The newest record of every key of a stream, for `join_table(name, this, ...)`."""

    def __init__(self, flow: FlowGraph, call: int) -> None:
        self._flow = flow
        self._call = call

    def __repr__(self) -> str:
        return f"Table({self._flow.name!r}, {self._flow.calls[self._call].name!r})"


class Joined(Stream[U], Generic[T, R, U]):
    """What a join gives."""

    def __init__(self, flow: FlowGraph, call: int) -> None:
        super().__init__(flow, call)
        self._lates: dict[int, Stream[Any]] = {}

    @property
    def late(self) -> Stream[T]:
        """Records of the first stream that came more than `wait` after their time, or lie too far ahead; not joined."""
        return self._late(0)

    @property
    def late_other(self) -> Stream[R]:
        """Likewise of the other stream."""
        return self._late(1)

    def _late(self, port: int) -> Stream[Any]:
        if port not in self._lates:
            self._lates[port] = Stream(self._flow, self._flow.add(steps.Late(port), None, (self._call,), user_site()))
        return self._lates[port]


def table_of(name: str, deleted: object, ttl: timedelta | None) -> steps.Table:
    """The step, as `table(...)` says it."""
    check_text("table", name)
    if deleted is not None and not isinstance(deleted, str):
        raise FlowError(f"deleted= takes the name of a column, found {deleted!r}", where=str(user_site()))
    return steps.Table(deleted, None if ttl is None else duration_of("table", "ttl", ttl))


def join_of(
    name: str,
    function: Callable[..., Any],
    near: tuple[Any, Any],
    time: Any,
    wait: Any,
    ahead: Any,
    late: Any,
    how: Any,
    returns: type | None,
) -> steps.Join:
    """The step, as `join(...)` says it; raises FlowError for what no flow can mean."""
    check_text("join", name)

    def refuse(what: str, way_out: str) -> FlowError:
        return FlowError(f'join "{name}": {what}', where=str(user_site()), way_out=way_out)

    if (time is None) != (wait is None):
        raise refuse(
            f"{'wait=' if time is None else 'time='} stands without {'time=' if time is None else 'wait='}",
            "time= names the columns of event time, wait= says how long log time waits for it: give both or neither",
        )
    if time is not None and not (
        isinstance(time, tuple) and len(time) == 2 and all(isinstance(each, str) for each in time)
    ):
        raise refuse(f"time= takes the names of two columns, found {time!r}", 'write time=("at", "at"), for example')
    waits = wait if isinstance(wait, tuple) else (wait or ZERO,) * 2
    if len(waits) != 2:
        raise refuse(f"wait= takes one duration, or one for each stream, found {wait!r}", "write lt.minutes(1), say")
    words = zip(("before", "after", "wait", "wait", "ahead"), (*near, *waits, ahead), strict=True)
    for word, duration in words:
        if not isinstance(duration, timedelta) or not ZERO <= duration <= LIMIT:
            raise refuse(f"{word}= takes a duration of 0 to 100 years, found {duration!r}", "write lt.minutes(1), say")
    if late not in (None, "drop"):
        raise refuse(f'late= takes "drop" or nothing, found {late!r}', "take the late records by .late instead")
    if how not in ("inner", "left", "right", "outer"):
        raise refuse(f'how= takes "inner", "left", "right" or "outer", found {how!r}', "leave it out for pairs alone")
    before, after = near
    return steps.Join(function_of(function), how, before, after, time, waits, ahead, late, returns)


def join_asof_of(
    name: str,
    function: Callable[..., Any],
    back: Any,
    time: Any,
    wait: Any,
    ahead: Any,
    late: Any,
    how: Any,
    returns: type | None,
) -> steps.JoinAsof:
    """The step, as `join_asof(...)` says it; raises FlowError for what no flow can mean."""
    check_text("join_asof", name)
    for word, duration in (("back", back), ("wait", wait)):
        if not isinstance(duration, timedelta) or not ZERO <= duration <= LIMIT:
            raise FlowError(
                f'join_asof "{name}": {word}= takes a duration of 0 to 100 years, found {duration!r}',
                where=str(user_site()),
                way_out="write lt.minutes(1), say",
            )
    if how not in ("inner", "left"):
        raise FlowError(f'join_asof "{name}": how= takes "left" or "inner", found {how!r}', where=str(user_site()))
    if time is None:
        raise FlowError(
            f'join_asof "{name}": time= names the columns of event time, and is missing',
            where=str(user_site()),
            way_out='write time=("at", "at"), for example; by log time, join_table gives the newest record',
        )
    join = join_of(name, function, (back, ZERO), time, wait, ahead, late, how, returns)
    return steps.JoinAsof(**{field.name: getattr(join, field.name) for field in fields(join)})


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
