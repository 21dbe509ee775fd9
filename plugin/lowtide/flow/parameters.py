"""Parameters: what a start gives its flow, by name, as `[job.parameters]` of the conf says.

A flow asks for them where it is written down, and its plan keeps the values: all workers have the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from lowtide.errors import FlowError
from lowtide.flow.site import user_site
from lowtide.process.role import is_worker

__all__ = ["Value", "give", "given", "refuse_early", "refuse_unasked", "value_of"]

Value = str | int | float | bool
P = TypeVar("P", str, int, float, bool)

_given: dict[str, Value] = {}
_SWITCH = {"true": True, "false": False}


def give(values: Mapping[str, Value]) -> None:
    """Say what the flows that this process loads from now on are given."""
    _given.clear()
    _given.update(values)


def given() -> dict[str, Value]:
    """Return what flows are given, for a process that loads one for this one."""
    return dict(_given)


def value_of(name: object, default: P) -> P:
    """Return a parameter's value, of the type of its default; raises FlowError for what no flow can mean."""
    where = str(user_site())
    if is_worker():
        way_out = "ask for it where the flow is written down, and use its value in the function"
        raise FlowError("a function asks for a parameter, which workers are not given", where=where, way_out=way_out)
    if not isinstance(name, str) or not name.isidentifier():
        way_out = 'write flow.parameter("limit", 100)'
        raise FlowError(f"a parameter's name is an identifier, found {name!r}", where=where, way_out=way_out)
    if type(default) not in (str, int, float, bool):
        way_out = "give a str, int, float or bool, whose type the parameter has"
        raise FlowError(f"the default of parameter {name} is {default!r}", where=where, way_out=way_out)
    if name not in _given:
        return default
    try:
        return _read(_given[name], type(default))
    except ValueError:
        kind = type(default).__name__
        what = f"parameter {name} is {_given[name]!r}, which is not of type {kind}"
        raise FlowError(what, where=where, way_out=f"correct [job.parameters] {name}, or --set") from None


def refuse_unasked(flow: str, asked: Iterable[str]) -> None:
    """Refuse a parameter that is given and that the flow never asks for: it is misspelt (errors: FlowError)."""
    known = list(asked)
    for name in _given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            guess = f"did you mean {near[0]}? " if near else ""
            way_out = f"{guess}It asks for: {', '.join(known) or 'none'}"
            raise FlowError(f'flow "{flow}" has no parameter {name}', where="[job.parameters]", way_out=way_out)


def refuse_early(asked: Mapping[str, Value]) -> None:
    """Refuse what a program's flow has asked for before its conf was read (errors: FlowError)."""
    for name, value in asked.items():
        if name in _given and not _is_read_as(_given[name], value):
            what = f"parameter {name} is {_given[name]!r}, and the flow asked for it before the conf was read"
            way_out = "ask in the file that is run itself, not in a module that it imports; or use `lowtide run FILE`"
            raise FlowError(what, where="[job.parameters]", way_out=way_out)


def _is_read_as(given: Value, value: Value) -> bool:
    try:
        return _read(given, type(value)) == value  # type: ignore[type-var]  # it is of one of the four
    except ValueError:
        return False


def _read(value: Value, kind: type[P]) -> P:
    """Return a value as this type; `--set` gives text. Raises ValueError if it is not of that type."""
    if kind is bool and isinstance(value, str) and value.lower() in _SWITCH:
        return kind(_SWITCH[value.lower()])
    if kind in (int, float) and isinstance(value, str):
        value = kind(value)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError
    return value
