"""The record of one method call on a flow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lowtide.errors import FlowError
from lowtide.flow.endpoints import Kafka, KafkaSink
from lowtide.flow.start import EARLIEST
from lowtide.flow.steps import Function, Site, Step

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Call:
    """One step as it was written down.

    Attributes:
        step: What it does.
        name: Its name, None if it has none.
        parents: Indices of the calls whose records it takes, by port; none for a source.
        site: Where it was written.
        back: Of a loop's tail, the index of its head; else None.
    """

    step: Step
    name: str | None
    parents: tuple[int, ...]
    site: Site
    back: int | None = None


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


def sink_of(sink: Kafka[T], taker: str) -> KafkaSink:
    """A sink as the plan keeps it."""
    if not isinstance(sink, Kafka):
        raise FlowError(f"{taker} takes kafka(topic, format), found {sink!r}", where=str(user_site()))
    if sink.start != EARLIEST:
        raise FlowError(f"{taker} has no start=, found {sink.start}", where=str(user_site()), way_out="leave it out")
    if sink.stop is not None:
        raise FlowError(f"{taker} has no stop=, found {sink.stop}", where=str(user_site()), way_out="leave it out")
    if sink.preload or sink.compacted:
        word = "preload=" if sink.preload else "compacted="
        raise FlowError(f"{taker} has no {word}, which is for sources", where=str(user_site()), way_out="leave it out")
    return KafkaSink(sink.topic, sink.format, sink.key)
