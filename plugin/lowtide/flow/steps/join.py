"""Joins of streams, and of streams and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal

from typing_extensions import override

from lowtide.flow.site import Function
from lowtide.flow.steps.step import Saved, Step, said_ttl
from lowtide.flow.steps.windows import Delay, Reach
from lowtide.flow.time.moments import ZERO, said_duration

_WAITS = "{word} cannot be in the loop {loop}: it waits for records that one turn does not bring"


@dataclass(frozen=True, slots=True)
class Connect(Step):
    """One stream of several keyed streams of any types, in order, for scans."""

    word: ClassVar[str] = "connect"
    mixed: ClassVar[bool] = True
    stateful: ClassVar[bool] = True
    by_port: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = _WAITS

    @override
    def made_name(self, parents: Sequence[str]) -> str | None:
        return f"{'+'.join(parents)}/connect"

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        return "nothing takes the connected records; add .scan(...) or .flat_scan(...), or remove it"

    @override
    def takes(self, gives: Sequence[str], names: Sequence[str]) -> str:
        return ", ".join(f"{each} of {name}" for each, name in zip(gives, names, strict=True))


@dataclass(frozen=True, slots=True)
class Table(Step):
    """The newest record of every key, for `join_table`.

    Attributes:
        deleted: The column that removes the record's key if True; None for none.
        ttl: A key's row is dropped after this much log time without a record; None for never.
    """

    word: ClassVar[str] = "table"
    suffix: ClassVar[str] = "/table"
    no_loop: ClassVar[str | None] = _WAITS

    deleted: str | None = None
    ttl: timedelta | None = None

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        return "nothing joins this table; use it with .join_table(...), or remove it"

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        gone = "" if self.deleted is None else f", gone where {self.deleted} is True"
        return f"{gone}{said_ttl(self.ttl)}"


@dataclass(frozen=True, slots=True)
class JoinTable(Step):
    """Turns every record into `function(record, row)`, with its key's row in a table as of the record's place.

    Attributes:
        function: Changes nothing in place.
        how: "inner" leaves out records without a row; "left" gives them None.
        table: The table.
        returns: The type of the results; in a plan always there.
    """

    word: ClassVar[str] = "join_table"
    stateful: ClassVar[bool] = True
    by_port: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = _WAITS

    function: Function
    how: Literal["inner", "left"]
    table: Table
    returns: type | None = None

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved:
        return Saved("table", takes[1], 1, self.table.ttl)

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" with {others[0]}, {self.how} -> {gives}"


@dataclass(frozen=True, slots=True)
class Join(Step):
    """Turns pairs of records of two streams, of one key and near each other in time, into records.

    Attributes:
        function: Takes the two, one of them None where an unpaired record comes out; changes nothing in place.
        how: The streams whose unpaired records come out.
        before: The right record may lie this long before the left one.
        after: It may lie this long after it.
        time: The columns of event time, left and right; None for log time.
        wait: The time that log time waits for each stream's event time.
        ahead: A record whose event time is further ahead of log time is late.
        late: "drop" if nothing takes late records.
        returns: The type of the results; in a plan always there.
    """

    word: ClassVar[str] = "join"
    stateful: ClassVar[bool] = True
    sides: ClassVar[int] = 2
    waits: ClassVar[bool] = True
    by_port: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = _WAITS

    function: Function
    how: Literal["inner", "left", "right", "outer"]
    before: timedelta
    after: timedelta
    time: tuple[str, str] | None = None
    wait: tuple[timedelta, timedelta] = (ZERO, ZERO)
    ahead: timedelta = ZERO
    late: Literal["drop"] | None = None
    returns: type | None = None

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved:
        return Saved("join", takes[port], port, setting=self.nearness)

    @override
    def depth(self, arriving: int) -> int:
        return arriving + 1

    @override
    def delayed(self, port: int, delay: Delay | None) -> Delay | None:
        if self.time is not None:
            raise LookupError(self.word)
        return Reach(self.before if port else self.after, self.outer[port], delay)

    @property
    def outer(self) -> tuple[bool, bool]:
        """True for each stream, left and right, whose unpaired records come out."""
        return self.how in ("left", "outer"), self.how in ("right", "outer")

    @property
    @override
    def clocked(self) -> bool:
        return any(self.outer)  # An inner join gives nothing without a record that causes it.

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" with {others[0]}, {self.how}, {self.nearness} -> {gives}"

    @property
    def nearness(self) -> str:
        """The bounds within which records pair, as text: the kept state depends on them."""
        near = f"from {said_duration(self.before)} before to {said_duration(self.after)} after"
        if self.time is None:
            return f"{near} in log time"
        waits = " and ".join(said_duration(wait) for wait in dict.fromkeys(self.wait))
        return f"{near} by {' and '.join(self.time)}, waiting {waits}"


@dataclass(frozen=True, slots=True)
class JoinAsof(Join):
    """Pairs each left record with the newest right one that is not younger, and at most `before` older.

    The partner is known when log time has waited for both; so `after` is zero, `wait` the same for both, and `how` is
    "left" or "inner".
    """

    word: ClassVar[str] = "join_asof"

    @property
    @override
    def clocked(self) -> bool:
        return True

    @property
    @override
    def nearness(self) -> str:
        return (
            f"the newest of up to {said_duration(self.before)} before by {' and '.join(self.time or ())}, "
            f"waiting {said_duration(self.wait[0])}"
        )
