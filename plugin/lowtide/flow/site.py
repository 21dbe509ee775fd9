"""Places in a user's code, and checks of what a step is given there: functions, names, numbers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from lowtide.errors import FlowError

F = TypeVar("F", bound=Callable[..., object])

_PACKAGE = str(Path(__file__).parents[1])

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_site() -> Site:
    """Return the innermost frame outside this package: the user's line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def function_of(function: F) -> F:
    """Return the function; refuse what is not callable."""
    if not callable(function):
        raise FlowError(f"expected a function, found {function!r}", where=str(user_site()))
    return function


def count_of(step: str, what: str, count: int) -> int:
    """Return the count; refuse what is not an integer of at least 1."""
    if type(count) is not int or count < 1:
        raise FlowError(f"{step} takes {what}, an integer of at least 1, found {count!r}", where=str(user_site()))
    return count


def check_text(step: str, name: object) -> None:
    """Refuse a step's name that is not text."""
    if not isinstance(name, str):
        way_out = "give it a name: state is found by that name after the flow is edited"
        raise FlowError(f"{step} takes a name first, found {name!r}", where=str(user_site()), way_out=way_out)


def name_of(function: Function, name: str | None) -> str | None:
    """Return the given name, else the function's own; None for a lambda, a partial or an object."""
    if name is not None:
        return name
    own = getattr(function, "__name__", None)
    return own if isinstance(own, str) and own.isidentifier() else None


def written(example: str) -> Callable[[F], F]:
    """Make a decorator that turns a TypeError for wrong arguments into a FlowError with an example call."""

    def with_example(function: F) -> F:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: Any, **named: Any) -> object:
            try:
                signature.bind(*args, **named)
            except TypeError as error:
                what = f"{function.__name__} {error}"
                raise FlowError(what, where=str(user_site()), way_out=f"write {example}, for example") from None
            return function(*args, **named)

        return cast(F, call)

    return with_example
