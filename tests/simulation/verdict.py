"""What may be wrong with a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["safety", "liveness", "output", "error"]


class Violation(Exception):
    """The model, or the comparison at the end, says that the core did wrong."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run of one seed ended.

    Attributes:
        seed: Its seed.
        world: Which world.
        steps: How many steps were taken, without those that drain it.
        kind: What is wrong; None if nothing is. "error" is an exception of the core's own.
        text: What is wrong, in words.
        counts: How often which kind of step was taken.
    """

    seed: int
    world: str
    steps: int
    kind: Kind | None
    text: str
    counts: dict[str, int]
