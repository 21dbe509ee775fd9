"""Windows of time: how records come into them, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from lowtide.flow.site import Function
from lowtide.flow.steps.step import Step, functions_in
from lowtide.flow.steps.windows import Windows
from lowtide.flow.time.moments import ZERO, said_duration

if TYPE_CHECKING:
    from lowtide.flow.steps.agg import Aggregate
    from lowtide.flow.steps.aggregation import Aggregation


@dataclass(frozen=True, slots=True)
class Reduced:
    """A window's result is its records, put together two by two by `function`."""

    function: Function


@dataclass(frozen=True, slots=True)
class Folded:
    """A window's result is `finish(window, state)`, the state being made by `function(state, record)`.

    Attributes:
        function: Changes nothing in place.
        initial: The state before the first record.
        finish: Takes the window and its state.
        merge: Puts the states of two sessions together; None where there are none.
        state: The type of the state; in a plan always there.
        returns: The type of the results if `finish` does not say it.
    """

    function: Function
    initial: Any
    finish: Function
    merge: Function | None = None
    state: Any = None
    returns: type | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """A window's results are what `function(window, records)` gives; `returns` is their type if it does not say."""

    function: Function
    returns: type | None = None


@dataclass(frozen=True, slots=True)
class Combined:
    """A window's result is a record of aggregates.

    Attributes:
        returns: The type of the results.
        columns: The aggregates by the fields that they fill.
        made: What they come to together; in a plan always there.
    """

    returns: type
    columns: tuple[tuple[str, Aggregate], ...]
    made: Aggregation | None = None


@dataclass(frozen=True, slots=True)
class WindowBy(Step):
    """Each key's records come into windows of time, which give results when they close, and perhaps before.

    Attributes:
        windows: How time is cut.
        time: The column of event time; None for log time.
        wait: How long log time waits for event time.
        ahead: A record whose event time is further ahead of log time is late.
        late: "drop" where nobody takes what is late.
        emit: When there are results: as a window closes, or with each of its records.
        result: What is made of a window; None until the user has said it.
    """

    word: ClassVar[str] = "window"
    stateful: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = (
        "a window cannot stand in the loop {loop}: it ends later than a turn; put it before or behind"
    )

    windows: Windows
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
    def depth(self, arriving: int) -> int:
        return arriving + 1 if self.emit == "update" else max(arriving, 1)

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
    """Every record comes out again when everything of its tick has left what is taken at port 1.

    It is a window of one tick in log time, of all records of a label or, without labels, of a hash unit.

    Attributes:
        label: The column that says which substream a record opens; None for none.
        keep: For how long it is known that a label has ended.
    """

    word: ClassVar[str] = "when_done"
    own: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = (
        "when_done cannot stand in the loop {loop}: it gives records at the next tick; put it behind"
    )

    label: str | None = None
    keep: timedelta = ZERO

    @property
    @override
    def durations(self) -> dict[str, timedelta]:
        return {} if self.label is None else {"keep": self.keep}

    @property
    @override
    def does(self) -> str:
        return f"when done{'' if self.label is None else f', labelled by {self.label}'}"

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        # Who asks for its labels needs nothing of it.
        return None if self.label is not None else WindowBy.unused(self, parents)


@dataclass(frozen=True, slots=True)
class Through(Step):
    """What a `WhenDone` waits for: takes no record of its parent, and stands behind what its parent stands behind."""

    word: ClassVar[str] = "through"
    silent: ClassVar[bool] = True
    own: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Late(Step):
    """The records that came too late for the windows of its parent, or for a join at one of its ports, as they were."""

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
