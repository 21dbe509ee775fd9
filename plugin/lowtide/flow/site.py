"""Places in a user's code, and what a step is given there: functions, names, numbers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from lowtide.errors import FlowError

__all__ = ["Function", "Site", "check_text", "count_of", "function_of", "name_of", "user_site", "written"]

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
    """The innermost frame outside of this package: the user's line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def function_of(function: F) -> F:
    """The function, refused if it is none."""
    if not callable(function):
        raise FlowError(f"a function is expected, found {function!r}", where=str(user_site()))
    return function


def count_of(step: str, what: str, count: int) -> int:
    """The count, refused if it is not a whole number from 1 on."""
    if type(count) is not int or count < 1:
        raise FlowError(f"{step} takes {what}, a whole number from 1 on, found {count!r}", where=str(user_site()))
    return count


def check_text(step: str, name: object) -> None:
    """Refuse what is no text where a step has to be given a name."""
    if not isinstance(name, str):
        way_out = "state is found again by it after the flow was edited"
        raise FlowError(f"{step} takes a name first, found {name!r}", where=str(user_site()), way_out=way_out)


def name_of(function: Function, name: str | None) -> str | None:
    """The given name, else the function's own; None for a lambda, a partial or an object."""
    if name is not None:
        return name
    own = getattr(function, "__name__", None)
    return own if isinstance(own, str) and own.isidentifier() else None


def written(example: str) -> Callable[[F], F]:
    """Refuse a call whose arguments do not fit as a flow's error, which shows how the call is written."""

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
