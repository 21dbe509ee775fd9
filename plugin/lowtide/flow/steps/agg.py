"""Aggregates over the records of a key or of a window, column by column; public as `lowtide.agg`.

None is left out, as in SQL, except by `first`, `latest` and `collect`. Order is Lowtide's. NaN is larger than every
number, as in PostgreSQL, Spark and DuckDB, so that the smallest and the largest do not depend on what came first.

    aggregate("spent", Spent, amount=agg.sum("amount"), orders=agg.count())
"""

from __future__ import annotations

import builtins
import operator
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Context, Decimal, InvalidOperation, Rounded
from enum import Enum
from functools import partial, reduce
from itertools import chain
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from lowtide.errors import FlowError
from lowtide.flow.other_words import OF_AGGREGATES
from lowtide.flow.schema.markers import Precision
from lowtide.flow.site import user_site
from lowtide.flow.steps.signature import Unreadable, accepts, said

__all__ = [
    "Aggregate",
    "collect",
    "count",
    "count_distinct",
    "first",
    "latest",
    "max",
    "max_by",
    "mean",
    "min",
    "min_by",
    "sum",
]

Types = Callable[[Any], tuple[Any, Any]]
"""Maps the type added to those of the state and the result; raises Unreadable if it cannot be added."""

_NUMBERS = (int, float, Decimal)
_AVERAGED = (int, float)
_ORDERED = (int, float, Decimal, str, bytes, bool, date, datetime, time, UUID)
_EXACT = (int, str, bytes, bool, date, datetime, time, UUID)
_LARGEST = (1 << 63) - 1
_DIGITS = 38
_EXACTLY = Context(prec=_DIGITS, traps=[Rounded, InvalidOperation])


def _itself(state: Any) -> Any:
    return state


@dataclass(frozen=True)
class Aggregate:
    """One column of an aggregation's result; make your own from four functions.

    Attributes:
        initial: The state of no records.
        add: Takes the state and the column's value, or the record if there is no column; returns the new state. Its
            annotations give the state's type; without them it is that of `initial`.
        merge: Merges two states, the first of which came first; sessions need it.
        finish: Makes the result from the state.
        column: The column whose values are added; None for whole records.
        types: For Lowtide's own aggregates, whose types depend on the column's.

    Example:
        >>> product = lt.agg.Aggregate(1, lambda product, amount: product * amount, column="amount")
        >>> orders.key_by("user").aggregate("products", Total, amount=product).write("totals", to_totals)
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
        [Total(user='ada', amount=5), Total(user='ada', amount=30)]
    """

    initial: Any
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None = None
    finish: Callable[[Any], Any] = _itself
    column: str | None = None
    types: Types | None = field(default=None, kw_only=True, repr=False)

    @property
    def is_state(self) -> bool:
        """True if the result is the state itself.

        Example:
            >>> lt.agg.sum("amount").is_state, lt.agg.mean("amount").is_state
            (True, False)
        """
        return self.finish is _itself


@dataclass(frozen=True)
class IntMean:
    """The state of a mean of ints."""

    total: int
    count: int


@dataclass(frozen=True)
class FloatMean:
    """The state of a mean of floats."""

    total: float
    count: int


def count(column: str | None = None) -> Aggregate:
    """Count the records; with a column, those where it is not None.

    Example:
        >>> counts = orders.key_by("user").aggregate("counts", Total, amount=lt.agg.count())
        >>> counts.write("totals", to_totals)
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
        [Total(user='ada', amount=1), Total(user='ada', amount=2)]
    """
    return Aggregate(0, _counted, operator.add, column=column, types=_counting)


def sum(column: str) -> Aggregate:  # noqa: A001 - the module's name stands before it
    """Sum the values, floats in order; None for no values.

    A sum of decimals has as many digits after the point as they have, and in all as many as the `Precision` of the
    field that it fills allows; a record that makes it need more fails.

    Example:
        >>> spent = orders.key_by("user").aggregate("spent", Total, amount=lt.agg.sum("amount"))
        >>> spent.write("totals", to_totals)
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
        [Total(user='ada', amount=5), Total(user='ada', amount=11)]
    """
    return Aggregate(None, _added, _added, column=column, types=_summed)


def mean(column: str) -> Aggregate:
    """Average the values, as a float; None for no values. Decimals are refused: their means fit no number of digits.

    Example:
        >>> @dataclass(frozen=True)
        ... class Mean:
        ...     user: str
        ...     mean: float
        >>> means = orders.key_by("user").aggregate("means", Mean, mean=lt.agg.mean("amount"))
        >>> means.write("means", lt.kafka("means", lt.json(Mean), key="user"))
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["means"]
        [Mean(user='ada', mean=5.0), Mean(user='ada', mean=5.5)]
    """
    return Aggregate(None, _averaged, _both_averaged, _divided, column, types=_mean)


def min(column: str) -> Aggregate:  # noqa: A001 - the module's name stands before it
    """Take the smallest value; None for no values.

    Example:
        >>> smallest = orders.key_by("user").aggregate("smallest", Total, amount=lt.agg.min("amount"))
        >>> smallest.write("totals", to_totals)
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
        [Total(user='ada', amount=5), Total(user='ada', amount=5)]
    """
    return Aggregate(None, _smaller, _smaller, column=column, types=_chosen)


def max(column: str) -> Aggregate:  # noqa: A001 - the module's name stands before it
    """Take the largest value; None for no values.

    Example:
        >>> largest = orders.key_by("user").aggregate("largest", Total, amount=lt.agg.max("amount"))
        >>> largest.write("totals", to_totals)
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
        [Total(user='ada', amount=5), Total(user='ada', amount=6)]
    """
    return Aggregate(None, _larger, _larger, column=column, types=_chosen)


def first(column: str) -> Aggregate:
    """Take the value of the first record in Lowtide's order.

    Example:
        >>> first = orders.key_by("user").aggregate("first", Total, amount=lt.agg.first("amount"))
        >>> first.write("totals", to_totals)
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
        [Total(user='ada', amount=5), Total(user='ada', amount=5)]
    """
    return Aggregate((), _kept, _first, _only, column, types=_one)


def latest(column: str) -> Aggregate:
    """Take the value of the last record in Lowtide's order.

    Example:
        >>> latest = orders.key_by("user").aggregate("latest", Total, amount=lt.agg.latest("amount"))
        >>> latest.write("totals", to_totals)
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
        [Total(user='ada', amount=5), Total(user='ada', amount=6)]
    """
    return Aggregate((), _replaced, _last, _only, column, types=_one)


def min_by(column: str, by: str) -> Aggregate:
    """Take a column of the record in which another is smallest; the first of equals.

    Example:
        >>> @dataclass(frozen=True)
        ... class Visitor:
        ...     user: str
        ...     page: str
        >>> visitors = clicks.key_by("user").aggregate("visitors", Visitor, page=lt.agg.min_by("page", by="at"))
        >>> visitors.write("visitors", lt.kafka("visitors", lt.json(Visitor), key="user"))
        >>> flow.run_locally(clicks=two_clicks)["visitors"]
        [Visitor(user='ada', page='/'), Visitor(user='ada', page='/')]
    """
    return _by(column, by, _lower)


def max_by(column: str, by: str) -> Aggregate:
    """Take a column of the record in which another is largest; the first of equals.

    Example:
        >>> @dataclass(frozen=True)
        ... class Visitor:
        ...     user: str
        ...     page: str
        >>> visitors = clicks.key_by("user").aggregate("visitors", Visitor, page=lt.agg.max_by("page", by="at"))
        >>> visitors.write("visitors", lt.kafka("visitors", lt.json(Visitor), key="user"))
        >>> flow.run_locally(clicks=two_clicks)["visitors"]
        [Visitor(user='ada', page='/'), Visitor(user='ada', page='/cart')]
    """
    return _by(column, by, _higher)


def count_distinct(column: str) -> Aggregate:
    """Count the different values, exactly; its state grows with them.

    Example:
        >>> amounts = orders.key_by("user").aggregate("amounts", Total, amount=lt.agg.count_distinct("amount"))
        >>> amounts.write("totals", to_totals)
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
        [Total(user='ada', amount=1), Total(user='ada', amount=2)]
    """
    return Aggregate((), _noted, _all_noted, _how_many, column, types=_distinct)


def collect(column: str | None = None) -> Aggregate:
    """Collect all values, or all records, into a tuple in Lowtide's order; its state grows with them.

    Example:
        >>> @dataclass(frozen=True)
        ... class Amounts:
        ...     user: str
        ...     amounts: tuple[int, ...]
        >>> amounts = orders.key_by("user").aggregate("amounts", Amounts, amounts=lt.agg.collect("amount"))
        >>> amounts.write("amounts", lt.kafka("amounts", lt.json(Amounts), key="user"))
        >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["amounts"]
        [Amounts(user='ada', amounts=(5,)), Amounts(user='ada', amounts=(5, 6))]
    """
    return Aggregate((), _appended, _all_appended, _flat, column, types=_collected)


# -- what they do ------------------------------------------------------------------------------------------------------


def _counted(state: int, value: Any) -> int:
    return state + (value is not None)


def _added(state: Any, value: Any) -> Any:
    if state is None or value is None:
        return value if state is None else state
    return _exact_sum(state, value) if type(value) is Decimal else _fitting(state + value)


def _exact_sum(state: Decimal, value: Decimal) -> Decimal:
    try:
        return _EXACTLY.add(state, value)
    except (Rounded, InvalidOperation):
        raise OverflowError(f"the sum has more than {_DIGITS} digits") from None


def _fitting(total: Any) -> Any:
    if type(total) is int and not -_LARGEST - 1 <= total <= _LARGEST:
        raise OverflowError("the sum does not fit into 64 bits")
    return total


def _averaged(state: Any, value: Any) -> Any:
    if value is None:
        return state
    return _both_averaged(state, (IntMean if type(value) is int else FloatMean)(value, 1))


def _both_averaged(state: Any, other: Any) -> Any:
    if state is None or other is None:
        return other if state is None else state
    return type(state)(_fitting(state.total + other.total), state.count + other.count)


def _divided(state: Any) -> float | None:
    if state is None:
        return None
    mean: float = state.total / state.count
    return mean


def _smaller(state: Any, value: Any) -> Any:
    return state if value is None or (state is not None and not _lower(value, state)) else value


def _larger(state: Any, value: Any) -> Any:
    return state if value is None or (state is not None and not _higher(value, state)) else value


def _lower(value: Any, other: Any) -> bool:
    """Return whether a value is smaller; NaN, which is not equal to itself, is larger than any number."""
    return bool(value < other or (other != other and value == value))  # noqa: PLR0124 - so NaN is known


def _higher(value: Any, other: Any) -> bool:
    return bool(value > other or (value != value and other == other))  # noqa: PLR0124 - likewise


def _first(state: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return state or other


def _last(state: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return other or state


def _only(state: tuple[Any, ...]) -> Any:
    return state[0] if state else None


def _kept(state: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return state or (value,)


def _replaced(_: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return (value,)


Chunks = tuple[tuple[Any, ...], ...]
"""Growing values in chunks, each at least twice as long as the next. A state is never changed, and one with a value
more shares most chunks with the one before. n values copy n log n, where new tuples of all would copy n^2 / 2."""

Order = Callable[[Any], Any] | None
"""The key that orders values; None for the values themselves."""


def _pushed(chunks: Chunks, last: tuple[Any, ...]) -> Chunks:
    """Return the chunks with one more, which comes last."""
    end = len(chunks)
    while end and len(chunks[end - 1]) < 2 * len(last):
        end -= 1
        last = chunks[end] + last
    return (*chunks[:end], last)


def _flat(state: Chunks) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(state))


def _how_many(state: Chunks) -> int:
    return builtins.sum(map(len, state))


def _appended(state: Chunks, value: Any) -> Chunks:
    return _pushed(state, (value,))


def _all_appended(state: Chunks, other: Chunks) -> Chunks:
    return reduce(_pushed, other, state)


def _by(column: str, by: str, better: Callable[[Any, Any], bool]) -> Aggregate:
    """Keep the best record so far."""
    return Aggregate(
        (),
        partial(_better, by, better),
        partial(_better_of_both, by, better),
        partial(_column_of_only, column),
        types=partial(_best, column, by),
    )


def _better(by: str, better: Callable[[Any, Any], bool], state: tuple[Any, ...], record: Any) -> tuple[Any, ...]:
    value = getattr(record, by)
    return state if value is None or (state and not better(value, getattr(state[0], by))) else (record,)


def _better_of_both(
    by: str, better: Callable[[Any, Any], bool], state: tuple[Any, ...], other: tuple[Any, ...]
) -> tuple[Any, ...]:
    return _better(by, better, state, other[0]) if other else state


def _column_of_only(column: str, state: tuple[Any, ...]) -> Any:
    return getattr(state[0], column) if state else None


def _noted(state: Chunks, value: Any) -> Chunks:
    """Return the values so far; each chunk is sorted, so that a value is found without looking at all."""
    if value is None:
        return state
    order = _value_of if isinstance(value, Enum) else None
    return state if _has(state, value, order) else _sorted_in(state, (value,), order)


def _all_noted(state: Chunks, other: Chunks) -> Chunks:
    for chunk in other:
        order = _value_of if isinstance(chunk[0], Enum) else None
        new = tuple([value for value in chunk if not _has(state, value, order)])
        if new:
            state = _sorted_in(state, new, order)
    return state


def _has(state: Chunks, value: Any, order: Order) -> bool:
    rank = value if order is None else order(value)
    for chunk in state:
        at = bisect_left(chunk, rank, key=order)
        if at < len(chunk) and chunk[at] == value:
            return True
    return False


def _sorted_in(chunks: Chunks, last: tuple[Any, ...], order: Order) -> Chunks:
    """Return the chunks with one more, each sorted."""
    end = len(chunks)
    while end and len(chunks[end - 1]) < 2 * len(last):
        end -= 1
        last = tuple(sorted(chunks[end] + last, key=order))
    return (*chunks[:end], last)


def _value_of(value: Enum) -> Any:
    return value.value


# -- their types -------------------------------------------------------------------------------------------------------


def columns_of(record: type) -> dict[str, Any]:
    """Return the types of a dataclass's columns, without the markers for a value's place in a message."""
    return {name: _unmarked(hint) for name, hint in get_type_hints(record, include_extras=True).items()}


def _unmarked(hint: Any) -> Any:
    if not hasattr(hint, "__metadata__"):
        return hint
    inner = get_args(hint)[0]
    precision = next((mark for mark in hint.__metadata__ if isinstance(mark, Precision)), None)
    if precision is None:
        return inner
    marked = Annotated[Decimal, precision]
    return marked if inner is Decimal else Union[marked, None]  # noqa: UP007 - of no plain type


def _some(value: Any) -> Any:
    """Return a type without None."""
    if get_origin(value) in (Union, UnionType):
        others = [each for each in get_args(value) if each is not NoneType]
        return others[0] if len(others) == 1 else value
    return value


def _limited(value: Any, kinds: tuple[type, ...]) -> Any:
    """Return a type without None, if it is one of these or a Literal of them."""
    some = _some(value)
    if Decimal in kinds and _scale(some) is not None:
        return some
    if some not in kinds and not (get_origin(some) is Literal and {*map(type, get_args(some))} <= {*kinds}):
        raise Unreadable(f"takes {', '.join(kind.__name__ for kind in kinds)}, but the column is {said(value)}")
    return some


def _number(value: Any, kinds: tuple[type, ...]) -> Any:
    """As `_limited`, but for a Literal return its base type: the sum of its members is not a member."""
    some = _limited(value, kinds)
    return type(get_args(some)[0]) if get_origin(some) is Literal else some


def _counting(_: Any) -> tuple[Any, Any]:
    return int, int


def _scale(value: Any) -> int | None:
    """Return the digits after the point of a Decimal's type; None for any other type."""
    marks = getattr(value, "__metadata__", ())
    return next((mark.scale for mark in marks if isinstance(mark, Precision)), None)


def digits_of(hint: Any) -> int | None:
    """Return all digits of a Decimal's type, perhaps `| None`; None for any other type."""
    marks = getattr(_some(hint), "__metadata__", ())
    return next((mark.digits for mark in marks if isinstance(mark, Precision)), None)


def fills(hint: Any, given: Any) -> bool:
    """Return whether a value of one type may fill a field of another; decimals need only the same scale."""
    scale = _scale(_some(given))
    if scale is None or scale != _scale(_some(hint)):
        return accepts(hint, given)
    return hint is not _some(hint) or given is _some(given)


def _summed(value: Any) -> tuple[Any, Any]:
    some = _number(value, _NUMBERS)
    scale = _scale(some)
    if scale is not None:  # A sum may have all digits that a column holds.
        total = Annotated[Decimal, Precision(_DIGITS, scale)]
        return Union[total, None], total if value is some else Union[total, None]  # noqa: UP007 - of no plain type
    return some | None, some if value is _some(value) else some | None


def _mean(value: Any) -> tuple[Any, Any]:
    if _scale(_some(value)) is not None:
        raise Unreadable(
            "is a mean of decimals, for which no number of digits is right; fill two fields with agg.sum and agg.count "
            "and divide in a map"
        )
    state = IntMean if _number(value, _AVERAGED) is int else FloatMean
    return state | None, float if value is _some(value) else float | None


def _chosen(value: Any) -> tuple[Any, Any]:
    return Union[_limited(value, _ORDERED), None], value  # noqa: UP007 - of no plain type


def _one(value: Any) -> tuple[Any, Any]:
    return tuple[value, ...], value


def _best(column: str, by: str, record: type) -> tuple[Any, Any]:
    hints = columns_of(record)
    for name in (column, by):
        if name not in hints:
            raise Unreadable(f"takes column {name!r}, but {said(record)} has {', '.join(hints)}")
    result = hints[column]
    if _limited(hints[by], _ORDERED) is not hints[by]:
        result = Union[_some(result), None]  # noqa: UP007 - of no plain type
    return tuple[record, ...], result  # type: ignore[valid-type]  # a type made at run time


def _distinct(value: Any) -> tuple[Any, Any]:
    some = _some(value)
    if not (isinstance(some, type) and issubclass(some, Enum)):
        _limited(value, _EXACT)
    return tuple[tuple[some, ...], ...], int  # type: ignore[valid-type]  # a type made at run time


def _collected(value: Any) -> tuple[Any, Any]:
    return tuple[tuple[value, ...], ...], tuple[value, ...]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if (ours := OF_AGGREGATES.get(name)) is not None:
            raise FlowError(f"lt.agg has no {name}", where=str(user_site()), way_out=f"write lt.agg.{ours}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
