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
    """The head of a loop: takes the records that come in, and those that its `Again` sends back.

    Attributes:
        keyed: True if its records have a key when they come in.
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
        limit_turns: The number of turns a record may take, at least 1; a record that needs another one fails.
    """

    word: ClassVar[str] = "loop"
    per_record: ClassVar[bool] = True

    function: Function
    limit_turns: int

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f", back to {others[0]} for at most {self.limit_turns} turns"


@dataclass(frozen=True, slots=True)
class Feedback(Step):
    """The exchange from the tail of a loop with a `key_by` in its body back to the head, which stands further up.

    Attributes:
        columns: The key that records have at the head; empty if each stays with its hash unit.
    """

    word: ClassVar[str] = "loop"
    silent: ClassVar[bool] = True
    exchange: ClassVar[bool] = True

    columns: tuple[str, ...]

    @property
    @override
    def by(self) -> tuple[str, ...]:
        return self.columns
