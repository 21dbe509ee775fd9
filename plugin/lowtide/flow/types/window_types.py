"""The types of windows, and checks of their event time and functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from lowtide.errors import FlowError
from lowtide.flow.schema.kinds import Mismatch, Scalar, encode_strictly
from lowtide.flow.schema.schema import kind_of, schema_of
from lowtide.flow.steps.aggregation import aggregation_of
from lowtide.flow.steps.signature import NOTHING, Unreadable, accepts, element_of, said, says_nothing, signature_of
from lowtide.flow.steps.steps import Applied, Combined, Folded, Reduced, WindowBy
from lowtide.flow.steps.windows import Session, Window


def time_fault(step: WindowBy, takes: type | None) -> str | None:
    """Return the fault of a window's event time; None if it has none."""
    return moment_fault(step.time, takes)


def moment_fault(column: str | None, takes: type | None) -> str | None:
    """Return the fault of a column as event time; None if it has none."""
    if column is None or takes is None:
        return None
    kinds = schema_of(takes).kinds
    if column not in kinds:
        return f"{said(takes)} has no column {column!r}; it has {', '.join(kinds)}"
    kind = kinds[column]
    if isinstance(kind, Scalar) and kind.python is datetime:
        return None
    way_out = "replace None in a map first" if kind.name.endswith("| None") else "map it to one first"
    return f"event time {column!r} is {kind.name}, but must be a datetime that is never None; {way_out}"


def typed_window(step: WindowBy, takes: type | None, key: Sequence[str]) -> tuple[WindowBy, Any]:
    """Return the step with the type of its state, and the type of its results, None if a fault hides it.

    Args:
        step: The step as the user wrote it.
        takes: The type of the records that arrive, None if a fault hides it.
        key: The columns that they are keyed by.

    Raises:
        Unreadable: what does not fit, to follow the function's name.
        FlowError: an aggregate does not fit, or no column can hold the state or the results.
    """
    result = step.result
    assert result is not None, "a window without a result is refused before"
    if isinstance(result, Combined):
        if takes is None:
            return step, None
        made = aggregation_of(result.returns, dict(result.columns), takes=takes, key=key, windows=True)
        if isinstance(step.windows, Session) and not made.merges:
            lacking = [name for name, each in result.columns if each.merge is None]
            raise FlowError(f"sessions can merge: give the aggregate {', '.join(lacking)} a merge=")
        return replace(step, result=replace(result, made=made)), schema_of(made.returns).record
    if isinstance(result, Reduced):
        _check_reduced(result, takes)
        return step, takes
    if isinstance(result, Applied):
        return step, _applied(result, takes)
    if isinstance(step.windows, Session) and result.merge is None:
        raise Unreadable("folds sessions, which can merge: give fold a merge= that combines two states")
    typed = _typed_fold(result, takes)
    return replace(step, result=typed), typed.returns


def _check_reduced(result: Reduced, takes: type | None) -> None:
    signature = signature_of(result.function, "the result so far", "the record")
    for taken in (*signature.takes, signature.returns):
        if takes is not None and not accepts(taken, takes):
            raise Unreadable(f"must take two {said(takes)} and return one, its annotations say {said(taken)}")


def _applied(result: Applied, takes: type | None) -> Any:
    signature = signature_of(result.function, "the window", "its records")
    _check_window(signature.takes[0])
    if takes is not None and not accepts(signature.takes[1], tuple[takes, ...]):  # type: ignore[valid-type]
        raise Unreadable(f"takes {said(signature.takes[1])}, but tuple[{said(takes)}, ...] arrives")
    returns = NOTHING if says_nothing(signature.returns) else element_of(signature.returns)
    return schema_of(_said_once(returns, result.returns)).record


def _typed_fold(result: Folded, takes: type | None) -> Folded:
    adds, ends = (
        signature_of(result.function, "state", "record"),
        signature_of(result.finish, "the window", "its state"),
    )
    hints = (adds.returns, adds.takes[0], ends.takes[1])
    state = next((hint for hint in hints if not says_nothing(hint)), type(result.initial))
    if not accepts(adds.takes[0], state):
        raise Unreadable(f"takes {said(adds.takes[0])} as its state, but returns {said(state)}")
    if takes is not None and not accepts(adds.takes[1], takes):
        raise Unreadable(f"takes {said(adds.takes[1])}, but {said(takes)} arrives")
    _check_window(ends.takes[0])
    if not accepts(ends.takes[1], state):
        raise Unreadable(f"keeps {said(state)}, but finish= takes {said(ends.takes[1])}")
    if result.merge is not None:
        merges = signature_of(result.merge, "one state", "the other")
        wrong = [each for each in (*merges.takes, merges.returns) if not accepts(each, state)]
        if wrong:
            raise Unreadable(f"keeps {said(state)}, but merge= takes or returns {said(wrong[0])}")
    kind = kind_of(state, "its state")
    try:
        (initial,) = kind.decode(encode_strictly(kind, [result.initial], ""))
    except Mismatch as mismatch:
        place = f"initial{mismatch.path}"
        raise Unreadable(
            f"keeps {said(state)}, but {place} is {mismatch.value!r}, expected {mismatch.expected}"
        ) from None
    returns = schema_of(_said_once(ends.returns, result.returns)).record
    return replace(result, initial=initial, state=state, returns=returns)


def _check_window(hint: Any) -> None:
    if not accepts(hint, Window):
        raise Unreadable(f"takes {said(hint)}, but a lowtide.Window arrives first")


def _said_once(annotated: Any, named: type | None) -> Any:
    """Return the type of the results, given by an annotation or by returns=."""
    if says_nothing(annotated):
        if named is None:
            raise Unreadable("does not say what its windows give: annotate the result, or add returns=Type")
        return named
    if named not in (None, annotated):
        raise Unreadable(f"gives {said(annotated)}, but returns= says {said(named)}")
    return annotated
