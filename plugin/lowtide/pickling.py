"""Plans as bytes: how the user's functions and dataclasses reach the workers."""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from lowtide.errors import FlowError
from lowtide.findings import Finding
from lowtide.plan import Plan
from lowtide.steps import Site

PLAN_LIMIT_BYTES = 64 * 1024 * 1024
"""A plan that is larger has most likely caught a table of data; workers get such from files or stores."""

_DEPTH = 5
_MSGSPEC_CACHE = "__msgspec_cache__"
_OURS = ("lowtide", "lowtide_tracker", "lowtide_snapshots", "lowtide_airflow")
_BY_NAME = ("MISSING", "_HAS_DEFAULT_FACTORY", "KW_ONLY")
"""What stands in a dataclass's fields and is compared by identity: a copy of it would be a default to everyone."""


def _named(name: str) -> Callable[[Any], str]:
    return lambda _value: name


for _each in _BY_NAME:
    copyreg.pickle(type(getattr(dataclasses, _each)), _named(_each))


def dump_plan(plan: Plan) -> bytes:
    """Pickle a plan with the code of all modules that lie beside the flow's file.

    Raises:
        FlowError: names the function and what it holds that cannot be pickled, or the limit.
    """
    register_modules(plan)
    try:
        data = cloudpickle.dumps(plan)
    except Exception as error:  # noqa: BLE001 - a user's __reduce__ may raise anything
        findings = unpicklable(plan) or [Finding(None, plan.name, f"cannot be pickled: {error}")]
        raise FlowError(f'flow "{plan.name}" cannot be sent to workers: ' + "; ".join(map(str, findings))) from None
    if len(data) > PLAN_LIMIT_BYTES:
        raise FlowError(
            f'flow "{plan.name}" is {len(data)} bytes large, the limit is {PLAN_LIMIT_BYTES}',
            way_out="functions hold too much data: let them load it from a file on first use",
        )
    return bytes(data)


def load_plan(data: bytes) -> Plan:
    """Make the plan that was pickled; its functions' modules beside the flow's file are not needed."""
    plan = pickle.loads(data)  # noqa: S301 - only the driver makes these bytes, see the worker's handshake
    assert isinstance(plan, Plan)
    return plan


def register_modules(plan: Plan) -> None:
    """Have all loaded modules beside or below the flow's files pickled by value; installed ones go by name.

    A dataclass that JSON was read into carries msgspec's cache, which cannot be pickled and is made again on use: it is
    taken away.
    """
    folders = {Path(vertex.site.file).resolve().parent for vertex in plan.vertices}
    for module in list(sys.modules.values()):
        if _lies_in(module, folders):
            cloudpickle.register_pickle_by_value(module)
    for known in _all_classes():
        if _MSGSPEC_CACHE in vars(known):
            delattr(known, _MSGSPEC_CACHE)


def _all_classes() -> set[type]:
    found: set[type] = set()
    waiting: list[type] = [object]
    while waiting:
        fresh: set[type] = set(type.__subclasses__(waiting.pop())) - found
        found |= fresh
        waiting += fresh
    return found


def unpicklable(plan: Plan) -> list[Finding]:
    """Name every function that cannot be pickled, and what it holds that cannot."""
    register_modules(plan)
    findings = []
    for vertex in plan.vertices:
        function = getattr(vertex.step, "function", None)
        reason = None if function is None else _why(function)
        if reason is not None:
            findings.append(_finding(vertex.site, vertex.name, function, reason))
    return findings


def _finding(site: Site, step: str, function: Any, reason: str) -> Finding:
    trail = " > ".join([_name(function), *(f"{kind} {name!r}" for kind, name in _trail(function, _DEPTH))])
    message = f"cannot be sent to workers: {trail}: {reason}; make it inside the function, on first use"
    return Finding(site, step, message)


def _lies_in(module: ModuleType, folders: set[Path]) -> bool:
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] in _OURS or module.__name__ == "__main__":
        return False
    path = Path(file).resolve()
    if not folders.intersection(path.parents):
        return False
    installed = {"site-packages", "dist-packages"}.intersection(path.parts)
    return not installed and not path.is_relative_to(Path(sys.base_prefix) / "lib")


def _why(value: object) -> str | None:
    """Why something cannot be pickled, None if it can."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - a user's __reduce__ may raise anything
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


def _trail(function: Any, depth: int) -> list[tuple[str, str]]:
    """The way from a function to the innermost thing it holds that cannot be pickled."""
    for kind, name, value in _held(function):
        if depth and _why(value) is not None:
            return [(kind, name), *_trail(value, depth - 1)]
    return []


def _held(value: Any) -> Iterator[tuple[str, str, Any]]:
    """What a function or an object holds: captured variables, globals, defaults, attributes."""
    if isinstance(value, functools.partial):
        yield "the function", _name(value.func), value.func
        yield from (("argument", str(index), argument) for index, argument in enumerate(value.args))
        yield from (("argument", name, argument) for name, argument in value.keywords.items())
    elif inspect.ismethod(value):
        yield "the object", type(value.__self__).__qualname__, value.__self__
    elif inspect.isfunction(value):
        variables = inspect.getclosurevars(value)
        yield from (("captured", name, held) for name, held in variables.nonlocals.items())
        yield from (("global", name, held) for name, held in variables.globals.items())
        yield from (("default", str(index), held) for index, held in enumerate(value.__defaults__ or ()))
    else:
        yield from (("attribute", name, held) for name, held in getattr(value, "__dict__", {}).items())


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
