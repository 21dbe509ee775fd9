"""Frozen dataclasses out of JSON values, with every field and type held against what the class says."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Misfit(ValueError):
    """A value is not of the type that it should have; says which field."""


def instance(kind: type[T], values: Any) -> T:
    """A dataclass made of a JSON object.

    Args:
        kind: the class; its fields are int, str, bool, `| None` of these, dataclasses, and tuples of all these.
        values: an object with exactly the fields of the class; a value that is of its class already stays.

    Raises:
        Misfit: a field is missing, unknown, or of another type.
    """
    hashable: Any = kind
    hints = _hints(hashable)
    if not isinstance(values, dict) or set(values) != set(hints):
        named = sorted(set(values) ^ set(hints)) if isinstance(values, dict) else "all"
        raise Misfit(f"{kind.__name__}: missing or unknown fields: {named}")
    return kind(**{name: _value(hint, values[name], f"{kind.__name__}.{name}") for name, hint in hints.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _value(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) is tuple:
        return _tuple(get_args(hint), value, where)
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return value if isinstance(value, hint) else instance(hint, value)
    # bool is an int to Python, not to JSON.
    kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    if type(value) not in [NoneType if kind is None else kind for kind in kinds]:
        raise Misfit(f"{where} is {value!r}")
    return value


def _tuple(hints: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Misfit(f"{where} is {value!r}, which is not a list")
    if hints[-1] is Ellipsis:
        return tuple(_value(hints[0], item, where) for item in value)
    if len(value) != len(hints):
        raise Misfit(f"{where} is {value!r}")
    return tuple(_value(hint, item, where) for hint, item in zip(hints, value, strict=True))
