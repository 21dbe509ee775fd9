"""Functions of a flow that hear of commits."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lowtide.errors import FlowError
from lowtide.flow.site import user_site
from lowtide_snapshots.job.news import News

Hook = Callable[[News], object]
OF_THE_FLOW = ""
"""The name of the flow's own hook, beside those of its sinks."""


class Hooks(dict[str, Hook]):
    """By sink the function that is called with each commit; under `OF_THE_FLOW` that of the flow.

    They are called in the driver's process and stay there: where a plan is unpickled it has none, so they may hold what
    cannot be pickled.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return Hooks, ()


def hook_of(function: object, taker: str) -> Hook:
    """Return what is given as `on_commit=` (errors: FlowError, if it cannot be called so)."""
    if not callable(function) or inspect.iscoroutinefunction(function):
        found = "an async function" if callable(function) else repr(function)
        raise FlowError(
            f"on_commit= of {taker} takes a function of one argument, the commit; found {found}",
            where=str(user_site()),
            way_out="write def stored(commit: lt.News) -> None: ...",
        )
    return function
