"""The ends of substreams: `when_done`, the labels that have ended, and the steps that may not be in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args

from lowtide.errors import FlowError
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.site import check_text, user_site
from lowtide.flow.steps.calls import Call
from lowtide.flow.steps.steps import Applied, Ended, WhenDone
from lowtide.flow.steps.window_by import Order
from lowtide.flow.steps.windows import Tumbling, Window
from lowtide.flow.time.durations import duration_of
from lowtide.flow.time.moments import ZERO

ORDERS = get_args(Order)
ENDED = "ended"
"""The suffix for the step that keeps ended labels, after the name of its `when_done`."""
_LABEL = "name the columns that say which document, session or request a record opens"


@dataclass(frozen=True)
class Ends:
    """The state of a label: the number of times it has ended; the tick of the last is kept beside it, for its ttl."""

    times: int = 0


def when_done_of(
    name: str, label: str | Sequence[str] | None, keep: timedelta, order: Order, *, through: bool
) -> WhenDone:
    """Make the step of `when_done(...)`; its windows are a tick long, which only the compiler knows."""
    check_text("when_done", name)
    duration_of("when_done", "keep", keep)
    if order not in ORDERS:
        raise FlowError(
            f"when_done takes order={' or '.join(map(repr, ORDERS))}, found {order!r}",
            where=str(user_site()),
            way_out="write one of them, or leave it out for the first",
        )
    if through != (order == "before_next"):
        raise FlowError(
            "when_done takes through= or order='stream', and one of the two",
            where=str(user_site()),
            way_out="name the stream that it waits for; or give order='stream' to wait for none",
        )
    return _made(_columns("when_done", label), keep, order)


def begun_of(label: str | Sequence[str], keep: timedelta) -> WhenDone:
    """Make the step of `when_begun(...)` that tells subscribers: the end of the one record that opens a substream."""
    columns = _columns("when_begun", label)
    if not columns:
        raise FlowError("when_begun takes label=, found None", where=str(user_site()), way_out=_LABEL)
    duration_of("when_begun", "keep", keep)
    return _made(columns, keep, "stream")


def _made(label: tuple[str, ...], keep: timedelta, order: Order) -> WhenDone:
    return WhenDone(
        Tumbling(timedelta(milliseconds=1)), None, result=Applied(_again), label=label, keep=keep, order=order
    )


def _columns(word: str, label: object) -> tuple[str, ...]:
    """Return the columns of a label, as a user gave them."""
    given = (label,) if isinstance(label, str) else () if label is None else label
    columns = tuple(given) if isinstance(given, Sequence) else ()
    sound = columns and all(isinstance(each, str) for each in columns) and len(set(columns)) == len(columns)
    if label is not None and not sound:
        raise FlowError(
            f"{word} takes label=, the name of a column or of several different ones, found {label!r}",
            where=str(user_site()),
            way_out=_LABEL,
        )
    return columns


def typed_done(step: WhenDone, takes: type | None, slack_ms: int) -> WhenDone:
    """Return the step as a plan has it."""
    size = timedelta(milliseconds=slack_ms)
    return WhenDone(
        Tumbling(size), None, ZERO, ZERO, None, "close", Applied(_again, takes), step.label, step.keep, step.order
    )  # fmt: skip


def ended_of(step: WhenDone, takes: type) -> Ended:
    """Make the step that keeps the labels that have ended."""
    return Ended(_count, Ends(), Ends, takes, step.keep)


def done_fault(
    calls: Sequence[Call], index: int, step: WhenDone, names: Sequence[str], takes: type | None
) -> str | None:
    """Return the fault of a `when_done` whose streams are sound; None if it has none."""
    fault = None if takes is None else _label_fault(step.label, takes)
    if fault is not None or step.order == "stream":
        return fault
    stream, through = calls[index].parents
    between = _between(calls, stream, through)
    if between is None:
        return (
            f"{names[through]!r} has no records that come from {names[stream]!r} or its sources; "
            "give through= a stream that is made from these records, or from those that they are made from"
        )
    late = [each for each in sorted(between) if calls[each].step.later]
    if late:
        word = calls[late[0]].step.word
        return (
            f"{word} {names[late[0]]!r} is between {names[stream]!r} and {names[through]!r}: its output for a "
            "record has another tick, so it is unknown when all of it is through; give through= a stream before it, "
            "or take the records from after it"
        )
    return None


def _label_fault(label: Sequence[str], takes: type) -> str | None:
    """Return the fault of a label's columns; None if they have none."""
    kinds = schema_of(takes).kinds
    for column in label:
        kind = kinds.get(column)
        if kind is None:
            return f"{takes.__qualname__} has no column {column!r}; it has {', '.join(kinds)}"
        if not kind.can_be_key:
            return f"label={column!r} is {kind.name}, which cannot be a label; use str, int, UUID or another key"
    return None


def _between(calls: Sequence[Call], stream: int, through: int) -> set[int] | None:
    """Return the steps on the ways from a stream to another; None if there is no way.

    If the other one is not made from the stream, the ways begin where both come from.
    """

    def parents(each: int) -> Iterable[int]:
        return calls[each].parents

    takers: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        for parent in call.parents:
            takers.setdefault(parent, []).append(index)
    above = _closed([through], parents)
    own = _closed([stream], parents)
    begins = {stream} if stream in above else own & above
    if not begins:
        return None
    return (_closed(begins, lambda each: takers.get(each, ())) & above) - own


def _closed(start: Iterable[int], ahead: Callable[[int], Iterable[int]]) -> set[int]:
    seen = set(start)
    left = list(seen)
    while left:
        for each in ahead(left.pop()):
            if each not in seen:
                seen.add(each)
                left.append(each)
    return seen


def _again(_window: Window, records: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return all records of a tick, in order."""
    return records


def _count(ends: Ends, _record: Any) -> tuple[Ends, list[Any]]:
    """Count an end of a label."""
    return Ends(ends.times + 1), []
