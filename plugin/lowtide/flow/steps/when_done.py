"""The ends of substreams: `when_done`, the labels that have ended, and what may be in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, get_args

from lowtide.errors import FlowError
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.site import check_text, user_site
from lowtide.flow.steps.calls import Call
from lowtide.flow.steps.steps import Applied, Ended, Late, Step, WhenDone
from lowtide.flow.steps.window_by import Order
from lowtide.flow.steps.windows import Delay, Tumbling, Until, Window, latest, zones_of
from lowtide.flow.time.durations import duration_of

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


def typed_done(step: WhenDone, takes: type | None, slack_ms: int, delay: Delay | None) -> WhenDone:
    """Return the step as a plan has it.

    Args:
        step: The step, as written.
        takes: The type of its records.
        slack_ms: The length of a tick.
        delay: What comes last of them, in the stream that it waits for.
    """
    slack = timedelta(milliseconds=slack_ms)
    windows = Tumbling(slack) if delay is None else Until(delay, slack)
    return replace(step, windows=windows, result=Applied(_again, takes))


def ended_of(step: WhenDone, takes: type) -> Ended:
    """Make the step that keeps the labels that have ended."""
    return Ended(_count, Ends(), Ends, takes, step.keep)


def delay_of(
    calls: Sequence[Call], steps: Sequence[Step], index: int, names: Sequence[str], takes: type | None
) -> Delay | None:
    """Return what comes last of a `when_done`'s records in the stream that it waits for.

    Args:
        calls: The calls of the flow.
        steps: Their steps; those up to this one with their types.
        index: The call of the `when_done`.
        names: The names of the steps.
        takes: The type of its records; None if a fault hides it.

    Raises:
        FlowError: the label or the stream does not fit, or the flow does not say what comes last.
    """
    step, ways = calls[index].step, _Ways(calls)
    assert isinstance(step, WhenDone), "nothing else is done"
    fault = None if takes is None else _label_fault(step.label, takes)
    if fault is not None:
        raise FlowError(fault)
    if step.order == "stream":
        return None
    stream, through = calls[index].parents
    begins, between = ways.between(stream, through)
    if not begins:
        raise FlowError(
            f"{names[through]!r} has no records that come from {names[stream]!r} or its sources",
            way_out="give through= a stream that is made from these records, or from those that they are made from",
        )
    delays: dict[int, Delay | None] = dict.fromkeys(begins)
    for each in sorted(between):
        known = [(port, delays[parent]) for port, parent in enumerate(ways.made_of(each)) if parent in delays]
        try:
            delays[each] = latest([steps[each].delayed(port, delay) for port, delay in known])
        except LookupError:
            raise FlowError(
                f"{steps[each].word} {names[each]!r} is between {names[stream]!r} and {names[through]!r}: the tick "
                "of its last output for a record hangs on others, so it is unknown when all of it is through",
                way_out="give through= a stream before it, or take the records from after it; windows other than "
                "sessions, and joins within a bound, may be between if they go by log time",
            ) from None
    found = delays[through]
    if len(zones_of(found)) > 1:
        raise FlowError(
            f"days of several time zones are between {names[stream]!r} and {names[through]!r}: "
            f"{' and '.join(zones_of(found))}",
            way_out="use one zone for them, or a when_done for each",
        )
    return found


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


class _Ways:
    """The ways of records through a flow."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._takers: dict[int, list[int]] = {}
        for index in range(len(calls)):
            for parent in self.made_of(index):
                self._takers.setdefault(parent, []).append(index)

    def made_of(self, index: int) -> Sequence[int]:
        """Return the calls whose records those of a call are made of, by port."""
        call = self._calls[index]
        if isinstance(call.step, WhenDone):
            return call.parents[:1]
        if isinstance(call.step, Late):  # It gives what another step was given.
            return self._calls[call.parents[0]].parents[call.step.port :][:1]
        return call.parents

    def between(self, stream: int, through: int) -> tuple[set[int], set[int]]:
        """Return where the ways from a stream to another begin, and the calls on them, without these.

        If the other one is not made from the stream, they begin where both come from.
        """
        above = _closed([through], self.made_of)
        own = _closed([stream], self.made_of)
        begins = {stream} if stream in above else own & above
        return begins, (_closed(begins, lambda each: self._takers.get(each, ())) & above) - own


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
