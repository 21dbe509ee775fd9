"""A rule broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

Patch = tuple[object, str, object]
"""Whose attribute, its name, and what stands in its place."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule broken, as somebody might who does not know why it is there.

    Attributes:
        name: Its name on the command line.
        rule: The rule or the schedule.
        what: What is done wrong.
        world: Where it shows: "protocol", "shards", "relays", "flow", "calls", "commit", "lives" or
            "carrier".
        patches: What of the real classes is replaced; recreated for every run.
        options: Of the world, so that it shows soon: which flow, how often something fails.
        seeds: It has survived if so many have not caught it.
    """

    name: str
    rule: str
    what: str
    world: str
    patches: Callable[[], list[Patch]]
    options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 150

    def applied(self) -> AbstractContextManager[None]:
        """The rule is broken as long as this is entered."""
        return swapped(self.patches())


@contextmanager
def swapped(patches: list[Patch]) -> Iterator[None]:
    """Attributes replaced, and put back."""
    with ExitStack() as stack:
        for owner, name, value in patches:
            before = vars(owner)[name]
            stack.callback(setattr, owner, name, before)
            setattr(owner, name, value)
        yield
