"""The types of steps that keep state: from their functions' annotations, checked against their initial state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, get_args, get_origin

from lowtide.flow.schema.kinds import Mismatch, encode_strictly
from lowtide.flow.schema.schema import kind_of, schema_of
from lowtide.flow.steps.aggregation import aggregation_of
from lowtide.flow.steps.running import Aggregating, Reducing
from lowtide.flow.steps.signature import (
    NOTHING,
    Signature,
    Unreadable,
    accepts,
    element_of,
    said,
    says_nothing,
    signature_of,
)
from lowtide.flow.steps.steps import Aggregated, Broadcast, Reduce, Running, Scan

S = TypeVar("S", bound=Scan)


def typed_scan(step: S, takes: type | None, beside: Broadcast | None) -> S:
    """Return the step with the types of its state and its outputs.

    Args:
        step: The step as the user wrote it.
        takes: The type of the records that arrive, None if a fault hides it.
        beside: The broadcast it looks at, with the type of its state.

    Raises:
        Unreadable: what does not fit, to follow the function's name.
        SchemaRefused: no column can hold the state or the outputs.
    """
    arguments = ("state", "record") if beside is None else ("state", "record", "beside")
    signature = signature_of(step.function, *arguments)
    state, output = _both(signature.returns)
    if step.appends and not says_nothing(output):
        output = element_of(output)
    if says_nothing(output):
        if step.returns is None:
            pair = f"tuple[State, {'list[Output]' if step.appends else 'Output'}]"
            raise Unreadable(f"does not say what it returns: annotate it -> {pair}, or add returns=Output")
        output = step.returns
    elif step.returns not in (None, output):
        raise Unreadable(f"returns outputs of {said(output)}, but returns= says {said(step.returns)}")
    state, initial = _state(signature, state, step.initial)
    _check_record(signature, takes)
    if beside is not None and beside.state is not None and not accepts(signature.takes[2], beside.state):
        raise Unreadable(f"takes {said(signature.takes[2])} as broadcast, but {said(beside.state)} is broadcast")
    return replace(step, initial=initial, state=state, returns=schema_of(output).record)


def typed_reduce(step: Reduce, takes: type) -> Reduce:
    """Return the step as a plan has it, with a state that is a record or None; see `typed_scan`."""
    signature = signature_of(step.function, "result", "record")
    for hint in signature.takes:
        if not accepts(hint, takes):
            raise Unreadable(f"takes {said(hint)}, but {said(takes)} arrives")
    if not says_nothing(signature.returns) and signature.returns != takes:
        raise Unreadable(f"must return {said(takes)}, its annotation says {said(signature.returns)}")
    return replace(step, function=Reducing(step.function), state=takes | None, returns=takes)


def aggregated(step: Running, takes: type, key: Sequence[str]) -> Aggregated:
    """Return the step as a plan has it; raises FlowError for what does not fit."""
    aggregation = aggregation_of(step.returns, step.columns, takes=takes, key=key, windows=False)
    function = Aggregating(aggregation, key)
    return Aggregated(function, aggregation.initial, aggregation.state, aggregation.returns, step.ttl)


def typed_broadcast(step: Broadcast, takes: type | None) -> Broadcast:
    """Return the step with the type of its state; see `typed_scan`."""
    signature = signature_of(step.function, "state", "record")
    state, initial = _state(signature, signature.returns, step.initial)
    _check_record(signature, takes)
    return replace(step, initial=initial, state=state)


def _both(returns: Any) -> tuple[Any, Any]:
    if says_nothing(returns):
        return NOTHING, NOTHING
    arguments = get_args(returns)
    if get_origin(returns) is not tuple or len(arguments) != 2 or arguments[1] is Ellipsis:
        raise Unreadable(f"must return tuple[State, Output], its annotation says {said(returns)}")
    return arguments


def _state(signature: Signature, returned: Any, initial: Any) -> tuple[Any, Any]:
    """Return the state's type, and the initial state as a snapshot would give it back."""
    taken = signature.takes[0]
    state = next((hint for hint in (returned, taken) if not says_nothing(hint)), type(initial))
    if not accepts(taken, state):
        raise Unreadable(f"takes {said(taken)} as its state, but returns {said(state)}")
    kind = kind_of(state, "its state")
    try:
        return state, kind.decode(encode_strictly(kind, [initial], ""))[0]
    except Mismatch as mismatch:
        place = f"initial{mismatch.path}"
        raise Unreadable(
            f"keeps {said(state)}, but {place} is {mismatch.value!r}, expected {mismatch.expected}"
        ) from None


def _check_record(signature: Signature, takes: type | None) -> None:
    if takes is not None and not accepts(signature.takes[1], takes):
        raise Unreadable(f"takes {said(signature.takes[1])}, but {said(takes)} arrives")
