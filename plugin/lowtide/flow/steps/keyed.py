"""Steps that keep a state per key, and the broadcasts that they look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from typing_extensions import override

from lowtide.flow.site import Function
from lowtide.flow.steps.signature import said
from lowtide.flow.steps.step import Asked, Saved, Step, said_ttl

_INSIDE = "{word} cannot be in the loop {loop}, whose records have not come out yet"


@dataclass(frozen=True, slots=True)
class Last(Step):
    """Turns every record into a window: the last `count` records of its key up to and with it, oldest first.

    Attributes:
        count: The number of records, at least 1.
        partial: True if the shorter windows at a key's start come out.
        ttl: A key starts over after this much log time without a record; None for never.
    """

    word: ClassVar[str] = "last"
    stateful: ClassVar[bool] = True

    count: int
    partial: bool = True
    ttl: timedelta | None = None

    @override
    def made_name(self, parents: Sequence[str]) -> str | None:
        return f"{parents[0]}/{self.word}"

    @override
    def gives(self, asked: Asked) -> Any:
        takes: Any = asked.takes[0]
        return None if takes is None else tuple[takes, ...]

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved:
        return Saved("last", takes[0], ttl=self.ttl)

    @property
    @override
    def does(self) -> str:
        return f"{self.word} {self.count}"

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}{said_ttl(self.ttl)}"


@dataclass(frozen=True, slots=True)
class Scan(Step):
    """Calls `function(state, record) -> (state, output)`, per key and in order; a broadcast adds its state as third.

    Attributes:
        function: Changes nothing in place.
        initial: The state of a key that has none yet.
        state: The type of the state; in a plan always there.
        returns: The type of the outputs; in a plan always there.
        ttl: A key starts over after this much log time without a record; None for never.
    """

    word: ClassVar[str] = "scan"
    per_record: ClassVar[bool] = True
    stateful: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    takes_connected: ClassVar[bool] = True

    function: Function
    initial: Any
    state: Any = None
    returns: type | None = None
    ttl: timedelta | None = None

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved:
        return Saved("scan", self.state, ttl=self.ttl, initial=self.initial)

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        beside = "".join(f" beside {other}" for other in others)
        return f"{beside} -> {gives}, with the state {said(self.state)}{said_ttl(self.ttl)}"


@dataclass(frozen=True, slots=True)
class FlatScan(Scan):
    """Calls `function(state, record) -> (state, outputs)`: a scan with any number of outputs, in the order given."""

    word: ClassVar[str] = "flat_scan"
    appends: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Reduce(Scan):
    """Calls `function(result, record) -> result`: a scan whose state is its last result, at first the first record.

    As written, `function` is the user's; in a plan it takes a state, which may be None, like any scan's.
    """

    word: ClassVar[str] = "reduce"
    takes_connected: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Running(Step):
    """Turns every record into its key's aggregates so far; as written, in a plan it is an `Aggregated`.

    Attributes:
        returns: The type of the results.
        columns: The aggregates by the fields of `returns` that they fill.
        ttl: As of a scan.
    """

    word: ClassVar[str] = "aggregate"

    returns: type
    columns: Mapping[str, Any]
    ttl: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Aggregated(Scan):
    """A `Running` in a plan: a scan whose state has a field for each aggregate."""

    word: ClassVar[str] = "aggregate"
    takes_connected: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Deduplicate(Step):
    """Passes the first record of each key, then only records `within` of log time after the last that passed."""

    word: ClassVar[str] = "deduplicate"
    stateful: ClassVar[bool] = True

    within: timedelta

    @property
    @override
    def durations(self) -> dict[str, timedelta]:
        return {"within": self.within}

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved:
        return Saved("deduplicate", int, ttl=self.within)

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" within {self.within}"


@dataclass(frozen=True, slots=True)
class Broadcast(Step):
    """Sends every record to every hash unit; `function(state, record) -> state` keeps the state that scans see.

    Attributes:
        function: Changes nothing in place.
        initial: The state before the first record.
        state: The type of the state; in a plan always there.
    """

    word: ClassVar[str] = "broadcast"
    per_record: ClassVar[bool] = True
    stateful: ClassVar[bool] = True
    exchange: ClassVar[bool] = True
    to_all: ClassVar[bool] = True
    appends: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = _INSIDE

    function: Function
    initial: Any
    state: Any = None

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved:
        return Saved("broadcast", self.state, initial=self.initial)

    @property
    @override
    def does(self) -> str:
        return "exchange to all hash units"

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" into the state {said(self.state)}"

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        return "no scan looks at this broadcast; use it with .scan(..., broadcast=...), or remove it"


@dataclass(frozen=True, slots=True)
class Ended(FlatScan):
    """Keeps labels that have ended, for a while; gives no records."""

    word: ClassVar[str] = "ended"
    own: ClassVar[bool] = True
