"""Parameters: what a start gives its flow, by name, as `[job.parameters]` of the conf says.

A flow asks for them where it is written down, and its plan keeps the values: all workers have the same.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import TypeVar

from lowtide.errors import FlowError
from lowtide.flow.site import user_site
from lowtide.process.role import is_worker

Value = str | int | float | bool
P = TypeVar("P", str, int, float, bool)

VALUE_LIMIT_BYTES = 16 << 10
"""As JSON, of one parameter: it stands in logs and plans, and a larger one is a file's business."""

ROOM_BYTES = 256 << 10
"""As JSON, of all parameters of a flow: they stand beside the types of its records in one node of ZooKeeper."""

_given: dict[str, Value] = {}
_for_this_start: set[str] = set()
"""The names that were given for this start alone; the others stand in the conf file, which other flows share."""

_refused: ContextVar[list[FlowError] | None] = ContextVar("refused", default=None)
"""Parameters refused to functions during their calls; None outside one."""

_SWITCH = {"true": True, "false": False}


def give(values: Mapping[str, Value], for_this_start: Iterable[str] = ()) -> None:
    """Say what the flows that this process loads from now on are given.

    Args:
        values: The values by name.
        for_this_start: The names that do not come from a conf file, which other flows share.
    """
    _given.clear()
    _given.update(values)
    _for_this_start.clear()
    _for_this_start.update(for_this_start)


def given() -> dict[str, Value]:
    """Return what flows are given, for a process that loads one for this one."""
    return dict(_given)


def value_of(name: object, default: P) -> P:
    """Return a parameter's value, of the type of its default; raises FlowError for what no flow can mean."""
    where = str(user_site())
    refused = _refused.get()
    if is_worker() or refused is not None:
        way_out = "ask for it where the flow is written down, and use its value in the function"
        what = "a function asks for a parameter, which workers are not given"
        error = FlowError(what, where=where, way_out=way_out)
        if refused is not None:
            refused.append(error)
        raise error
    if not isinstance(name, str) or not name.isidentifier():
        way_out = 'write flow.parameter("limit", 100)'
        raise FlowError(f"a parameter's name is an identifier, found {name!r}", where=where, way_out=way_out)
    if type(default) not in (str, int, float, bool):
        way_out = "give a str, int, float or bool, whose type the parameter has"
        raise FlowError(f"the default of parameter {name} is {default!r}", where=where, way_out=way_out)
    try:
        _read(default, type(default))
    except ValueError:
        way_out = f"give one that is finite, and has at most {VALUE_LIMIT_BYTES} bytes as JSON"
        raise FlowError(f"the default of parameter {name} is {_shown(default)}", where=where, way_out=way_out) from None
    if name not in _given:
        return default
    try:
        return _read(_given[name], type(default))
    except ValueError:
        kind = type(default).__name__
        what = f"parameter {name} is {_shown(_given[name])}, which is not of type {kind}"
        if _is_too_large(_given[name]):
            what = f"parameter {name} has more than {VALUE_LIMIT_BYTES} bytes as JSON"
        raise FlowError(what, where=where, way_out=f"correct [job.parameters] {name}, or --set") from None


def check_room(values: Mapping[str, Value]) -> None:
    """Refuse more parameters than a node of ZooKeeper takes beside the types of the records (errors: FlowError)."""
    if len(json.dumps(dict(values))) > ROOM_BYTES:
        what = f"the {len(values)} parameters of the flow have more than {ROOM_BYTES} bytes as JSON"
        raise FlowError(what, where=str(user_site()), way_out="put what is large into a file that the flow reads")


@contextmanager
def calling() -> Iterator[None]:
    """Refuse what functions called meanwhile ask for; raises that FlowError even if a function caught it."""
    refused: list[FlowError] = []
    token = _refused.set(refused)
    try:
        yield
    finally:
        _refused.reset(token)
        if refused:
            raise refused[0] from None


def unasked(asked: Collection[str]) -> list[str]:
    """Return a note for each name that the conf file gives and the flow does not ask for: another one may."""
    return [
        f"[job.parameters] has {name}, for which the flow does not ask{_guess(name, asked)}"
        for name in _given
        if name not in asked and name not in _for_this_start
    ]


def refuse_unasked(flow: str, asked: Collection[str]) -> None:
    """Refuse a name that is given for this start and that the flow never asks for: misspelt (errors: FlowError)."""
    for name in _given:
        if name not in asked and name in _for_this_start:
            way_out = f"it asks for: {', '.join(asked) or 'none'}{_guess(name, asked)}"
            raise FlowError(f'flow "{flow}" has no parameter {name}', where=f"job.parameters.{name}", way_out=way_out)


def _guess(name: str, asked: Iterable[str]) -> str:
    near = get_close_matches(name, asked, n=1)
    return f"; did you mean {near[0]}?" if near else ""


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
        try:
            value = float(value)
        except OverflowError:
            raise ValueError from None
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)) or _is_too_large(value):
        raise ValueError
    return value


def _is_too_large(value: Value) -> bool:
    try:
        return len(json.dumps(value)) > VALUE_LIMIT_BYTES
    except ValueError:  # An int of more digits than Python writes.
        return True


def _shown(value: Value) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:
        return "a number of thousands of digits"
