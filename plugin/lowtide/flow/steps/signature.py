"""Reads the annotations of a user's function: the records that it takes and returns."""

from __future__ import annotations

import inspect
from collections.abc import (
    Collection,
    Generator,
    Iterable,
    Iterator,
    Sequence,
    Set,
)
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from lowtide.flow.site import Function

NOTHING = inspect.Parameter.empty
"""Marks a missing annotation."""

_ORDERED = (list, tuple, Iterable, Iterator, Generator, Sequence, Collection)


_NUMBERS = ("no argument", "one argument", "two arguments", "three arguments")


@dataclass(frozen=True, slots=True)
class Signature:
    """The annotations of a function's arguments and result; `NOTHING` for a missing one."""

    takes: tuple[Any, ...]
    returns: Any


class Unreadable(Exception):
    """The reason why a function cannot be part of a flow."""


def signature_of(function: Function, *arguments: str) -> Signature:
    """Read a function's annotations; raises Unreadable if it does not take exactly these arguments."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise Unreadable("is asynchronous; use a plain function")
    try:
        signature = inspect.signature(function, eval_str=True)
    except ValueError:  # a builtin without one
        return Signature((NOTHING,) * len(arguments), NOTHING)
    except Exception as error:  # noqa: BLE001 - evaluating an annotation may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise Unreadable(f"has annotations that cannot be read ({reason}); define types at a module's top") from None
    try:
        signature.bind(*arguments)
    except TypeError:
        named = " and ".join(filter(None, (", ".join(arguments[:-1]), arguments[-1])))
        raise Unreadable(f"must take {_NUMBERS[len(arguments)]}, {named}; it takes {signature}") from None
    parameters = list(signature.parameters.values())
    last = len(parameters) - 1  # fewer than arguments where it is *args
    takes = tuple(parameters[min(index, last)].annotation for index in range(len(arguments)))
    return Signature(takes, signature.return_annotation)


def element_of(returns: Any) -> Any:
    """Return the element type of an annotated iterable; raises Unreadable if its order is not repeatable."""
    origin, arguments = get_origin(returns), get_args(returns)
    if origin in (set, frozenset, Set):
        raise Unreadable("returns a set, whose order is not repeatable; return a sorted list")
    if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        raise Unreadable(f"must return an iterable of one record type, its annotation says {said(returns)}")
    if origin not in _ORDERED or not arguments:
        raise Unreadable(f"must return an iterable such as list[Record], its annotation says {said(returns)}")
    return arguments[0]


def says_nothing(annotation: Any) -> bool:
    """Return whether any value fits the annotation."""
    return annotation in (NOTHING, Any, object) or isinstance(annotation, TypeVar)


def accepts(annotation: Any, found: Any) -> bool:
    """Return whether the annotation accepts a value of the type `found`; a window is `tuple[Record, ...]`."""
    if says_nothing(annotation) or annotation == found:
        return True
    if get_origin(found) in (Union, UnionType):
        return all(accepts(annotation, argument) for argument in get_args(found))
    if get_origin(annotation) in (Union, UnionType):
        return any(accepts(argument, found) for argument in get_args(annotation))
    if get_origin(found) is Literal and get_origin(annotation) is not Literal:
        found = type(get_args(found)[0])
    outer, inner = get_origin(annotation) or annotation, get_origin(found) or found
    if not isinstance(outer, type) or not isinstance(inner, type):
        return False
    try:
        return issubclass(inner, outer) and _accepts_elements(annotation, found)
    except TypeError:  # a protocol that cannot be asked
        return True


def _accepts_elements(annotation: Any, found: Any) -> bool:
    """Return whether `Sequence[T]` and the like accept `tuple[T, ...]`, `list[T]`, ..."""
    if not get_args(annotation):
        return True
    wanted, given = get_args(annotation), get_args(found)
    if given[1:] == (Ellipsis,) and get_origin(annotation) is not tuple:
        given = given[:1]
    return len(wanted) == len(given) and all(map(accepts, wanted, given))


def said(annotation: Any) -> str:
    """Write an annotation as the user wrote it, or nearly so."""
    if annotation is NOTHING:
        return "nothing"
    if annotation in (None, NoneType, Ellipsis):
        return "..." if annotation is Ellipsis else "None"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " | ".join(map(said, arguments))
    if isinstance(origin, type) and arguments and all(not isinstance(argument, list) for argument in arguments):
        return f"{said(origin)}[{', '.join(map(said, arguments))}]"
    if isinstance(annotation, type) and not arguments:
        return annotation.__qualname__
    return str(annotation).replace("typing.", "").replace("collections.abc.", "")
