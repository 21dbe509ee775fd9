"""The steps of a flow, as its streams record them. Nothing is checked or run here."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import Kafka
from lowtide.flow.parameters import Value
from lowtide.flow.site import Site, user_site
from lowtide.flow.steps.calls import Call, sink_of
from lowtide.flow.steps.hooks import OF_THE_FLOW, Hook, Hooks, hook_of
from lowtide.flow.steps.steps import Step

DEAD_LETTERS = "dead-letters"
"""The name of the sink that takes failed records."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""A name that paths, topics and command lines take as it is."""

NAME_RULE = "use letters, digits, '_', '.' and '-', at most 100, starting with a letter or digit"


class FlowGraph:
    """The steps of a flow; users write a `lowtide.Flow`.

    Attributes:
        name: The flow's name, which is also the job's.
        dead_letters: The sink for records that cannot be parsed or whose step raises; without one they stop the job.
        calls: The steps in the order they were written; a step stands after the one it takes records from.
        parameters: The value of each parameter that the flow has asked for.
        defaults: The default of each, with the place where it was asked for.
        keyed: The call of each key_by, by the call it takes records from, its columns and its given name.
        hooks: Functions that hear of commits.
    """

    def __init__(self, name: str, *, dead_letters: Kafka[Any] | None = None, on_commit: Hook | None = None) -> None:
        self.site = user_site()
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise FlowError(f"{name!r} is not a valid flow name", where=str(self.site), way_out=NAME_RULE)
        self.name = name
        self.dead_letters = None if dead_letters is None else sink_of(dead_letters, "Flow")
        self.parameters: dict[str, Value] = {}
        self.defaults: dict[str, tuple[Value, Site]] = {}
        self.hooks = Hooks()
        if on_commit is not None:
            self.hooks[OF_THE_FLOW] = hook_of(on_commit, "Flow")
        self.calls: list[Call] = []
        self.keyed: dict[tuple[int, tuple[str, ...], str | None], int] = {}

    def add(self, step: Step, name: str | None, parents: tuple[int, ...], site: Site, back: int | None = None) -> int:
        """Record a step, for streams; returns its index in `calls`."""
        self.calls.append(Call(step, name, parents, site, back))
        return len(self.calls) - 1

    def complete(self, call: int, step: Step) -> None:
        """Complete a step that is written in two words, such as `window(...).reduce(...)`."""
        self.calls[call] = replace(self.calls[call], step=step)

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"
