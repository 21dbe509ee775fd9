"""What the annotations of a user's function say about the records it takes and returns."""

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
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from lowtide.steps import Function

NOTHING = inspect.Parameter.empty
"""Stands where an annotation is missing."""

_ORDERED = (list, tuple, Iterable, Iterator, Generator, Sequence, Collection)


@dataclass(frozen=True, slots=True)
class Signature:
    """The annotations of a function of one argument, `NOTHING` where there is none."""

    takes: Any
    returns: Any

    def accepts(self, record: type) -> bool:
        """Whether a record of this type may be passed to the function."""
        return _accepts(self.takes, record)


class Unreadable(Exception):
    """The function cannot take part in a flow, and why."""


def signature_of(function: Function) -> Signature:
    """Read a function's annotations; raises Unreadable if it does not take exactly one argument."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise Unreadable("is asynchronous; a step's function is called and returns")
    try:
        signature = inspect.signature(function, eval_str=True)
    except ValueError:  # a builtin without one
        return Signature(NOTHING, NOTHING)
    except Exception as error:  # noqa: BLE001 - evaluating an annotation may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise Unreadable(f"has annotations that cannot be read ({reason}); define types at a module's top") from None
    try:
        signature.bind(object())
    except TypeError:
        raise Unreadable(f"must take one argument, the record; it takes {signature}") from None
    parameters = list(signature.parameters.values())
    return Signature(parameters[0].annotation, signature.return_annotation)


def element_of(returns: Any) -> Any:
    """The type of the elements of an annotated iterable; raises Unreadable if their order does not repeat."""
    origin, arguments = get_origin(returns), get_args(returns)
    if origin in (set, frozenset, Set):
        raise Unreadable("returns a set, whose order does not repeat; return a sorted list")
    if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        raise Unreadable(f"must return an iterable of one record type, its annotation says {said(returns)}")
    if origin not in _ORDERED or not arguments:
        raise Unreadable(f"must return an iterable such as list[Record], its annotation says {said(returns)}")
    return arguments[0]


def _accepts(annotation: Any, record: type) -> bool:
    if annotation in (NOTHING, Any, object, record) or isinstance(annotation, TypeVar):
        return True
    if get_origin(annotation) in (Union, UnionType):
        return any(_accepts(argument, record) for argument in get_args(annotation))
    if isinstance(annotation, type):
        try:
            return issubclass(record, annotation)
        except TypeError:  # a protocol that cannot be asked
            return True
    return False


def said(annotation: Any) -> str:
    """An annotation as the user wrote it, or nearly so."""
    if annotation is NOTHING:
        return "nothing"
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__qualname__
    return str(annotation).replace("typing.", "").replace("collections.abc.", "")
