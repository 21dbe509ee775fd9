"""Messages between workers, the tracker and its subscribers, as values; `lowtide_tracker.wire` has the bytes."""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta
from msgspec.structs import force_setattr

from lowtide_tracker.fields import (
    Ack,
    Count,
    Due,
    Era,
    Front,
    Heartbeat,
    MinTime,
    Ordinal,
    Packed,
    Segment,
    ShardNumber,
    Text,
    Tick,
    Worker,
    cut,
)
from lowtide_tracker.floors import Floor


class Flush(Packed, frozen=True):
    """Everything that one worker folded since its flush before, as one atomic whole (R5).

    Its acks are applied before its heartbeats and dues; the flush is applied whole, once, and after the one numbered
    before.
    """

    worker: Worker
    number: Ordinal
    """From 1, without gaps, over the whole life."""
    acks: tuple[Ack, ...] = ()
    heartbeats: tuple[Heartbeat, ...] = ()
    """(front, tick): this front labels nothing more below this tick."""
    floors: tuple[Floor, ...] = ()
    """The floors that heartbeats up to this flush rely on."""
    dues: tuple[Due, ...] = ()
    """(segment, owner, tick), the newest of those that changed: nothing else is sent into the segment below this tick
    without further input; None for at no tick."""

    @classmethod
    def of(
        cls,
        worker: int,
        number: int,
        acks: Iterable[Ack] = (),
        heartbeats: Iterable[tuple[int, int]] = (),
        floors: Iterable[Floor] = (),
        dues: Iterable[Due] = (),
    ) -> "Flush":
        """A flush of any iterables; `LocalTracker.flush` is the way to make one in a job."""
        return cls(worker, number, tuple(acks), tuple(heartbeats), tuple(floors), tuple(dues))


class Absolute(Packed, frozen=True):
    """A worker's state towards the tracker as of one of its flushes: what a new tracker process is rebuilt from."""

    worker: Worker
    number: Count
    """The last flush that is part of it; 0 if there was none."""
    acks: tuple[Ack, ...] = ()
    """The non-zero sums at or above the min times received."""
    heartbeats: tuple[Heartbeat, ...] = ()
    """The newest of each front."""
    floors: tuple[Floor, ...] = ()
    """All that are not yet covered by a commit."""
    dues: tuple[Due, ...] = ()
    """The newest of each owner that has reported one."""
    min_times: tuple[MinTime, ...] = ()
    """(segment, tick): the min times that this worker has received."""


class Notice(Packed, frozen=True):
    """Min times that have moved, with the floors they rely on.

    Notices of one era are numbered from 1. This one covers the notices ``after + 1`` to ``number``: as the tracker
    makes them, that is one; several may be merged for a subscriber that is slow. With ``after`` 0 it says all there is
    to say of its era, whatever came before.
    """

    era: Era
    """Number of tracker processes of this life: 1 for the first."""
    number: Count
    after: Count
    min_times: Mapping[Segment, Tick]
    """Of the segments whose min time moved: in topological order, if nothing was merged."""
    global_min: Tick
    """The smallest min time of all segments, whether it moved or not."""
    floors: tuple[Floor, ...] = ()
    """Those that are new since notice ``after``."""
    request: "Request | None" = None
    """The newest of its era, if it came with one of them."""


class Request(Packed, frozen=True):
    """A request that every worker keep what it holds below a tick, to be saved (R14)."""

    number: Ordinal
    """From 1; the larger, the newer."""
    tick: Tick
    """The global min time of the very notice that the request came with."""


class Hello(Packed, frozen=True):
    """The first message of a client: its identity."""

    incarnation: Count
    worker: Worker | None
    """Its number in the life's register; None for one that only listens."""
    name: Text
    """For people: a worker's name in the register, or what the subscriber is for."""

    def __post_init__(self) -> None:
        force_setattr(self, "name", cut(self.name))


class Welcome(Packed, frozen=True):
    """The tracker's answer to `Hello`."""

    era: Era
    applied: Count
    """The last flush of this worker that was applied; later ones have to be sent (again)."""
    report: bool
    """True if the tracker is being rebuilt and waits for this worker's `Absolute` before any flush."""


class Applied(Packed, frozen=True):
    """Flushes of a worker up to this number have been applied and need not be kept."""

    worker: Worker
    number: Count


class Subscribe(Packed, frozen=True):
    """From now on send notices; the first one says everything.

    Asking again is how a subscriber names other segments.
    """

    segments: tuple[Segment, ...] | None = None
    """Those whose min time matters to it; notices leave out the others. None: all."""
    global_min: bool = True
    """True if the global min time matters as well: it is in every notice, but if False none is sent for its sake."""


class Unsubscribe(Packed, frozen=True):
    """Send no more notices."""


class Await(Packed, frozen=True):
    """The ticks that a subscriber waits for: notices may be late by `peer.HOLD_S` until one of them was passed."""

    ticks: Mapping[Segment, Tick]
    """Segment -> tick: the subscriber waits for the segment's min time to be above it. Empty: it waits for nothing."""


class OpenFront(Packed, frozen=True):
    """Opens a front; the answer is `FrontOpened`, whose tick the register must have before the front's first label.

    Asking twice does no harm.
    """

    front: Front
    floor: Tick
    """The tick below which it labels nothing anyway: above any `last`, and its floor if it is registered already."""
    feeds: tuple[Segment, ...] | None = None
    """The segments that its records go to; None for `Graph.sources`."""


class FrontOpened(Packed, frozen=True):
    """The front is open and labels nothing below ``tick``: at least its floor and any announced min time."""

    front: Front
    tick: Tick


class CloseFront(Packed, frozen=True):
    """Closes a front for good, after the last flush that speaks of it. Asking twice does no harm."""

    front: Front


class FrontClosed(Packed, frozen=True):
    """The front is closed."""

    front: Front


class Join(Packed, frozen=True):
    """A shard's first message to the merge after `Welcome`: which one it is."""

    shard: ShardNumber
    shards: ShardNumber
    """Number of those that it takes part with."""
    fresh: bool
    """True if it is a new process, which begins with the fronts of the answer."""


class Joined(Packed, frozen=True):
    """The merge's answer to `Join`; the orders that the shard has not followed and all notices come after it."""

    orders: Count
    """The last order that the fronts and the closed ones have in them."""
    fronts: Mapping[Front, Tick]
    """Every front that was opened, with its opening floor."""
    feeds: Mapping[Front, tuple[Segment, ...]]
    """The segments that a front feeds, where these are not `Graph.sources`."""
    closed: tuple[Front, ...]


class Order(Packed, frozen=True):
    """A decision of the merge for all shards alike; one merge's orders are numbered from 1, without gaps."""

    number: Ordinal
    front: Front
    floor: Tick | None
    """The front opens, and labels nothing below this tick; None: it closes for good."""
    feeds: tuple[Segment, ...] = ()
    """The segments that the records of a front that opens go to."""


class Report(Packed, frozen=True):
    """The moves of one shard since its last report, or, to a merge that has just connected, everything."""

    shard: ShardNumber
    whole: bool
    """True if it is complete: what lay between it and the report before is unknown."""
    nodes: tuple[tuple[Worker, Count], ...]
    """(worker, node time): the worker's last part that was applied."""
    orders: Count
    """The last order that was followed."""
    stands: tuple[tuple[Segment, Tick, Tick], ...]
    """(a group's first segment, the lowest that it stood, where it stands)."""
    highs: tuple[tuple[Segment, Tick], ...] = ()
    """(segment, the largest tick of an ack), where it has risen."""
    floors: tuple[Floor, ...] = ()
    opened: tuple[Heartbeat, ...] = ()
    """Fronts that orders have opened, with their heartbeats."""


class Attach(Packed, frozen=True):
    """A relay's message that a worker has come to it: from now on this connection speaks for the worker."""

    worker: Worker
    name: Text

    def __post_init__(self) -> None:
        force_setattr(self, "name", cut(self.name))


class Attached(Packed, frozen=True):
    """The tracker's answer to `Attach`, as `Welcome` is to a worker's own `Hello`."""

    worker: Worker
    applied: Count
    report: bool


class Sum(Packed, frozen=True):
    """Flushes of several workers as one atomic whole: of each worker a run of whole flushes (R5).

    One connection's sums are counted from 1.
    """

    parts: tuple[tuple[Worker, Ordinal, Ordinal], ...]
    """(worker, first, last): the flushes of a worker that it has in it, each worker once."""
    acks: tuple[Ack, ...] = ()
    heartbeats: tuple[Heartbeat, ...] = ()
    floors: tuple[Floor, ...] = ()
    dues: tuple[Due, ...] = ()


class Summed(Packed, frozen=True):
    """So many sums of this connection have been applied."""

    number: Count


class Fault(Packed, frozen=True):
    """The reason why the tracker closes this connection after this message."""

    REFUSED: ClassVar[int] = 1
    """This process has no place in the life that the tracker serves."""
    LIFE_ENDED: ClassVar[int] = 2
    """The life is over, for the reason given."""
    PROTOCOL: ClassVar[int] = 3
    """A peer's bytes are not of the protocol."""

    code: Annotated[int, Meta(ge=1, le=3)]
    text: Text

    def __post_init__(self) -> None:
        force_setattr(self, "text", cut(self.text))


FromClient: TypeAlias = Hello | Flush | Absolute | Subscribe | Unsubscribe | Await | OpenFront | CloseFront
FromShard: TypeAlias = Join | Report
FromRelay: TypeAlias = Attach | Sum
FromTracker: TypeAlias = (
    Welcome | Applied | Notice | FrontOpened | FrontClosed | Fault | Joined | Order | Attached | Summed
)
Message: TypeAlias = FromClient | FromShard | FromRelay | FromTracker
