"""The types of joins, and checks that keys can match and functions take what comes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

from lowtide.flow.schema.schema import schema_of
from lowtide.flow.site import Function
from lowtide.flow.steps.signature import Unreadable, accepts, said, says_nothing, signature_of
from lowtide.flow.steps.steps import Join
from lowtide.flow.types.window_types import moment_fault

Keyed = tuple[Any, tuple[str, ...]]
"""The type of a stream's records, None if a fault hides it, and the columns that they are keyed by."""


def typed_pairing(function: Function, returns: type | None, takes: Sequence[Any]) -> Any:
    """Return the type of what a join's function gives.

    Args:
        function: The user's.
        returns: The user's `returns=`.
        takes: The types of its two arguments, None if a fault hides one.

    Raises:
        Unreadable: what does not fit, to follow the function's name.
        SchemaRefused: no column can hold the results.
    """
    signature = signature_of(function, "the record", "the other")
    for hint, arrives in zip(signature.takes, takes, strict=True):
        if arrives is not None and not accepts(hint, arrives):
            raise Unreadable(f"takes {said(hint)}, but {said(arrives)} arrives")
    if says_nothing(signature.returns):
        if returns is None:
            raise Unreadable("does not say what it returns: annotate it, or add returns=Type")
        return schema_of(returns).record
    if returns not in (None, signature.returns):
        raise Unreadable(f"returns {said(signature.returns)}, but returns= says {said(returns)}")
    return schema_of(signature.returns).record


def key_fault(sides: Sequence[Keyed]) -> str | None:
    """Return why the keys of streams would never match; None if they can."""
    kinds = [_kinds(side) for side in sides]
    for (one, one_kinds), (other, other_kinds) in pairwise(zip(sides, kinds, strict=True)):
        columns, other_columns = ", ".join(one[1]), ", ".join(other[1])
        if len(one[1]) != len(other[1]):
            return f"the streams are keyed by {columns} and by {other_columns}; key both by the same number of columns"
        if one_kinds is None or other_kinds is None:
            continue
        if one_kinds != other_kinds:
            return (
                f"keys by {columns} are {', '.join(one_kinds)}, and keys by {other_columns} are "
                f"{', '.join(other_kinds)}: they would never match; map one before key_by"
            )
    return None


def connect_faults(sides: Sequence[Keyed]) -> Iterator[str]:
    """Yield the reasons why streams cannot be connected."""
    keyed: dict[Any, tuple[str, ...]] = {}
    for record, columns in sides:
        if record is None:
            continue
        if keyed.setdefault(record, columns) != columns:
            yield (
                f"two streams of {said(record)} are keyed by {', '.join(keyed[record])} and by {', '.join(columns)}, "
                "so the function could not tell their records apart; map one of them to a type of its own"
            )
    fault = key_fault(sides)
    if fault is not None:
        yield fault


def deleted_fault(deleted: str | None, takes: Any) -> str | None:
    """Return the fault of a table's deleted= column; None if it has none."""
    if deleted is None or takes is None:
        return None
    kinds = schema_of(takes).kinds
    if deleted not in kinds:
        return f"{said(takes)} has no column {deleted!r}; it has {', '.join(kinds)}"
    if kinds[deleted].name != "bool":
        return f"deleted={deleted!r} is {kinds[deleted].name}, but must be bool; map it to a bool first"
    return None


def join_faults(step: Join, sides: Sequence[Keyed], lates: Collection[int]) -> Iterator[str]:
    """Yield the faults of a join, except those of its function.

    Args:
        step: The join.
        sides: The two streams it takes.
        lates: The ports whose late records are taken.
    """
    fault = key_fault(sides)
    if fault is not None:
        yield fault
    if step.time is None:
        if not step.before and not step.after:
            yield "it has no bound, so it could never forget a record; give it before= or after=, or use join_table"
        if lates:
            yield "it uses log time, for which nothing is late; leave out .late and .late_other"
        return
    for column, (record, _) in zip(step.time, sides, strict=True):
        fault = moment_fault(column, record)
        if fault is not None:
            yield fault
    if step.late is None and len(lates) < len(sides):
        lacking = " and ".join(word for port, word in enumerate((".late", ".late_other")) if port not in lates)
        yield f'nothing takes its late records; use {lacking}, or give its event time late="drop"'
    elif step.late is not None and lates:
        yield 'late="drop" drops the records that .late and .late_other take; leave out one of the two'


def _kinds(side: Keyed) -> list[str] | None:
    """Return the kinds of a key's columns, without `| None`; None if a fault hides them."""
    record, columns = side
    known = {} if record is None else schema_of(record).kinds
    if any(column not in known for column in columns):
        return None
    return [known[column].name.removesuffix(" | None") for column in columns]
