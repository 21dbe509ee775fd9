"""Loops: their heads, their tails, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from lowtide.flow.site import Function
from lowtide.flow.steps.step import Step


@dataclass(frozen=True, slots=True)
class Loop(Step):
    """The head of a loop: takes what comes in, and what its `Again` sends back.

    Attributes:
        keyed: Whether its records have a key when they come in.
    """

    word: ClassVar[str] = "loop"
    stateful: ClassVar[bool] = True
    appends: ClassVar[bool] = True

    keyed: bool = True


@dataclass(frozen=True, slots=True)
class Again(Step):
    """The tail of a loop: records for which the function says True go back to the head, the others leave.

    Attributes:
        function: Takes a record, returns bool.
        limit_turns: How often a record may pass through the loop, at least 1; one that had to go again fails.
    """

    word: ClassVar[str] = "loop"

    function: Function
    limit_turns: int

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f", back to {others[0]} for at most {self.limit_turns} turns"


@dataclass(frozen=True, slots=True)
class Feedback(Step):
    """The exchange from the tail of a loop with a `key_by` in its body back to the head, which stands further up.

    Attributes:
        columns: The key that records have at the head; none where each stays with the hash unit it has.
    """

    word: ClassVar[str] = "loop"
    silent: ClassVar[bool] = True
    exchange: ClassVar[bool] = True

    columns: tuple[str, ...]
