"""The steps of `table`, `join_table` and `join`; refuses arguments that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lowtide.errors import FlowError
from lowtide.flow.site import check_text, function_of, user_site
from lowtide.flow.steps import steps
from lowtide.flow.time.durations import bounded_duration, duration_of
from lowtide.flow.time.event_time import AHEAD, EVENT_TIME, EventTime
from lowtide.flow.time.moments import ZERO
from lowtide.flow.words.streams import Stream

if TYPE_CHECKING:
    from lowtide.flow.steps.graph import FlowGraph

T = TypeVar("T")
R = TypeVar("R")
U = TypeVar("U")


class Table(Generic[R]):
    """The newest record of every key of a stream, for `join_table(name, this, ...)`.

    Example:
        >>> payments.key_by("user").table("methods", ttl=lt.days(365))
        Table('shop', 'methods')
    """

    def __init__(self, flow: FlowGraph, call: int) -> None:
        self._flow = flow
        self._call = call

    def __repr__(self) -> str:
        return f"Table({self._flow.name!r}, {self._flow.calls[self._call].name!r})"


class Joined(Stream[U], Generic[T, R, U]):
    """The results of a join.

    Example:
        >>> orders.key_by("user").join("paid", payments.key_by("user"), lambda order, payment: order, returns=Order)
        Joined('shop', 'paid')
    """

    def __init__(self, flow: FlowGraph, call: int) -> None:
        super().__init__(flow, call)
        self._lates: dict[int, Stream[Any]] = {}

    @property
    def late(self) -> Stream[T]:
        """The first stream's records that came more than `wait` after their time, or lie too far ahead; not joined.

        Example:
            >>> clock, by_user = lt.event_time("at", wait=lt.seconds(1)), clicks.key_by("user")
            >>> pairs = by_user.join("pairs", by_user, lambda one, other: one, time=clock, returns=Click)
            >>> pairs.late.write("late", lt.kafka("late-clicks", lt.json(Click), key="user"))
        """
        return self._late(0)

    @property
    def late_other(self) -> Stream[R]:
        """The other stream's late records.

        Example:
            >>> clock, by_user = lt.event_time("at", wait=lt.seconds(1)), clicks.key_by("user")
            >>> pairs = by_user.join("pairs", by_user, lambda one, other: one, time=clock, returns=Click)
            >>> pairs.late_other.write("late", lt.kafka("late-clicks", lt.json(Click), key="user"))
        """
        return self._late(1)

    def _late(self, port: int) -> Stream[Any]:
        if port not in self._lates:
            self._lates[port] = Stream(self._flow, self._flow.add(steps.Late(port), None, (self._call,), user_site()))
        return self._lates[port]


def table_of(name: str, deleted: object, ttl: timedelta | None) -> steps.Table:
    """Make the step of `table(...)`."""
    check_text("table", name)
    if deleted is not None and not isinstance(deleted, str):
        raise FlowError(f"deleted= takes the name of a column, found {deleted!r}", where=str(user_site()))
    return steps.Table(deleted, None if ttl is None else duration_of("table", "ttl", ttl))


def join_of(
    name: str, function: Callable[..., Any], near: tuple[Any, Any], time: object, how: Any, returns: type | None
) -> steps.Join:
    """Make the step of `join(...)`; raises FlowError for arguments that do not fit."""
    check_text("join", name)
    before, after = (bounded_duration(f'join "{name}"', *each) for each in zip(("before", "after"), near, strict=True))
    if how not in ("inner", "left", "right", "outer"):
        what = f'join "{name}": how= takes "inner", "left", "right" or "outer", found {how!r}'
        raise FlowError(what, where=str(user_site()), way_out="leave it out for pairs only")
    timed: dict[str, Any] = {"ahead": AHEAD} if time is None else _timed(f'join "{name}"', time, "ahead", "late")
    return steps.Join(function_of(function), how, before, after, returns=returns, **timed)


def join_asof_of(
    name: str, function: Callable[..., Any], back: object, time: object, how: Any, returns: type | None
) -> steps.JoinAsof:
    """Make the step of `join_asof(...)`; raises FlowError for arguments that do not fit."""
    check_text("join_asof", name)
    before = bounded_duration(f'join_asof "{name}"', "back", back)
    if how not in ("inner", "left"):
        raise FlowError(f'join_asof "{name}": how= takes "left" or "inner", found {how!r}', where=str(user_site()))
    timed = _timed(f'join_asof "{name}"', time, "wait", "ahead", "late")
    return steps.JoinAsof(function_of(function), how, before, ZERO, returns=returns, **timed)


def _timed(step: str, time: object, *alike: str) -> dict[str, Any]:
    """Return the event time fields of a join's step.

    Args:
        step: Its word and name.
        time: As the user gave it: one for both streams, or a pair.
        alike: The fields in which a pair must agree.
    """
    pair = time if isinstance(time, tuple) else (time, time)

    def refuse(what: str, way_out: str) -> FlowError:
        return FlowError(f"{step}: {what}", where=str(user_site()), way_out=way_out)

    match pair:
        case EventTime() as one, EventTime() as other:
            pass
        case _:
            what = f"time= takes an event time, or one for each stream, found {time!r}"
            raise refuse(what, f"write time={EVENT_TIME}, for example")
    for word in alike:
        if getattr(one, word) != getattr(other, word):
            what = f"its event times differ in {word}=, which must be the same for both streams"
            raise refuse(what, f"give both the same {word}=")
    return {
        "time": (one.column, other.column),
        "wait": (one.wait, other.wait),
        "ahead": one.ahead,
        "late": one.late,
    }


def join_table_of(
    flow: FlowGraph, name: str, table: object, function: Callable[..., Any], how: Any, returns: type | None
) -> tuple[list[int], steps.JoinTable]:
    """Return the table's call, and the step of `join_table(...)`."""
    check_text("join_table", name)
    if not isinstance(table, Table) or table._flow is not flow:
        raise FlowError(
            f"join_table takes a table of the flow {flow.name!r}, found {table!r}",
            where=str(user_site()),
            way_out="make one: stream.key_by(...).table(name)",
        )
    if how not in ("inner", "left"):
        raise FlowError(f'how= takes "inner" or "left", found {how!r}', where=str(user_site()))
    rows = flow.calls[table._call].step
    assert isinstance(rows, steps.Table), "table(...) wrote it"
    return [table._call], steps.JoinTable(function_of(function), how, rows, returns)
