"""The steps a flow is made of, as frozen values: what each one does, not how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from lowtide.flow.formats.endpoints import KafkaSink, KafkaSource
from lowtide.flow.site import Function
from lowtide.flow.steps.signature import NOTHING, Signature, Unreadable, accepts, element_of, said, signature_of
from lowtide.flow.steps.windows import Windows
from lowtide.flow.time.moments import ZERO, said_duration

if TYPE_CHECKING:
    from lowtide.flow.schema.kinds import Kind
    from lowtide.flow.steps.agg import Aggregate
    from lowtide.flow.steps.aggregation import Aggregation
    from lowtide.flow.steps.clocks import Striking


_WAITS = "{word} cannot stand in the loop {loop}: it waits for records that a turn does not bring"
_INSIDE = "{word} cannot stand in the loop {loop}, whose records have not come out yet"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a flow. What others have to know of its kind stands here and in its class, and nowhere else.

    Attributes:
        word: What it is called in the user's code.
        silent: It takes records of a parent beside the ways that its records go, and has no number in a child path.
        own: Its functions are Lowtide's own: they do not fail.
        stateful: Its work needs to be in order, and so min time.
        waits: What comes of a record in it may be of a later tick.
        exchange: Its records are sent by another level: the one before its own, or a loop's tail.
        appends: It appends an element to the child path of each record.
        sides: How many states it keeps, one for each port.
        by_port: It tells the streams apart that it takes.
        takes_windows: It takes the tuples of records that `last` gives.
        takes_connected: It takes what `connect` brings together.
        no_loop: Why it cannot stand in a loop, with `{word}` and `{loop}`; None where it can.
        whole: A record that fails in it may end the life in any case: nobody can say which it was, or its state cannot
            be saved.
    """

    word: ClassVar[str]
    silent: ClassVar[bool] = False
    own: ClassVar[bool] = False
    stateful: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    exchange: ClassVar[bool] = False
    appends: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    sides: ClassVar[int] = 1
    by_port: ClassVar[bool] = False
    takes_windows: ClassVar[bool] = False
    takes_connected: ClassVar[bool] = False
    no_loop: ClassVar[str | None] = None

    @property
    def clocked(self) -> bool:
        """True if it sends what time alone brings, with no record that causes it, and says what is due (R6b)."""
        return self.waits

    @property
    def functions(self) -> dict[str, Function]:
        """The user's functions that it calls, by the arguments that they were given as."""
        return {} if self.own else functions_in(self)

    @property
    def durations(self) -> dict[str, timedelta]:
        """The durations that have to be a tick at least, by the arguments that they were given as."""
        ttl = getattr(self, "ttl", None)
        return {} if ttl is None else {"ttl": ttl}

    def depth(self, arriving: int) -> int:
        """The longest child path that a record can have after it, by that of those that arrive."""
        return arriving + self.appends

    def made_name(self, parents: Sequence[str]) -> str | None:
        """Its name where the user gave none, made of those of its parents; None where it needs one."""
        return None

    def gives(self, asked: Asked) -> Any:
        """The type of the records that come out; None where a fault hides it.

        Raises:
            Unreadable: what does not fit, to stand behind its function's name.
            FlowError: something else does not.
        """
        return asked.takes[0]

    def unused(self, parents: Sequence[str]) -> str | None:
        """What to do if nothing takes its records; None if that is right."""
        return "nothing takes these records; end the stream with .write(...), or remove the step"

    def takes(self, gives: Sequence[str], names: Sequence[str]) -> str:
        """What it takes, by the types and the names of its parents, for `check --explain`."""
        return f"{gives[0]} of {names[0]}"

    @property
    def does(self) -> str:
        """What it does, for `check --explain`."""
        return self.word

    def shows(self, gives: str, others: Sequence[str]) -> str:
        """What comes of the records that it takes, for `check --explain`.

        Args:
            gives: The type of what comes out.
            others: The names of what it takes at ports from 1 on; of a loop's tail that of its head.
        """
        return ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a step is asked with for the type that it gives.

    Attributes:
        takes: The types of the records that arrive, by port; None where a fault hides it.
        names: The names of the steps that they come from.
        fault: Notes something that does not fit, after which it goes on.
        record: The class of the records that a type says (errors: SchemaRefused).
        kinds: The kinds of a class's columns, by their names.
    """

    takes: Sequence[Any]
    names: Sequence[str]
    fault: Callable[[str], None]
    record: Callable[[Any], type]
    kinds: Callable[[type], Mapping[str, Kind]]


def functions_in(holder: object) -> dict[str, Function]:
    """The functions among a value's fields, by their names."""
    words = ("function", "timer", "on_timer", "merge", "finish")
    found = {word: getattr(holder, word, None) for word in words}
    return {word: function for word, function in found.items() if function is not None}


@dataclass(frozen=True, slots=True)
class Read(Step):
    """Records come in from a source."""

    word: ClassVar[str] = "read"

    source: KafkaSource


@dataclass(frozen=True, slots=True)
class Map(Step):
    """Every record becomes one record; `returns` is its type where the function does not say."""

    word: ClassVar[str] = "map"
    takes_windows: ClassVar[bool] = True

    function: Function
    returns: type | None = None

    @override
    def gives(self, asked: Asked) -> Any:
        return asked.record(_returned(self, asked))

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}"


@dataclass(frozen=True, slots=True)
class FlatMap(Step):
    """Every record becomes any number of records, in the order the function gives them."""

    word: ClassVar[str] = "flat_map"
    appends: ClassVar[bool] = True
    takes_windows: ClassVar[bool] = True

    function: Function
    returns: type | None = None

    @override
    def gives(self, asked: Asked) -> Any:
        return asked.record(_returned(self, asked, many=True))

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}"


@dataclass(frozen=True, slots=True)
class Filter(Step):
    """Records for which the function says True go on."""

    word: ClassVar[str] = "filter"
    takes_windows: ClassVar[bool] = True

    function: Function

    @override
    def gives(self, asked: Asked) -> Any:
        check_predicate(self.function, asked, asked.takes[0])
        return asked.takes[0]


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Records go to the one of its two `Side`s that the function says; no others take them, and in this order."""

    word: ClassVar[str] = "split"
    takes_windows: ClassVar[bool] = True

    function: Function

    @override
    def gives(self, asked: Asked) -> Any:
        check_predicate(self.function, asked, asked.takes[0])
        return asked.takes[0]


@dataclass(frozen=True, slots=True)
class Side(Step):
    """The records of a `Split` for which the function says this."""

    word: ClassVar[str] = "split"
    takes_windows: ClassVar[bool] = True

    says: bool

    @override
    def made_name(self, parents: Sequence[str]) -> str | None:
        return f"{parents[0]}/{str(self.says).lower()}"

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        whose = f"the records for which {parents[0]} returns {self.says}"
        return f"nothing takes {whose}; end their stream with .write(...), or use filter instead"


@dataclass(frozen=True, slots=True)
class MapBatches(Step):
    """An Arrow record batch becomes another one of `returns`, row by row in the same order.

    How records are cut into batches depends on timing, so row i of the result must depend on row i alone.
    """

    word: ClassVar[str] = "map_batches"
    whole: ClassVar[bool] = True

    function: Function
    returns: type

    @override
    def gives(self, asked: Asked) -> Any:
        signature_of(self.function, "batch")
        return asked.record(self.returns)

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}"


@dataclass(frozen=True, slots=True)
class KeyBy(Step):
    """Records with equal values in `columns` come together; without columns, those of one front do."""

    word: ClassVar[str] = "key_by"
    exchange: ClassVar[bool] = True

    columns: tuple[str, ...]

    @override
    def made_name(self, parents: Sequence[str]) -> str | None:
        return f"{parents[0]}/by-{'-'.join(self.columns)}"

    @override
    def gives(self, asked: Asked) -> Any:
        check_columns(self.columns, asked)
        _check_keys(self.columns, asked)
        return asked.takes[0]

    @property
    @override
    def does(self) -> str:
        return f"exchange by {', '.join(self.columns) or 'source partition'}"


@dataclass(frozen=True, slots=True)
class Relay(Step):
    """Records go on to the next level in the hash unit they have; at level 0 their front gives them one."""

    word: ClassVar[str] = "relay"
    exchange: ClassVar[bool] = True

    @property
    @override
    def does(self) -> str:
        return "exchange to the next level"


@dataclass(frozen=True, slots=True)
class Last(Step):
    """Every record becomes a window: the last `count` records of its key up to and with it, oldest first.

    Attributes:
        count: How many, at least 1.
        partial: Whether the windows at a key's start, which are shorter, come out.
        ttl: After so much log time without a record a key begins anew; None for never.
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

    @property
    @override
    def does(self) -> str:
        return f"{self.word} {self.count}"

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}{_until(self.ttl)}"


@dataclass(frozen=True, slots=True)
class Scan(Step):
    """`function(state, record) -> (state, output)`, per key and in order; with a broadcast also `beside` as third.

    Attributes:
        function: Changes nothing in place.
        initial: The state of a key that has none yet.
        state: The type of the state; in a plan always there.
        returns: The type of the outputs; in a plan always there.
        ttl: After so much log time without a record a key begins anew; None for never.
    """

    word: ClassVar[str] = "scan"
    stateful: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    takes_connected: ClassVar[bool] = True

    function: Function
    initial: Any
    state: Any = None
    returns: type | None = None
    ttl: timedelta | None = None

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        beside = "".join(f" beside {other}" for other in others)
        return f"{beside} -> {gives}, with the state {said(self.state)}{_until(self.ttl)}"


@dataclass(frozen=True, slots=True)
class FlatScan(Scan):
    """`function(state, record) -> (state, outputs)`: a scan with any number of outputs, in the order given."""

    word: ClassVar[str] = "flat_scan"
    appends: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TimedScan(FlatScan):
    """A flat scan whose keys time calls, too; it always runs in order.

    Attributes:
        timer: `timer(state)` says when a key wants to be called: a moment of log time, or None.
        on_timer: `on_timer(state, moment) -> (state, outputs)`.
    """

    waits: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = (
        "a timer cannot stand in the loop {loop}: it is due later than a turn; put it before or behind"
    )

    timer: Function | None = None
    on_timer: Function | None = None

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        beside = "".join(f" beside {other}" for other in others)
        return f"{beside} -> {gives}, with the state {said(self.state)}, with a timer{_until(self.ttl)}"


@dataclass(frozen=True, slots=True)
class Sign(Step):
    """Of each front the first record in each span of a clock becomes a sign for it.

    It takes the records of all sources, and is none of the ways that these part into: no child path has its number.

    Attributes:
        striking: The clock's.
    """

    word: ClassVar[str] = "sign"
    silent: ClassVar[bool] = True
    own: ClassVar[bool] = True

    striking: Striking

    @property
    @override
    def does(self) -> str:
        return "a sign for the clock of each span that has records"


@dataclass(frozen=True, slots=True)
class Clock(TimedScan):
    """A record for each multiple of a duration that log time comes to; as it is written down it takes no stream.

    Attributes:
        striking: Its functions, which no user has written.
    """

    word: ClassVar[str] = "clock"
    own: ClassVar[bool] = True

    striking: Striking | None = None

    @property
    @override
    def durations(self) -> dict[str, timedelta]:
        return {} if self.striking is None else {"every": self.striking.every.duration}

    @property
    @override
    def does(self) -> str:
        return f"clock {self.striking and self.striking.every}"


@dataclass(frozen=True, slots=True)
class Ended(FlatScan):
    """The labels that have ended, for a while; nothing comes of them."""

    word: ClassVar[str] = "ended"
    own: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Reduce(Scan):
    """`function(result, record) -> result`: a scan whose state is what it gave last, at first the first record.

    As it is written down, `function` is the user's; in a plan it takes a state, which may be None, like any scan's.
    """

    word: ClassVar[str] = "reduce"
    takes_connected: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Running(Step):
    """Every record becomes what aggregates have come to with it; as it is written down, in a plan an `Aggregated`.

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
    """The first record of each key goes on, then one only `within` of log time after the last that went on."""

    word: ClassVar[str] = "deduplicate"
    stateful: ClassVar[bool] = True

    within: timedelta

    @property
    @override
    def durations(self) -> dict[str, timedelta]:
        return {"within": self.within}

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" within {self.within}"


@dataclass(frozen=True, slots=True)
class Broadcast(Step):
    """Every record goes to every hash unit; `function(state, record) -> state` keeps what scans see beside them.

    Attributes:
        function: Changes nothing in place.
        initial: The state before the first record.
        state: The type of the state; in a plan always there.
    """

    word: ClassVar[str] = "broadcast"
    stateful: ClassVar[bool] = True
    exchange: ClassVar[bool] = True
    appends: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = _INSIDE

    function: Function
    initial: Any
    state: Any = None

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


@dataclass(frozen=True, slots=True)
class Connect(Step):
    """The records of keyed streams of any types in one, in order, for scans."""

    word: ClassVar[str] = "connect"
    stateful: ClassVar[bool] = True
    by_port: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = _WAITS

    @override
    def made_name(self, parents: Sequence[str]) -> str | None:
        return f"{'+'.join(parents)}/connect"

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        return "nothing takes what is connected; add .scan(...) or .flat_scan(...), or remove it"

    @override
    def takes(self, gives: Sequence[str], names: Sequence[str]) -> str:
        return ", ".join(f"{each} of {name}" for each, name in zip(gives, names, strict=True))


@dataclass(frozen=True, slots=True)
class Table(Step):
    """The newest record of every key, for `join_table`.

    Attributes:
        deleted: The column that says of a record, by being True, that its key is gone; None for none.
        ttl: After so much log time without a record a key has no row any more; None for never.
    """

    word: ClassVar[str] = "table"
    no_loop: ClassVar[str | None] = _WAITS

    deleted: str | None = None
    ttl: timedelta | None = None

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        return "nothing joins this table; use it with .join_table(...), or remove it"

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        gone = "" if self.deleted is None else f", gone where {self.deleted} is True"
        return f"{gone}{_until(self.ttl)}"


@dataclass(frozen=True, slots=True)
class JoinTable(Step):
    """Every record becomes `function(record, row)`, the row being its key's in a table, as of the record's place.

    Attributes:
        function: Changes nothing in place.
        how: Whether a record without a row is left out, or comes with None.
        returns: The type of the results; in a plan always there.
    """

    word: ClassVar[str] = "join_table"
    stateful: ClassVar[bool] = True
    by_port: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = _WAITS

    function: Function
    how: Literal["inner", "left"]
    returns: type | None = None

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" with {others[0]}, {self.how} -> {gives}"


@dataclass(frozen=True, slots=True)
class Join(Step):
    """Pairs of the records of two streams that have one key and lie near each other in time become records.

    Attributes:
        function: Takes the two, one of them None where an unpaired record comes out; changes nothing in place.
        how: Of which streams unpaired records come out.
        before: How far before the left record's time the right one's may lie.
        after: How far after it.
        time: The columns of event time, left and right; None for log time.
        wait: How long log time waits for each stream's event time.
        ahead: A record whose event time is further ahead of log time is late.
        late: "drop" where nobody takes what is late.
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
    def depth(self, arriving: int) -> int:
        return arriving + 1

    @property
    def outer(self) -> tuple[bool, bool]:
        """Whether unpaired records come out, left and right."""
        return self.how in ("left", "outer"), self.how in ("right", "outer")

    @property
    @override
    def clocked(self) -> bool:
        return any(self.outer)  # Of an inner join all that comes out comes with a record.

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" with {others[0]}, {self.how}, {self.nearness} -> {gives}"

    @property
    def nearness(self) -> str:
        """When its records are near, as a text: what it keeps hangs on that."""
        near = f"from {said_duration(self.before)} before to {said_duration(self.after)} after"
        if self.time is None:
            return f"{near} in log time"
        waits = " and ".join(said_duration(wait) for wait in dict.fromkeys(self.wait))
        return f"{near} by {' and '.join(self.time)}, waiting {waits}"


@dataclass(frozen=True, slots=True)
class JoinAsof(Join):
    """Every record of the left stream with the newest of the right one that is not younger, and `before` older at most.

    That is known when log time has waited for both; so `after` is none, `wait` is one, and `how` is "left" or "inner".
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


@dataclass(frozen=True, slots=True)
class Merge(Step):
    """The records of several streams of one type in one."""

    word: ClassVar[str] = "merge"

    @override
    def gives(self, asked: Asked) -> Any:
        if len(set(asked.names)) < len(asked.names):
            asked.fault("a stream is merged with itself, so each of its records would come twice; leave it out")
        types = {said(takes): None for takes in asked.takes if takes is not None}
        if len(types) > 1:
            asked.fault(f"merge takes streams of one type, found {' and '.join(types)}; use map before it")
        return asked.takes[0]

    @override
    def takes(self, gives: Sequence[str], names: Sequence[str]) -> str:
        return f"{gives[0]} of {', '.join(names)}"


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


@dataclass(frozen=True, slots=True)
class Write(Step):
    """Records go out to a sink."""

    word: ClassVar[str] = "write"
    no_loop: ClassVar[str | None] = _INSIDE

    sink: KafkaSink

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {self.sink}"

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        return None


def check_predicate(function: Function, asked: Asked, takes: Any) -> None:
    """Note what is wrong with a function that says True or False of a record."""
    returns = _signature(function, asked, takes).returns
    if returns not in (NOTHING, bool):
        asked.fault(f"{called(function)} must return bool, its annotation says {said(returns)}")


def _returned(step: Map | FlatMap, asked: Asked, *, many: bool = False) -> Any:
    """The type of the records that a function gives."""
    returns = _signature(step.function, asked, asked.takes[0]).returns
    if many and returns is not NOTHING:
        returns = element_of(returns)
    if returns is NOTHING or returns is Any:
        if step.returns is None:
            how = "a lambda cannot, so add" if called(step.function) == "<lambda>" else "annotate it, or add"
            raise Unreadable(f"does not say what it returns: {how} returns=Type")
        return step.returns
    if step.returns not in (None, returns):
        raise Unreadable(f"returns {said(returns)}, but returns= says {said(step.returns)}")
    return returns


def _signature(function: Function, asked: Asked, takes: Any) -> Signature:
    signature = signature_of(function, "the record")
    if takes is not None and not accepts(signature.takes[0], takes):
        asked.fault(f"{called(function)} takes {said(signature.takes[0])}, but {said(takes)} arrives")
    return signature


def called(function: object) -> str:
    """What a message calls a function."""
    return str(getattr(function, "__name__", None) or repr(function))


def check_columns(columns: tuple[str, ...], asked: Asked) -> None:
    """Note columns that the records have not, and those that are named twice."""
    takes = asked.takes[0]
    if takes is None:
        return
    known = asked.kinds(takes)
    for column in columns:
        if column not in known:
            asked.fault(f"{said(takes)} has no column {column!r}; it has {', '.join(known)}")
    if len(set(columns)) < len(columns):
        asked.fault(f"a column is named twice: {', '.join(columns)}")


def _check_keys(columns: tuple[str, ...], asked: Asked) -> None:
    kinds = {} if asked.takes[0] is None else asked.kinds(asked.takes[0])
    for column in columns:
        if column in kinds and not kinds[column].can_be_key:
            message = f"{column!r} is {kinds[column].name}, which cannot be a key"
            asked.fault(f"{message}; use str, int, bool, bytes, date, datetime, UUID, Enum or Literal")


def _until(ttl: timedelta | None) -> str:
    return "" if ttl is None else f", forgotten after {ttl}"


KINDS: tuple[type[Step], ...] = tuple(
    each for each in list(globals().values()) if isinstance(each, type) and issubclass(each, Step) and each is not Step
)
"""All kinds of steps; a `Running` is in no plan."""
