"""Code that asks the world something, run again and again from the answers that it was given.

The real functions cannot be copied in the middle. They are the same again for the same answers, though: so what one of
them is about to ask is found by running it from its beginning with all answers so far, once for each sequence of
answers. Such a sequence is a `Place`; equal sequences are one place, so a state of the model holds numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Question:
    """What a script asks: the name of what is done, and its arguments."""

    what: str
    given: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """An answer that is raised; `kind` says which error to make."""

    kind: str


class Ask:
    """How a script asks: answers that it was given are given again, and the first one that is not there stops it."""

    def __init__(self, answers: tuple[Any, ...]) -> None:
        self._answers = answers
        self._next = 0
        self._tokens = 0

    def __call__(self, what: str, *given: Any) -> Any:
        """Ask, and wait for the answer."""
        if self._next == len(self._answers):
            raise _StoppedError(Question(what, given))
        self._next += 1
        return self._answers[self._next - 1]

    def token(self) -> int:
        """A number that this script has not drawn before."""
        self._tokens += 1
        return self._tokens


class _StoppedError(BaseException):
    """The script stands at a question; nothing but `Scripts` catches it."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.what)
        self.question = question


Script = Callable[[Ask], Hashable]


@dataclass(slots=True)
class Place:
    """The progress of a script.

    Attributes:
        number: The place's own.
        key: Which script it is.
        answers: What it was given so far.
        question: What it asks; None if it has ended.
        result: What it has ended with.
        error: What it has raised at its end, if that is not an error of the script's own.
    """

    number: int
    key: tuple[Hashable, ...]
    answers: tuple[Any, ...]
    question: Question | None = None
    result: Any = None
    error: Exception | None = None
    after: dict[Any, int] = field(default_factory=dict)


class Scripts:
    """All places of all scripts.

    Args:
        make: Gives the script of a key.
    """

    current: Ask
    script = ""
    """Of the script that is being run: its questions, and its name."""

    def __init__(self, make: Callable[[tuple[Hashable, ...]], Script]) -> None:
        self._make = make
        self._first: dict[tuple[Hashable, ...], int] = {}
        self.places: list[Place] = []
        self.runs = 0

    def first(self, *key: Hashable) -> int:
        """The beginning of a script."""
        if key not in self._first:
            self._first[key] = self._run(key, ())
        return self._first[key]

    def then(self, place: int, answer: Any) -> int:
        """Where the script at a place comes with an answer."""
        before = self.places[place]
        number = before.after.get(answer)
        if number is None:
            number = before.after[answer] = self._run(before.key, (*before.answers, answer))
        return number

    def _run(self, key: tuple[Hashable, ...], answers: tuple[Any, ...]) -> int:
        place = Place(len(self.places), key, answers)
        self.places.append(place)
        self.runs += 1
        Scripts.current, Scripts.script = Ask(answers), f"{key[0]} {key[1]}"
        try:
            place.result = self._make(key)(Scripts.current)
        except _StoppedError as stopped:
            place.question = stopped.question
        except Exception as error:  # noqa: BLE001 - the laws say what is wrong with it
            place.error = error
        return place.number
