"""Steps for windows of time: how records enter them, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from lowtide.flow.site import Function
from lowtide.flow.steps.step import Saved, Step, functions_in
from lowtide.flow.steps.windows import Close, Delay, Session, Until, Windows
from lowtide.flow.time.moments import ZERO, said_duration
from lowtide_snapshots.job.news import step_of_labels

if TYPE_CHECKING:
    from lowtide.flow.steps.agg import Aggregate
    from lowtide.flow.steps.aggregation import Aggregation


Order = Literal["before_next", "stream"]
"""The order of the end of a substream: before anything later is looked at, or by its place alone."""


@dataclass(frozen=True, slots=True)
class Result:
    """The way to make a window's result; `saves` is the kind of part that holds what windows keep."""

    saves: ClassVar[str] = "window"

    def kept(self, takes: Any) -> Any:
        """Return the type of what a window keeps, or of its records, given that of the records that it takes."""
        return takes


@dataclass(frozen=True, slots=True)
class Reduced(Result):
    """The result of a `reduce`: a window's records, combined two by two by `function`."""

    function: Function


@dataclass(frozen=True, slots=True)
class Folded(Result):
    """The result of a `fold`: `finish(window, state)`, with the state made by `function(state, record)`.

    Attributes:
        function: Changes nothing in place.
        initial: The state before the first record.
        finish: Takes the window and its state.
        merge: Merges the states of two sessions; None if there are no sessions.
        state: The type of the state; in a plan always there.
        returns: The type of the results if `finish` does not say it.
    """

    function: Function
    initial: Any
    finish: Function
    merge: Function | None = None
    state: Any = None
    returns: type | None = None

    @override
    def kept(self, takes: Any) -> Any:
        return self.state


@dataclass(frozen=True, slots=True)
class Applied(Result):
    """The results of an `apply`: what `function(window, records)` gives; `returns` is their type if it does not say."""

    saves: ClassVar[str] = "window_records"

    function: Function
    returns: type | None = None


@dataclass(frozen=True, slots=True)
class Combined(Result):
    """The result of an `aggregate`: a record of aggregates.

    Attributes:
        returns: The type of the results.
        columns: The aggregates by the fields that they fill.
        made: The aggregation of all; in a plan always there.
    """

    returns: type
    columns: tuple[tuple[str, Aggregate], ...]
    made: Aggregation | None = None

    @override
    def kept(self, takes: Any) -> Any:
        assert self.made is not None, "a plan's aggregates have been put together"
        return self.made.state


@dataclass(frozen=True, slots=True)
class WindowBy(Step):
    """Puts each key's records into windows of time, which give results when they close, and perhaps before.

    Attributes:
        windows: The cut of time.
        time: The column of event time; None for log time.
        wait: The time that log time waits for event time.
        ahead: A record whose event time is further ahead of log time is late.
        late: "drop" if nothing takes late records.
        emit: "close" for results as a window closes, "update" for one with each record.
        result: The way to make a window's result; None until the user has written it.
    """

    word: ClassVar[str] = "window"
    stateful: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = (
        "a window cannot be in the loop {loop}: it ends later than one turn; put it before or after the loop"
    )

    windows: Windows | Until
    time: str | None
    wait: timedelta = ZERO
    ahead: timedelta = ZERO
    late: Literal["drop"] | None = None
    emit: Literal["close", "update"] = "close"
    result: Combined | Reduced | Folded | Applied | None = None

    @property
    @override
    def durations(self) -> dict[str, timedelta]:
        cut = {word: getattr(self.windows, word, ZERO) for word in ("size", "every", "gap")} | {"wait": self.wait}
        return {word: duration for word, duration in cut.items() if duration}

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved:
        assert self.result is not None, "a plan's windows have a result"
        return Saved(
            self.result.saves,
            self.result.kept(takes[0]),
            setting=f"{self.windows} by {self.time or 'log time'}, waiting {said_duration(self.wait)}",
            tz=getattr(self.windows, "tz", ""),
        )

    @override
    def depth(self, arriving: int) -> int:
        return arriving + 1 if self.emit == "update" else max(arriving, 1)

    @override
    def delayed(self, port: int, delay: Delay | None) -> Delay | None:
        if self.emit == "update":
            return delay
        if self.time is not None or isinstance(self.windows, Session):
            raise LookupError(self.word)
        return Close(self.windows, delay)

    @property
    @override
    def functions(self) -> dict[str, Function]:
        return {} if self.own else functions_in(self.result)

    @property
    @override
    def does(self) -> str:
        time = "log time" if self.time is None else f"{self.time}, waits {said_duration(self.wait)} for it"
        return f"{self.windows} by {time}{', with updates' if self.emit == 'update' else ''}"

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}"


@dataclass(frozen=True, slots=True)
class WhenDone(WindowBy):
    """Gives every record again after everything of its tick: once that has left the stream at port 1, if there is one.

    It is a window of one tick in log time, over all records of a label or, without labels, of a hash unit.

    Attributes:
        label: The columns that name the substream which a record opens; none for no labels.
        keep: The time for which an ended label is remembered.
        order: "stream" if it waits for no other stream: only its place in the order says that it comes after its tick.
    """

    word: ClassVar[str] = "when_done"
    own: ClassVar[bool] = True
    looks: ClassVar[bool] = True  # No exchange has looked at its records, and a snapshot may have them.
    no_loop: ClassVar[str | None] = (
        "when_done cannot be in the loop {loop}: it gives records at the next tick; put it after the loop"
    )

    label: tuple[str, ...] = ()
    keep: timedelta = ZERO
    order: Order = "before_next"

    @property
    @override
    def durations(self) -> dict[str, timedelta]:
        return {"keep": self.keep} if self.label else {}

    @property
    @override
    def by_unit(self) -> bool:
        return not self.label

    @override
    def made_name(self, parents: Sequence[str]) -> str | None:
        # The user names a `when_done`, and of a `when_begun` the step before.
        return step_of_labels(parents[0], begun=True)

    @override
    def taken(self, parents: Sequence[int]) -> Sequence[int]:
        return parents[:1]

    @property
    @override
    def does(self) -> str:
        done = "when done" if self.order == "before_next" else "after its tick"
        until = f", {self.windows}" if isinstance(self.windows, Until) else ""
        return f"{done}{', labelled by ' + ', '.join(self.label) if self.label else ''}{until}"

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        # A flow that only wants its labels need not take its records.
        return None if self.label else WindowBy.unused(self, parents)


@dataclass(frozen=True, slots=True)
class Through(Step):
    """The stream that a `WhenDone` waits for: takes no record of its parent, but comes after the same steps."""

    word: ClassVar[str] = "through"
    silent: ClassVar[bool] = True
    own: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Late(Step):
    """The records that came too late for its parent's windows, or for a join at one of its ports, unchanged."""

    word: ClassVar[str] = "late"
    silent: ClassVar[bool] = True

    port: int = 0

    @override
    def made_name(self, parents: Sequence[str]) -> str | None:
        return f"{parents[0]}/{self.word}{'-other' if self.port else ''}"

    @property
    @override
    def does(self) -> str:
        return "what is late"

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}"
