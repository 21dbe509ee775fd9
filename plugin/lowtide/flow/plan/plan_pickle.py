"""Plans as bytes: how the user's functions and dataclasses reach the workers."""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NewType, get_type_hints

import cloudpickle

from lowtide.errors import FlowError
from lowtide.flow.plan.plan import Plan
from lowtide.flow.site import Site
from lowtide.flow.types.findings import Finding

PLAN_LIMIT_BYTES = 64 * 1024 * 1024
"""A larger plan has most likely captured a table of data; workers load those from files or stores."""

_DEPTH = 5
_MSGSPEC_CACHE = "__msgspec_cache__"
_OURS = ("lowtide", "lowtide_tracker", "lowtide_snapshots", "lowtide_airflow")
_BY_NAME = ("MISSING", "_HAS_DEFAULT_FACTORY", "KW_ONLY")
"""Marks in a dataclass's fields that are compared by identity: a copy would be taken for a default."""


def _named(name: str) -> Callable[[Any], str]:
    return lambda _value: name


for _each in _BY_NAME:
    copyreg.pickle(type(getattr(dataclasses, _each)), _named(_each))


def _reduce_cached(value: Any) -> str | tuple[Any, ...]:
    return (cached, (value.__wrapped__, value.cache_parameters())) if _goes_by_value(value) else value.__qualname__


def _reduce_new_type(value: Any) -> str | tuple[Any, ...]:
    return (NewType, (value.__name__, value.__supertype__)) if _goes_by_value(value) else value.__qualname__


def _reduce_cached_property(value: Any) -> tuple[Any, ...]:
    return functools.cached_property, (value.func,), {"attrname": value.attrname}


def cached(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """Make a cached function in a worker, whose cache is empty."""
    return functools.lru_cache(**parameters)(function)


def _goes_by_value(value: Any) -> bool:
    return value.__module__ in _by_value() or "<locals>" in value.__qualname__


def _by_value() -> set[str]:
    """Return the names of modules that workers need not have."""
    return {"__main__", *cloudpickle.list_registry_pickle_by_value()}


# Python pickles the first two by name, whatever their module; the third has a lock until Python 3.12.
copyreg.pickle(functools._lru_cache_wrapper, _reduce_cached)
copyreg.pickle(NewType, _reduce_new_type)
copyreg.pickle(functools.cached_property, _reduce_cached_property)


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
        raise _unsendable(plan, findings) from None
    lacking = _lacking(data)
    if lacking is not None:
        raise _unsendable(plan, unpicklable(plan) or [Finding(None, plan.name, lacking)])
    if len(data) > PLAN_LIMIT_BYTES:
        raise FlowError(
            f'flow "{plan.name}" takes {len(data)} bytes, the limit is {PLAN_LIMIT_BYTES}',
            way_out="its functions hold too much data: load it from a file on first use",
        )
    return bytes(data)


def _unsendable(plan: Plan, findings: Iterable[Finding]) -> FlowError:
    return FlowError(f'flow "{plan.name}" cannot be sent to workers: ' + "; ".join(map(str, findings)))


def load_plan(data: bytes) -> Plan:
    """Unpickle a plan; the modules beside the flow's file are not needed."""
    plan = pickle.loads(data)  # noqa: S301 - only the driver makes these bytes, see the worker's handshake
    assert isinstance(plan, Plan)
    return plan


def register_modules(plan: Plan) -> None:
    """Pickle all loaded modules beside or below the flow's files by value; installed ones go by name.

    A dataclass that JSON was read into carries msgspec's cache, which cannot be pickled and is rebuilt on use: it is
    removed. Annotations that are text, as `from __future__ import annotations` makes them, are replaced by the types
    that they name: workers would look for those in a module that they lack.
    """
    folders = {Path(vertex.site.file).resolve().parent for vertex in plan.vertices}
    for module in list(sys.modules.values()):
        if _lies_in(module, folders):
            cloudpickle.register_pickle_by_value(module)
    by_value = _by_value()
    for known in _all_classes():
        if _MSGSPEC_CACHE in vars(known):
            delattr(known, _MSGSPEC_CACHE)
        if known.__module__ in by_value and dataclasses.is_dataclass(known):
            with suppress(Exception):  # Those of the flow's records and states were read before.
                hints = get_type_hints(known, include_extras=True)
                known.__annotations__ = {name: hints[name] for name in inspect.get_annotations(known)}


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
        for function in vertex.step.functions.values():
            reason = _why(function)
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
    """Return why a value cannot be pickled, or not be unpickled without its modules; None if it can."""
    try:
        data = cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - a user's __reduce__ may raise anything
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return _lacking(data)


class _Taking(type):
    """The operations of a pickle on what it makes: it calls it, and sets state, items and entries."""

    def __call__(cls, *_args: Any, **_named: Any) -> Any:
        return cls

    def __setitem__(cls, _key: Any, _value: Any) -> None:
        """Accept an entry."""

    __setstate__ = append = extend = add = __call__


class _Anything(metaclass=_Taking):
    """Stands for everything that a pickle names or makes, so that names are read and nothing is made."""

    def __new__(cls, *_args: Any, **_named: Any) -> Any:
        return cls


class _Names(pickle.Unpickler):
    """Reads which globals a pickle names."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.found: list[tuple[str, str]] = []
        self.load()

    def find_class(self, module: str, name: str) -> Any:
        self.found.append((module, name))
        return _Anything


def _lacking(data: bytes) -> str | None:
    """Return what a pickle would look for in a module that workers lack; None if there is nothing."""
    by_value = _by_value()
    for module, name in _Names(data).found:
        if module in by_value:
            return f"{name} is pickled by its name, but workers have no module {module}"
    return None


def _trail(function: Any, depth: int) -> list[tuple[str, str]]:
    """Return the way from a function to the innermost thing it holds that cannot be pickled."""
    for kind, name, value in _held(function):
        if depth and _why(value) is not None:
            return [(kind, name), *_trail(value, depth - 1)]
    return []


def _held(value: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield what a function or an object holds: captured variables, globals, defaults, attributes."""
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
    elif isinstance(value, dict):
        yield from (("entry", str(name), held) for name, held in value.items())
    else:
        yield from (("attribute", name, held) for name, held in getattr(value, "__dict__", {}).items())


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
