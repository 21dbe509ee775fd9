"""`call`: a step that asks an outside service, and the log of what it was answered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal, get_args, get_origin

from typing_extensions import override

from lowtide.errors import FlowError
from lowtide.flow.site import Function
from lowtide.flow.steps.signature import NOTHING, Unreadable, accepts, said, says_nothing
from lowtide.flow.steps.step import Asked, Saved, Step, called
from lowtide.flow.time.moments import said_duration

Failed = Literal["raise", "value", "letter"]
"""The fate of a record whose call has failed for good."""
Ordered = Literal["record", "answer"]
"""The order of the answers: that of their records, or that in which they come."""
_LISTS = (list, Sequence)
_KEYS = ("key", "keys")
"""The names by which a function takes its call key or keys."""


@dataclass(frozen=True, slots=True)
class Ask(Step):
    """Asks an outside service about every record, many at a time; the answers have the records' places, or later ticks.

    Attributes:
        function: Takes a record, what `resource` gave if there is one, and the call's key if it has an argument `key`;
            with `batch` lists of records and `keys`, and returns a list. Asynchronous, or called in a thread.
        timeout: Of one try.
        returns: The type of the answers; in a plan always there.
        concurrency: The number of calls that may be open at once, at each worker.
        retries: Tries after the first one.
        resource: Makes what all calls of a process share; a context manager is left at its end.
        batch: The number of records that one call takes at most; None for calls of one record.
        within: The time for which a batch waits for more records.
        failed: What becomes of a record whose last try has failed.
        otherwise: Takes the record and the failure, and gives the answer instead, if `failed` is "value".
        repeatable: Whether an answer is always the same, so that none is kept.
        order: The order of the answers.
    """

    word: ClassVar[str] = "call"
    stateful: ClassVar[bool] = True
    outside: ClassVar[bool] = True
    looks: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = (
        "{word} cannot stand in the loop {loop}: each turn would wait until its answers are kept"
    )

    function: Function
    timeout: timedelta
    returns: type | None = None
    concurrency: int = 100
    retries: int = 0
    resource: Function | None = None
    batch: int | None = None
    within: timedelta | None = None
    failed: Failed = "raise"
    otherwise: Function | None = None
    repeatable: bool = False
    order: Ordered = "record"

    @property
    @override
    def functions(self) -> dict[str, Function]:
        found = {"function": self.function, "resource": self.resource, "otherwise": self.otherwise}
        return {word: function for word, function in found.items() if function is not None}

    @property
    @override
    def clocked(self) -> bool:
        return self.order == "answer"

    @property
    @override
    def later(self) -> bool:
        return self.order == "answer"

    @property
    @override
    def by_unit(self) -> bool:
        return self.order == "answer"

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved | None:
        return Saved("call", takes[0]) if self.order == "answer" else None

    def answers(self, asked: Asked) -> Any:
        """Return the type of the answers, as `gives` does for other steps."""
        takes = asked.takes[0]
        if self.otherwise is not None:
            self._check_otherwise(asked, takes)
        return asked.record(self._returned(asked, takes))

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        batch = "" if self.batch is None else f", {self.batch} records at a time"
        kept = ", asked again in each life" if self.repeatable else ""
        tries = "" if not self.retries else f", {self.retries + 1} tries"
        order = ", in the order of the answers" if self.order == "answer" else ""
        most = f"{self.concurrency} open at most{batch}"
        return f" -> {gives}, {most}, {said_duration(self.timeout)} for a try{tries}{kept}{order}"

    def _returned(self, asked: Asked, takes: Any) -> Any:
        """Return the type of the answers, by the function's annotations or `returns`."""
        first, returns = self._annotations()
        if takes is not None and not self._accepts(first, takes):
            arrives = said(list[takes] if self.batch else takes)
            asked.fault(f"{called(self.function)} takes {said(first)}, but {arrives} arrives")
        if says_nothing(returns):
            if self.returns is None:
                raise Unreadable("does not say what it returns: annotate it, or add returns=Type")
            return self.returns
        if self.batch is not None:
            arguments = get_args(returns)
            if get_origin(returns) not in _LISTS or len(arguments) != 1:
                raise Unreadable(f"must return list[Answer], as batch= is given; its annotation says {said(returns)}")
            returns = arguments[0]
        if self.returns not in (None, returns):
            raise Unreadable(f"returns {said(returns)}, but returns= says {said(self.returns)}")
        return returns

    def _accepts(self, annotation: Any, takes: Any) -> bool:
        return accepts(annotation, list[takes] if self.batch is not None else takes)

    def _annotations(self) -> tuple[Any, Any]:
        """Return the annotations of the function's first argument and of its result (errors: Unreadable)."""
        try:
            signature = inspect.signature(self.function, eval_str=True)
        except ValueError:  # A builtin without one.
            return NOTHING, NOTHING
        except Exception as error:  # noqa: BLE001 - evaluating an annotation may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise Unreadable(
                f"has annotations that cannot be read ({reason}); define types at a module's top"
            ) from None
        passes_keys(self.function, resource=self.resource is not None)
        return next(iter(signature.parameters.values())).annotation, signature.return_annotation

    def _check_otherwise(self, asked: Asked, takes: Any) -> None:
        assert self.otherwise is not None, "it is given"
        try:
            signature = inspect.signature(self.otherwise, eval_str=True)
            signature.bind(None, None)
        except (TypeError, ValueError, NameError):
            asked.fault(f"{called(self.otherwise)} must take two arguments, the record and the failure")
            return
        first = next(iter(signature.parameters.values())).annotation
        if takes is not None and not accepts(first, takes):
            asked.fault(f"{called(self.otherwise)} takes {said(first)}, but {said(takes)} arrives")


def passes_keys(function: Callable[..., Any], *, resource: bool) -> bool:
    """Return whether a call's function takes the call key: its next parameter is named `key` or `keys`.

    Args:
        function: The function.
        resource: True if it takes a resource after the record.

    Raises:
        FlowError: it cannot be called so.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # Some functions written in C do not say.
        return False
    placed = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    several = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    given = 1 + resource
    keyed = len(placed) > given and placed[given].name in _KEYS
    needed = sum(each.default is each.empty for each in placed)
    needs_names = any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters)
    if needed > given + keyed or (len(placed) < given and not several) or needs_names:
        takes = ", ".join(map(str, parameters))
        expected = "record, resource" if resource else "record"
        raise FlowError(
            f"the function of a call takes ({takes}), expected ({expected}) or ({expected}, key)",
            way_out="give it these parameters; with batch= they are lists: records and keys",
        )
    return keyed


@dataclass(frozen=True, slots=True)
class Answers(Step):
    """Keeps the answers of an `Ask`, as a sink keeps records: the step waits until they are durable."""

    word: ClassVar[str] = "answers"
    silent: ClassVar[bool] = True
    own: ClassVar[bool] = True
    delivers: ClassVar[bool] = True

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The failure of a call whose last try has failed.

    Attributes:
        what: The last try's error, in one line.
        tries: The number of tries.
        traceback_text: The user's part of the last try's traceback; empty if nothing was raised.

    Example:
        >>> lt.CallFailed("raised ConnectionResetError: peer", 4).what
        'raised ConnectionResetError: peer'
    """

    what: str
    tries: int
    traceback_text: str = ""
