"""What travels between workers, the tracker and its subscribers, as values; `lowtide_tracker.wire` has the bytes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lowtide_tracker.floors import Floor

Ack: TypeAlias = tuple[int, int, int]
"""(segment, tick, value)."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Everything that one worker folded since its flush before, as one atomic whole (R5).

    Its acks are applied before its heartbeats; the flush is applied whole, once, and after the one numbered before.
    """

    worker: int
    number: int
    """From 1, without gaps, over the whole life."""
    acks: tuple[Ack, ...] = ()
    heartbeats: tuple[tuple[int, int], ...] = ()
    """(front, tick): this front labels nothing below this tick any more."""
    floors: tuple[Floor, ...] = ()
    """Those that heartbeats up to this flush rest on."""

    @classmethod
    def of(
        cls,
        worker: int,
        number: int,
        acks: Iterable[Ack] = (),
        heartbeats: Iterable[tuple[int, int]] = (),
        floors: Iterable[Floor] = (),
    ) -> "Flush":
        """A flush of any iterables; `LocalTracker.flush` is the way to make one in a job."""
        return cls(worker, number, tuple(acks), tuple(heartbeats), tuple(floors))


@dataclass(frozen=True, slots=True)
class Absolute:
    """A worker's state towards the tracker as of one of its flushes: what a new tracker process is rebuilt from."""

    worker: int
    number: int
    """The last flush that is part of it; 0 if there was none."""
    acks: tuple[Ack, ...] = ()
    """The non-zero sums at or above the min times heard."""
    heartbeats: tuple[tuple[int, int], ...] = ()
    """The newest of each front."""
    floors: tuple[Floor, ...] = ()
    """All that are not yet covered by a commit."""
    min_times: tuple[tuple[int, int], ...] = ()
    """(segment, tick): the min times that this worker has heard."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Min times that have moved, with the floors they rest on.

    Notices of one era are numbered from 1. This one covers the notices ``after + 1`` to ``number``: as the tracker
    makes them, that is one; several may be merged for a subscriber that is slow. With ``after`` 0 it says all there is
    to say of its era, whatever was heard before.
    """

    era: int
    """How many tracker processes this life has had: 1 for the first."""
    number: int
    after: int
    min_times: Mapping[int, int]
    """Of the segments whose min time moved: in topological order, if nothing was merged."""
    global_min: int
    """The smallest min time of all segments, whether it moved or not."""
    floors: tuple[Floor, ...] = ()
    """Those that are new since notice ``after``."""
    request: "Request | None" = None
    """The newest of its era, if it came with one of them."""


@dataclass(frozen=True, slots=True)
class Request:
    """That every worker is to keep what it holds below a tick, for somebody who wants it saved (R14)."""

    number: int
    """From 1; the larger, the newer."""
    tick: int
    """The global min time of the very notice that the request came with."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client: who it is."""

    incarnation: int
    worker: int | None
    """Its number in the life's register; None for one that only listens."""
    name: str
    """For people: a worker's name in the register, or what the subscriber is for."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The tracker's answer to `Hello`."""

    era: int
    applied: int
    """The last flush of this worker that was applied; later ones have to be sent (again)."""
    report: bool
    """Whether the tracker is being rebuilt and waits for this worker's `Absolute` before any flush."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Flushes of a worker up to this number have been applied and need not be kept."""

    worker: int
    number: int


@dataclass(frozen=True, slots=True)
class Subscribe:
    """From now on send notices; the first one says everything."""


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Send no notices any more."""


@dataclass(frozen=True, slots=True)
class Await:
    """What a subscriber waits for: notices may be late by `peer.HOLD_S` until one of these ticks was passed."""

    ticks: Mapping[int, int]
    """Segment -> tick: the subscriber waits for the segment's min time to be above it. Empty: it waits for nothing."""


@dataclass(frozen=True, slots=True)
class OpenFront:
    """Opens a front; the answer is `FrontOpened`, whose tick the register must have before the front's first label.

    Asking twice does no harm.
    """

    front: int
    floor: int
    """The tick below which it labels nothing anyway: above any `last`, and its floor if it is registered already."""
    feeds: tuple[int, ...] | None = None
    """The segments that its records go to; None for `Graph.sources`."""


@dataclass(frozen=True, slots=True)
class FrontOpened:
    """The front is open and labels nothing below ``tick``: at least its floor and any announced min time."""

    front: int
    tick: int


@dataclass(frozen=True, slots=True)
class CloseFront:
    """Closes a front for good, after the last flush that speaks of it. Asking twice does no harm."""

    front: int


@dataclass(frozen=True, slots=True)
class FrontClosed:
    """The front is closed."""

    front: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the tracker closes this connection after this message."""

    REFUSED = 1
    """This process has no place in the life that the tracker serves."""
    LIFE_ENDED = 2
    """The life is over, for the reason given."""
    PROTOCOL = 3
    """What this peer sent is not of the protocol."""

    code: int
    text: str


FromClient: TypeAlias = Hello | Flush | Absolute | Subscribe | Unsubscribe | Await | OpenFront | CloseFront
FromTracker: TypeAlias = Welcome | Applied | Notice | FrontOpened | FrontClosed | Fault
Message: TypeAlias = FromClient | FromTracker
