"""The words after `window(...)`: they give a window's result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lowtide.errors import FlowError
from lowtide.flow.site import check_text, function_of, user_site
from lowtide.flow.steps import steps
from lowtide.flow.steps.agg import Aggregate
from lowtide.flow.steps.steps import WindowBy
from lowtide.flow.steps.windows import Calendar, Session, Sliding, Tumbling, Window
from lowtide.flow.time.event_time import AHEAD, EVENT_TIME, EventTime
from lowtide.flow.words.streams import Stream

if TYPE_CHECKING:
    from lowtide.flow.steps.graph import FlowGraph

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")


class Windowed(Generic[T]):
    """Records in windows of time; takes one of `aggregate`, `reduce`, `fold` and `apply`.

    Example:
        >>> clicks.key_by("user").window("minutes", lt.tumbling(lt.minutes(1)))
        Windowed('shop', 'minutes')
    """

    def __init__(self, flow: FlowGraph, call: int) -> None:
        self._flow = flow
        self._call = call
        self._late: Stream[T] | None = None

    @property
    def late(self) -> Stream[T]:
        """The records that came after their window had closed, or lie too far ahead of log time; unchanged.

        Example:
            >>> clock = lt.event_time("at", wait=lt.seconds(1))
            >>> visits = clicks.key_by("user").window("visits", lt.session(lt.minutes(30)), time=clock)
            >>> visits.aggregate(Total, amount=lt.agg.count()).write("totals", to_totals)
            >>> visits.late.write("late", lt.kafka("late-clicks", lt.json(Click), key="user"))
            >>> len(flow.run_locally(clicks=[lt.Stamped(Click("ada", "/", noon), at=noon + lt.hours(1))])["late"])
            1
        """
        if self._late is None:
            self._late = Stream(self._flow, self._flow.add(steps.Late(), None, (self._call,), user_site()))
        return self._late

    def aggregate(self, returns: type[U], **columns: Aggregate) -> Stream[U]:
        """Give one record per window: the key's columns, window_start and window_end where it has them, and aggregates.

        Args:
            returns: The type of the records, a dataclass whose fields all are one of these.
            columns: The aggregates by the fields that they fill, such as `clicks=lt.agg.count()`.

        Example:
            >>> minutes = clicks.key_by("user").window("minutes", lt.tumbling(lt.minutes(1)))
            >>> minutes.aggregate(Total, amount=lt.agg.count()).write("totals", to_totals)
            >>> flow.run_locally(clicks=two_clicks)["totals"]
            [Total(user='ada', amount=1), Total(user='ada', amount=1)]
        """
        return self._made(steps.Combined(returns, tuple(columns.items())))

    def reduce(self, function: Callable[[T, T], T]) -> Stream[T]:
        """Give one record per window: its records, put together two by two in Lowtide's order.

        Args:
            function: Takes what came of the records so far, and a record, and returns one of the same type. It must be
                deterministic and must change nothing in place. Of two sessions that become one it takes both results.

        Example:
            >>> hours = orders.key_by("user").window("hours", lt.tumbling(lt.hours(1)))
            >>> hours.reduce(lambda one, other: Order(one.user, one.amount + other.amount)).write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["chosen"]
            [Order(user='ada', amount=11)]
        """
        return self._made(steps.Reduced(function_of(function)))

    def fold(
        self,
        function: Callable[[S, T], S],
        initial: S,
        finish: Callable[[Window, S], U],
        *,
        merge: Callable[[S, S], S] | None = None,
        returns: type[U] | None = None,
    ) -> Stream[U]:
        """Give one record per window, made of a state.

        Args:
            function: Takes the state and a record, returns the new state; see `KeyedStream.scan`.
            initial: The state before a window's first record.
            finish: Takes the window and its state, returns the record.
            merge: For sessions: takes the states of two that become one, the earlier one first.
            returns: The type of the records if `finish` has no annotation that says it.

        Example:
            >>> def result(window: lt.Window, total: int) -> Total:
            ...     return Total(*window.key, total)
            >>> hours = orders.key_by("user").window("hours", lt.tumbling(lt.hours(1)))
            >>> hours.fold(lambda total, order: total + order.amount, 0, result).write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
            [Total(user='ada', amount=11)]
        """
        merged = None if merge is None else function_of(merge)
        return self._made(steps.Folded(function_of(function), initial, function_of(finish), merged, returns=returns))

    def apply(
        self, function: Callable[[Window, tuple[T, ...]], Iterable[U]], *, returns: type[U] | None = None
    ) -> Stream[U]:
        """Give any number of records per window, made of all its records, which are kept until it closes.

        Args:
            function: Takes the window and its records in Lowtide's order, returns records in order.
            returns: The type of the records if the function has no annotation that says it.

        Example:
            >>> def two_largest(window: lt.Window, orders: tuple[Order, ...]) -> list[Order]:
            ...     return sorted(orders, key=lambda order: order.amount)[-2:]
            >>> hours = orders.key_by("user").window("hours", lt.tumbling(lt.hours(1)))
            >>> hours.apply(two_largest).write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 7), Order("ada", 6)])["chosen"]
            [Order(user='ada', amount=6), Order(user='ada', amount=7)]
        """
        return self._made(steps.Applied(function_of(function), returns))

    def _made(self, result: steps.Combined | steps.Reduced | steps.Folded | steps.Applied) -> Stream[Any]:
        step = self._flow.calls[self._call].step
        assert isinstance(step, WindowBy), "window(...) wrote it"
        if step.result is not None:
            raise FlowError(
                f"the windows of {self._flow.calls[self._call].name!r} already have a result",
                where=str(user_site()),
                way_out="put both results into one, or write a second window with another name",
            )
        self._flow.complete(self._call, replace(step, result=result))
        return Stream(self._flow, self._call)

    def __repr__(self) -> str:
        return f"Windowed({self._flow.name!r}, {self._flow.calls[self._call].name!r})"


def window_by(name: str, windows: Any, time: object, emit: Any) -> WindowBy:
    """Make the step of `window(...)`, without its result; raises FlowError for arguments that do not fit."""
    check_text("window", name)

    def refuse(what: str, way_out: str) -> FlowError:
        return FlowError(f'window "{name}": {what}', where=str(user_site()), way_out=way_out)

    if not isinstance(windows, Tumbling | Sliding | Session | Calendar):
        raise refuse(f"expected windows, found {windows!r}", "write lt.tumbling(lt.minutes(5)), for example")
    if time is not None and not isinstance(time, EventTime):
        raise refuse(f"time= takes an event time, found {time!r}", f"write time={EVENT_TIME}, for example")
    if emit not in ("close", "update"):
        raise refuse(f'emit= takes "close" or "update", found {emit!r}', "leave it out for one result at the close")
    if emit == "update" and isinstance(windows, Session):
        raise refuse("sessions have no updates, as their bounds change while they are open", 'leave out emit="update"')
    if time is None:
        return WindowBy(windows, None, ahead=AHEAD, emit=emit)
    return WindowBy(windows, time.column, time.wait, time.ahead, time.late, emit)
