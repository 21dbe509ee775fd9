"""The steps a flow is made of, as frozen values: what each one does, not how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from lowtide.flow.formats.endpoints import KafkaSink, KafkaSource
from lowtide.flow.site import Function
from lowtide.flow.steps.windows import Windows
from lowtide.flow.time.moments import ZERO

if TYPE_CHECKING:
    from lowtide.flow.steps.agg import Aggregate
    from lowtide.flow.steps.aggregation import Aggregation
    from lowtide.flow.steps.clocks import Striking


@dataclass(frozen=True, slots=True)
class Read:
    """Records come in from a source."""

    source: KafkaSource


@dataclass(frozen=True, slots=True)
class Map:
    """Every record becomes one record; `returns` is its type where the function does not say."""

    function: Function
    returns: type | None = None


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Every record becomes any number of records, in the order the function gives them."""

    function: Function
    returns: type | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Records for which the function says True go on."""

    function: Function


@dataclass(frozen=True, slots=True)
class Split:
    """Records go to the one of its two `Side`s that the function says; no others take them, and in this order."""

    function: Function


@dataclass(frozen=True, slots=True)
class Side:
    """The records of a `Split` for which the function says this."""

    says: bool


@dataclass(frozen=True, slots=True)
class MapBatches:
    """An Arrow record batch becomes another one of `returns`, row by row in the same order.

    How records are cut into batches depends on timing, so row i of the result must depend on row i alone.
    """

    function: Function
    returns: type


@dataclass(frozen=True, slots=True)
class KeyBy:
    """Records with equal values in `columns` come together; without columns, those of one front do."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relay:
    """Records go on to the next level in the hash unit they have; at level 0 their front gives them one."""


@dataclass(frozen=True, slots=True)
class Last:
    """Every record becomes a window: the last `count` records of its key up to and with it, oldest first.

    Attributes:
        count: How many, at least 1.
        partial: Whether the windows at a key's start, which are shorter, come out.
        ttl: After so much log time without a record a key begins anew; None for never.
    """

    count: int
    partial: bool = True
    ttl: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """`function(state, record) -> (state, output)`, per key and in order; with a broadcast also `beside` as third.

    Attributes:
        function: Changes nothing in place.
        initial: The state of a key that has none yet.
        state: The type of the state; in a plan always there.
        returns: The type of the outputs; in a plan always there.
        ttl: After so much log time without a record a key begins anew; None for never.
    """

    function: Function
    initial: Any
    state: Any = None
    returns: type | None = None
    ttl: timedelta | None = None


@dataclass(frozen=True, slots=True)
class FlatScan(Scan):
    """`function(state, record) -> (state, outputs)`: a scan with any number of outputs, in the order given."""


@dataclass(frozen=True, slots=True)
class TimedScan(FlatScan):
    """A flat scan whose keys time calls, too; it always runs in order.

    Attributes:
        timer: `timer(state)` says when a key wants to be called: a moment of log time, or None.
        on_timer: `on_timer(state, moment) -> (state, outputs)`.
    """

    timer: Function | None = None
    on_timer: Function | None = None


@dataclass(frozen=True, slots=True)
class Sign:
    """Of each front the first record in each span of a clock becomes a sign for it.

    It takes the records of all sources, and is none of the ways that these part into: no child path has its number.

    Attributes:
        striking: The clock's.
    """

    striking: Striking


@dataclass(frozen=True, slots=True)
class Clock(TimedScan):
    """A record for each multiple of a duration that log time comes to; as it is written down it takes no stream.

    Attributes:
        striking: Its functions, which no user has written.
    """

    striking: Striking | None = None


@dataclass(frozen=True, slots=True)
class Ended(FlatScan):
    """The labels that have ended, for a while; nothing comes of them."""


@dataclass(frozen=True, slots=True)
class Reduce(Scan):
    """`function(result, record) -> result`: a scan whose state is what it gave last, at first the first record.

    As it is written down, `function` is the user's; in a plan it takes a state, which may be None, like any scan's.
    """


@dataclass(frozen=True, slots=True)
class Running:
    """Every record becomes what aggregates have come to with it; as it is written down, in a plan an `Aggregated`.

    Attributes:
        returns: The type of the results.
        columns: The aggregates by the fields of `returns` that they fill.
        ttl: As of a scan.
    """

    returns: type
    columns: Mapping[str, Any]
    ttl: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Aggregated(Scan):
    """A `Running` in a plan: a scan whose state has a field for each aggregate."""


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """The first record of each key goes on, then one only `within` of log time after the last that went on."""

    within: timedelta


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Every record goes to every hash unit; `function(state, record) -> state` keeps what scans see beside them.

    Attributes:
        function: Changes nothing in place.
        initial: The state before the first record.
        state: The type of the state; in a plan always there.
    """

    function: Function
    initial: Any
    state: Any = None


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
class WindowBy:
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

    windows: Windows
    time: str | None
    wait: timedelta = ZERO
    ahead: timedelta = ZERO
    late: Literal["drop"] | None = None
    emit: Literal["close", "update"] = "close"
    result: Combined | Reduced | Folded | Applied | None = None


@dataclass(frozen=True, slots=True)
class WhenDone(WindowBy):
    """Every record comes out again when everything of its tick has left what is taken at port 1.

    It is a window of one tick in log time, of all records of a label or, without labels, of a hash unit.

    Attributes:
        label: The column that says which substream a record opens; None for none.
        keep: For how long it is known that a label has ended.
    """

    label: str | None = None
    keep: timedelta = ZERO


@dataclass(frozen=True, slots=True)
class Through:
    """What a `WhenDone` waits for: takes no record of its parent, and stands behind what its parent stands behind."""


@dataclass(frozen=True, slots=True)
class Late:
    """The records that came too late for the windows of its parent, or for a join at one of its ports, as they were."""

    port: int = 0


@dataclass(frozen=True, slots=True)
class Connect:
    """The records of keyed streams of any types in one, in order, for scans."""


@dataclass(frozen=True, slots=True)
class Table:
    """The newest record of every key, for `join_table`.

    Attributes:
        deleted: The column that says of a record, by being True, that its key is gone; None for none.
        ttl: After so much log time without a record a key has no row any more; None for never.
    """

    deleted: str | None = None
    ttl: timedelta | None = None


@dataclass(frozen=True, slots=True)
class JoinTable:
    """Every record becomes `function(record, row)`, the row being its key's in a table, as of the record's place.

    Attributes:
        function: Changes nothing in place.
        how: Whether a record without a row is left out, or comes with None.
        returns: The type of the results; in a plan always there.
    """

    function: Function
    how: Literal["inner", "left"]
    returns: type | None = None


@dataclass(frozen=True, slots=True)
class Join:
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

    function: Function
    how: Literal["inner", "left", "right", "outer"]
    before: timedelta
    after: timedelta
    time: tuple[str, str] | None = None
    wait: tuple[timedelta, timedelta] = (ZERO, ZERO)
    ahead: timedelta = ZERO
    late: Literal["drop"] | None = None
    returns: type | None = None

    @property
    def outer(self) -> tuple[bool, bool]:
        """Whether unpaired records come out, left and right."""
        return self.how in ("left", "outer"), self.how in ("right", "outer")


@dataclass(frozen=True, slots=True)
class JoinAsof(Join):
    """Every record of the left stream with the newest of the right one that is not younger, and `before` older at most.

    That is known when log time has waited for both; so `after` is none, `wait` is one, and `how` is "left" or "inner".
    """


@dataclass(frozen=True, slots=True)
class Merge:
    """The records of several streams of one type in one."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The head of a loop: takes what comes in, and what its `Again` sends back.

    Attributes:
        keyed: Whether its records have a key when they come in.
    """

    keyed: bool = True


@dataclass(frozen=True, slots=True)
class Again:
    """The tail of a loop: records for which the function says True go back to the head, the others leave.

    Attributes:
        function: Takes a record, returns bool.
        limit_turns: How often a record may pass through the loop, at least 1; one that had to go again fails.
    """

    function: Function
    limit_turns: int


@dataclass(frozen=True, slots=True)
class Feedback:
    """The exchange from the tail of a loop with a `key_by` in its body back to the head, which stands further up.

    Attributes:
        columns: The key that records have at the head; none where each stays with the hash unit it has.
    """

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Records go out to a sink."""

    sink: KafkaSink


Step = (
    Read
    | Map
    | FlatMap
    | Filter
    | Split
    | Side
    | MapBatches
    | KeyBy
    | Relay
    | Last
    | Scan
    | Running
    | Deduplicate
    | Broadcast
    | Sign
    | WindowBy
    | Through
    | Late
    | Connect
    | Table
    | JoinTable
    | Join
    | Merge
    | Loop
    | Again
    | Feedback
    | Write
)


SILENT = (Sign, Late, Through, Feedback)
"""Steps that take records of a parent beside the ways that its records go, and so have no number in a child path."""

OWN = (Clock, WhenDone, Ended)
"""Steps whose functions are Lowtide's own: they do not fail."""


def functions_of(step: Step) -> dict[str, Function]:
    """The user's functions that a step calls, by the arguments that they were given as."""
    if isinstance(step, OWN):
        return {}
    holder = step.result if isinstance(step, WindowBy) else step
    words = ("function", "timer", "on_timer", "merge", "finish")
    found = {word: getattr(holder, word, None) for word in words}
    return {word: function for word, function in found.items() if function is not None}


STATEFUL = (Last, Scan, Deduplicate, Broadcast, WindowBy, Connect, JoinTable, Join, Loop)
"""Steps whose work needs to be in order, and so min time."""

CLOCKED = (WindowBy, Join, JoinAsof, TimedScan)
"""Steps that send what time alone brings, with no record that causes it: they say what is due (R6b)."""

WORD = {
    Read: "read",
    Map: "map",
    FlatMap: "flat_map",
    Filter: "filter",
    Split: "split",
    Side: "split",
    MapBatches: "map_batches",
    KeyBy: "key_by",
    Relay: "relay",
    Last: "last",
    Scan: "scan",
    FlatScan: "flat_scan",
    TimedScan: "flat_scan",
    Sign: "sign",
    Clock: "clock",
    Ended: "ended",
    Reduce: "reduce",
    Running: "aggregate",
    Aggregated: "aggregate",
    Deduplicate: "deduplicate",
    Broadcast: "broadcast",
    WindowBy: "window",
    WhenDone: "when_done",
    Through: "through",
    Late: "late",
    Connect: "connect",
    Table: "table",
    JoinTable: "join_table",
    Join: "join",
    JoinAsof: "join_asof",
    Merge: "merge",
    Loop: "loop",
    Again: "loop",
    Feedback: "loop",
    Write: "write",
}
"""What a step is called in the user's code."""
