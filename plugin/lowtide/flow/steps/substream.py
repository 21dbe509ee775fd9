"""Substreams that a predicate opens: the step, what opens one, and the functions that follow it to its end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, NoReturn

from typing_extensions import override

from lowtide.errors import FlowError
from lowtide.flow.site import Function, check_text, function_of, user_site
from lowtide.flow.steps.step import called
from lowtide.flow.steps.timed import TimedScan
from lowtide.flow.steps.window_by import Late
from lowtide.flow.time.durations import duration_of

BY_RECORD, BY_IDLE = "record", "idle"
"""What has closed a substream: a record of which `closes` is true, or `idle` without any."""
FIELDS: dict[str, Any] = {"begun": datetime, "ended": datetime, "count": int, "closed_by": str}
"""What an end has beside the key's columns, and its types."""
OF_STATE: dict[str, Any] = {"begun": datetime, "count": int, "last": datetime}
"""What an open substream keeps beside the key's columns, and its types."""


@dataclass(frozen=True, slots=True)
class Substream(TimedScan):
    """Follows one substream of each key from the record that opens it to the one that closes it, or to its timer.

    Its functions take the log time of the record as their third argument. Its results are the ends.

    Attributes:
        opens: Tells whether a record opens a substream where none is open.
        closes: Tells whether a record of an open one is its last; None if time alone closes it.
        idle: A substream ends after this much log time without a record; None for never.
    """

    word: ClassVar[str] = "substream"
    takes_connected: ClassVar[bool] = False

    opens: Function | None = None
    closes: Function | None = None
    idle: timedelta | None = None

    @property
    @override
    def functions(self) -> dict[str, Function]:
        found = {"function": self.opens, "closes": self.closes}
        return {word: function for word, function in found.items() if function is not None}

    @property
    @override
    def durations(self) -> dict[str, timedelta]:
        return {} if self.idle is None else {"idle": self.idle}

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}{'' if self.idle is None else f', ended after {self.idle} without a record'}"


@dataclass(frozen=True, slots=True)
class Begun(Late):
    """The records that open the substreams of its parent, unchanged."""

    word: ClassVar[str] = "begun"

    @override
    def taken(self, parents: Sequence[int]) -> Sequence[int]:
        return parents

    @property
    @override
    def does(self) -> str:
        return "what opens a substream"


class Following:
    """The functions of a `Substream` in a plan; its state is None where none is open.

    Args:
        step: The step, as written.
        key: The key's columns.
        state: The type of the state: the key's columns, and those of `OF_STATE`.
        wanted: The fields of an end.
    """

    def __init__(self, step: Substream, key: Sequence[str], state: type, wanted: Sequence[str]) -> None:
        assert step.opens is not None, "it is written with it"
        assert step.returns is not None, "it is written with it"
        self.opens, self.closes, self._idle = step.opens, step.closes, step.idle
        self._returns, self._key, self._state = step.returns, tuple(key), state
        self._wanted = tuple(wanted)
        self.__qualname__ = "substream"

    def __call__(self, state: Any, record: Any, at: datetime) -> tuple[Any, list[Any]]:
        """Take a record of a key at a log time; return the new state, and the end if it closes the substream."""
        if state is None:
            if not _says(self.opens, record):
                return None, []
            state = self._state(*[getattr(record, column) for column in self._key], at, 0, at)
        state = replace(state, count=state.count + 1, last=at)
        if self.closes is not None and _says(self.closes, record):
            return None, [self._end(state, at, BY_RECORD)]
        return state, []

    def timer(self, state: Any) -> datetime | None:
        """Return when a substream has been idle for too long."""
        return None if self._idle is None else state.last + self._idle

    def on_timer(self, state: Any, moment: datetime) -> tuple[Any, list[Any]]:
        """End a substream that has been idle for too long."""
        return None, [self._end(state, moment, BY_IDLE)]

    def _end(self, state: Any, at: datetime, closed_by: str) -> Any:
        values = {"ended": at, "closed_by": closed_by}
        return self._returns(
            **{name: values[name] if name in values else getattr(state, name) for name in self._wanted}
        )


def substream_of(
    name: str, returns: object, opens: Function, closes: Function | None, idle: timedelta | None
) -> Substream:
    """Make the step of `substream(...)`; raises FlowError for arguments that do not fit."""
    check_text("substream", name)
    if not (isinstance(returns, type) and dataclasses.is_dataclass(returns)):
        way_out = 'give it after the name: substream("visit", Visit, opens=is_login, idle=lt.minutes(30))'
        raise FlowError(
            f"substream takes the dataclass of its ends, found {returns!r}", where=str(user_site()), way_out=way_out
        )
    if closes is None and idle is None:
        way_out = "give closes=, a function that is True for the last record, or idle=, or both"
        raise FlowError(
            "substream takes closes= or idle=, as nothing else ends one", where=str(user_site()), way_out=way_out
        )
    return Substream(
        _unbound,
        None,
        returns=returns,
        opens=function_of(opens),
        closes=None if closes is None else function_of(closes),
        idle=None if idle is None else duration_of("substream", "idle", idle),
    )


def _says(predicate: Callable[[Any], Any], record: Any) -> bool:
    says = predicate(record)
    if type(says) is not bool:
        raise TypeError(f"{called(predicate)} returned {says!r}, expected bool")
    return says


def _unbound(*_: object) -> NoReturn:
    raise AssertionError("a plan's substream has its functions")
