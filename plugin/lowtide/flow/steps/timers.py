"""Timers of `flat_scan`: the step, and the check that its functions' annotations fit the state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, get_args, get_origin

from lowtide.errors import FlowError
from lowtide.flow.site import Function, function_of, user_site
from lowtide.flow.steps import steps
from lowtide.flow.steps.signature import NOTHING, Unreadable, accepts, element_of, said, says_nothing, signature_of


def flat_scan_of(
    function: Callable[..., Any],
    initial: Any,
    returns: type | None,
    ttl: timedelta | None,
    timer: Callable[..., Any] | None,
    on_timer: Callable[..., Any] | None,
    on_forgotten: Callable[..., Any] | None = None,
) -> steps.FlatScan:
    """Make the step of `flat_scan(...)`; raises FlowError for half a timer, and for a key that is never forgotten."""
    if on_forgotten is not None:
        if ttl is None or timer is not None or on_timer is not None:
            raise FlowError(
                f"flat_scan has on_forgotten= {'without ttl=' if ttl is None else 'beside a timer'}",
                where=str(user_site()),
                way_out="give it with ttl=, after which a key is forgotten, and without timer= and on_timer=",
            )
        return steps.TimedScan(
            function_of(function), initial, returns=returns, ttl=ttl, on_forgotten=function_of(on_forgotten)
        )
    if timer is None and on_timer is None:
        return steps.FlatScan(function_of(function), initial, returns=returns, ttl=ttl)
    if timer is None or on_timer is None:
        raise FlowError(
            f"flat_scan has {'on_timer=' if timer is None else 'timer='} without "
            f"{'timer=' if timer is None else 'on_timer='}",
            where=str(user_site()),
            way_out="give both or neither: timer= says when to call a key, on_timer= what to do then",
        )
    return steps.TimedScan(
        function_of(function),
        initial,
        returns=returns,
        ttl=ttl,
        timer=function_of(timer),
        on_timer=function_of(on_timer),
    )


def timer_fault(step: steps.TimedScan) -> str | None:
    """Return what does not fit in a timer's functions, given the types of state and outputs; None if all fits."""
    checks = ("timer", _timer_fault), ("on_timer", _call_fault), ("on_forgotten", _forgotten_fault)
    for argument, check in checks:
        function = getattr(step, argument)
        if function is None:
            continue
        try:
            fault = check(step, function)
        except Unreadable as problem:
            fault = str(problem)
        if fault is not None:
            return f"{argument}= {getattr(function, '__name__', None) or repr(function)} {fault}"
    return None


def _timer_fault(step: steps.TimedScan, function: Function) -> str | None:
    signature = signature_of(function, "state")
    if not accepts(signature.takes[0], step.state):
        return f"takes {said(signature.takes[0])}, but the state is {said(step.state)}"
    if not (says_nothing(signature.returns) or accepts(datetime | None, signature.returns)):
        return f"must return datetime | None, its annotation says {said(signature.returns)}"
    return None


def _forgotten_fault(step: steps.TimedScan, function: Function) -> str | None:
    signature = signature_of(function, "state")
    if not accepts(signature.takes[0], step.state):
        return f"takes {said(signature.takes[0])}, but the state is {said(step.state)}"
    output = NOTHING if says_nothing(signature.returns) else element_of(signature.returns)
    if not says_nothing(output) and output != step.returns:
        return f"gives {said(output)}, but the step's function gives {said(step.returns)}"
    return None


def _call_fault(step: steps.TimedScan, function: Function) -> str | None:
    signature = signature_of(function, "state", "moment")
    for hint, arrives in zip(signature.takes, (step.state, datetime), strict=True):
        if not accepts(hint, arrives):
            return f"takes {said(hint)}, but {said(arrives)} arrives"
    if says_nothing(signature.returns):
        return None
    arguments = get_args(signature.returns)
    if get_origin(signature.returns) is not tuple or len(arguments) != 2 or arguments[1] is Ellipsis:
        return f"must return tuple[State, list[Output]], its annotation says {said(signature.returns)}"
    state, outputs = arguments
    output = NOTHING if says_nothing(outputs) else element_of(outputs)
    if not says_nothing(state) and not accepts(step.state, state):
        return f"returns the state {said(state)}, but the step keeps {said(step.state)}"
    if not says_nothing(output) and output != step.returns:
        return f"gives {said(output)}, but the step's function gives {said(step.returns)}"
    return None
