"""Aggregations: several aggregates over the same records, and the check that the result's type fits them.

aggregation = aggregation_of(Spent, {"amount": agg.sum("amount")}, takes=Order, key=("user",), windows=False)
state = aggregation.add(aggregation.initial, order)
spent = aggregation.finish(state, ("ann",))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from lowtide.errors import FlowError
from lowtide.flow.schema.kinds import Mismatch, encode_strictly
from lowtide.flow.schema.schema import SchemaRefused, kind_of, schema_of
from lowtide.flow.steps.agg import Aggregate, columns_of, digits_of, fills
from lowtide.flow.steps.signature import NOTHING, Unreadable, accepts, said, says_nothing, signature_of

WINDOW_FIELDS = ("window_start", "window_end")
"""The fields of a result that a window fills: the moments at which it begins and ends."""


class Aggregation:
    """Turns records into results; its state holds the states of all aggregates.

    Attributes:
        returns: The type of the results.
        state: The type of the states: a dataclass with one field per aggregate, in the order they were written.
        initial: The state of no records, as it would come back from a snapshot.
        merges: True if two states can be merged.
    """

    def __init__(
        self, returns: type, columns: Mapping[str, Aggregate], states: Mapping[str, Any], key: Sequence[str]
    ) -> None:
        hints = columns_of(returns)
        fields = {field.name for field in dataclasses.fields(returns)}
        self.returns = returns
        self.state = dataclasses.make_dataclass(f"{returns.__name__}State", list(states.items()), frozen=True)
        initial = self.state(*[each.initial for each in columns.values()])
        kind = kind_of(self.state, "its state")
        self.initial: Any = kind.decode(encode_strictly(kind, [initial], ""))[0]
        self.merges = all(each.merge is not None for each in columns.values())
        self._columns = dict(columns)
        self._digits = [(name, digits) for name in columns if (digits := digits_of(hints[name])) is not None]
        self._key = [(index, name) for index, name in enumerate(key) if name in fields]
        self._window = [name in fields for name in WINDOW_FIELDS]

    def add(self, state: Any, record: Any) -> Any:
        """Return the state with one more record."""
        return self.state(
            *[
                each.add(getattr(state, name), record if each.column is None else getattr(record, each.column))
                for name, each in self._columns.items()
            ]
        )

    def merge(self, state: Any, other: Any) -> Any:
        """Merge two states, the first of which came first; only if it `merges`."""
        pairs = [(each.merge, getattr(state, name), getattr(other, name)) for name, each in self._columns.items()]
        return self.state(*[merge(one, another) for merge, one, another in pairs if merge is not None])

    def finish(self, state: Any, key: Sequence[Any], start: datetime | None = None, end: datetime | None = None) -> Any:
        """Make the result of a state.

        Args:
            state: The state.
            key: The values of the key's columns.
            start: The window's start, if there are windows.
            end: Its end.
        """
        values = {name: key[index] for index, name in self._key}
        values |= {
            name: moment
            for name, moment, wanted in zip(WINDOW_FIELDS, (start, end), self._window, strict=True)
            if wanted
        }
        values |= {name: each.finish(getattr(state, name)) for name, each in self._columns.items()}
        for name, digits in self._digits:
            # Checked here and not on writing the result, so that the state stays without the record.
            if values[name] is not None and len(values[name].as_tuple().digits) > digits:
                raise OverflowError(f"{self.returns.__qualname__}.{name} would have more than {digits} digits")
        return self.returns(**values)


def aggregation_of(
    returns: type, columns: Mapping[str, Aggregate], *, takes: type, key: Sequence[str], windows: bool
) -> Aggregation:
    """Check a result's type against what fills it.

    Args:
        returns: A dataclass; each field must be a column of the key, a window's start or end, or one of `columns`.
        columns: The aggregates by the fields that they fill.
        takes: The type of the records.
        key: The key's columns.
        windows: True if there are windows, which fill `window_start` and `window_end`.

    Raises:
        FlowError: something does not fit.
    """
    schema = schema_of(returns)
    fields = {name: hint for name, hint in columns_of(returns).items() if name in schema.kinds}
    taken = columns_of(takes)
    given: dict[str, Any] = {name: taken[name] for name in key if name in taken}
    if windows:
        given |= dict.fromkeys(WINDOW_FIELDS, datetime)
    states = {}
    for name, aggregate in columns.items():
        _check_name(name, aggregate, returns, given, fields)
        try:
            states[name], result = _types(aggregate, takes, taken)
        except Unreadable as problem:
            raise FlowError(f"the aggregate {name} {problem}") from None
        given[name] = fields[name] if result is NOTHING else result
    if not columns:
        raise FlowError("aggregate has no aggregates", way_out="give one for a field, such as orders=agg.count()")
    for name, hint in fields.items():
        if name not in given:
            raise FlowError(_unfilled(returns, name, key, windows))
        if not fills(hint, given[name]):
            raise FlowError(f"{returns.__qualname__}.{name} is {said(hint)}, but what fills it is {said(given[name])}")
    return Aggregation(returns, columns, states, key)


def _check_name(
    name: str, aggregate: object, returns: type, given: Mapping[str, Any], fields: Mapping[str, Any]
) -> None:
    if not isinstance(aggregate, Aggregate):
        raise FlowError(f"{name}= is {aggregate!r}, expected an aggregate such as agg.count()")
    if name in given:
        what = "the window" if name in WINDOW_FIELDS else "the key"
        raise FlowError(f"{name} is already filled by {what}", way_out="give the aggregate another name")
    if name not in fields:
        raise FlowError(f"{returns.__qualname__} has no field {name!r}; it has {', '.join(fields)}")


def _unfilled(returns: type, name: str, key: Sequence[str], windows: bool) -> str:
    if name in WINDOW_FIELDS and not windows:
        return f"nothing fills {returns.__qualname__}.{name}, as there are no windows; write .window(...) before it"
    moments = f", {', '.join(WINDOW_FIELDS)}" if windows else ""
    filled = f"columns of the key ({', '.join(key)}){moments} and aggregates, such as {name}=agg.count()"
    return f"nothing fills {returns.__qualname__}.{name}; the fields must be {filled}"


def _types(aggregate: Aggregate, takes: type, taken: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the types of an aggregate's state and result, `NOTHING` if it does not say; raises Unreadable."""
    if aggregate.column is not None and aggregate.column not in taken:
        raise Unreadable(f"takes column {aggregate.column!r}, but {said(takes)} has {', '.join(taken)}")
    value = takes if aggregate.column is None else taken[aggregate.column]
    return _own_types(aggregate, value) if aggregate.types is None else aggregate.types(value)


def _own_types(aggregate: Aggregate, value: Any) -> tuple[Any, Any]:
    """Return the types of a user's aggregate, from the annotations of its functions."""
    add = _signature("add", aggregate.add, "state", "value")
    hints = (add.returns, add.takes[0])
    state = next((hint for hint in hints if not says_nothing(hint)), type(aggregate.initial))
    if not accepts(add.takes[0], state):
        raise Unreadable(f"adds to {said(add.takes[0])}, but add= returns {said(state)}")
    if not accepts(add.takes[1], value):
        raise Unreadable(f"adds {said(add.takes[1])}, but {said(value)} arrives")
    if aggregate.merge is not None:
        _signature("merge", aggregate.merge, "state", "other")
    try:
        encode_strictly(kind_of(state, "its state"), [aggregate.initial], "")
    except SchemaRefused as refused:
        raise Unreadable(f"has no state that can be saved: {refused.what}; annotate add= with its type") from None
    except Mismatch as mismatch:
        found = f"initial{mismatch.path} is {mismatch.value!r}, expected {mismatch.expected}"
        raise Unreadable(f"keeps {said(state)}, but {found}") from None
    if aggregate.is_state:
        return state, state
    finish = _signature("finish", aggregate.finish, "state")
    if not accepts(finish.takes[0], state):
        raise Unreadable(f"finishes {said(finish.takes[0])}, but its state is {said(state)}")
    return state, NOTHING if says_nothing(finish.returns) else finish.returns


def _signature(which: str, function: Any, *arguments: str) -> Any:
    try:
        return signature_of(function, *arguments)
    except Unreadable as problem:
        raise Unreadable(f"has a function {which}= that {problem}") from None
