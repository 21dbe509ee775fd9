"""The contract between a job and the stores that it writes: what a store has to do for the output to be exactly once.

A host hands a store *packets*: the records of one *strand*, the lanes of one worker in one order, and the strand's
*mark*, which has to become durable in the same step (R13). The next life claims the store, reads the marks, and
continues after them. Two rules make that safe:

- after a claim nothing of an earlier life becomes durable (W10)
- a delivery names the claim and the strand's mark before it, and the store compares both in the step that writes: a
  request that was lost on its way and arrives after the same records were delivered again writes nothing (R19)

A life with other workers, or with more lanes, has other strands. A strand has a name that says all of its hash units,
so its mark means the same in each life; what earlier strands have delivered of a lane is the furthest of their marks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from lowtide.conf import Conf
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey
from lowtide.flow.formats.endpoints import Sink
from lowtide.flow.plan.plan import Vertex
from lowtide_tracker import Floor

__all__ = [
    "Delivery",
    "Direct",
    "Encoder",
    "Home",
    "JobSinks",
    "LaneName",
    "Life",
    "Mark",
    "Packet",
    "Sinks",
    "Stored",
    "Way",
    "lane_name",
    "strand_name",
]


@dataclass(frozen=True, slots=True, order=True)
class LaneName:
    """The name of a lane, the same in all lives of a job; or of a strand, the lanes that one worker delivers as one.

    Attributes:
        level: Level of the workers that deliver dead letters; 0 for a sink, which keeps its lanes at any level.
        sink: The sink's name, "" for the dead letters of the level.
        lane: Its number in the sink; of dead letters at level 0 the front. Of a strand its first hash unit.
        end: Of a strand the hash unit after its last one; 0 for a lane.
    """

    level: int
    sink: str
    lane: int
    end: int = 0

    @property
    def slice(self) -> str:
        """The slice of the output, as in "lane 3" or "hash units 64 to 127"."""
        return f"hash units {self.lane} to {self.end - 1}" if self.end else f"lane {self.lane}"

    def has(self, name: LaneName, units: range) -> bool:
        """Return whether what is delivered of this one is so of a lane with these hash units, too."""
        if not self.end:
            return self == name
        same = (self.level, self.sink) == (name.level, name.sink)
        return same and self.lane <= units.start and units.stop <= self.end


def lane_name(sink: Vertex | None, level: int, lane: int) -> LaneName:
    """Return the name of a sink's lane; of a lane of the level's dead letters if no sink is given."""
    return LaneName(level, "", lane) if sink is None else LaneName(0, sink.name, lane)


def strand_name(sink: Vertex | None, level: int, units: range) -> LaneName:
    """Return the name of a strand with these hash units; arguments else as of `lane_name`."""
    return replace(lane_name(sink, level, units.start), end=units.stop)


@dataclass(frozen=True, slots=True)
class Mark:
    """Position that becomes durable together with the records of a packet, or not at all.

    Attributes:
        lane: The lane's name.
        last: The packed order key up to which the lane is delivered once the packet is; empty for none.
        before: The lane's `last` before; a store writes nothing if it has another one (R19).
        floors: The floors that the records rest on and that the lane has not been given yet.
        covered: Floors that the store may have and does not need beside these.
    """

    lane: LaneName
    last: bytes
    before: bytes = b""
    floors: Sequence[Floor] = ()
    covered: Sequence[Floor] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """A bundle on its way into a store.

    Attributes:
        sink: The sink's vertex; below 0 for dead letters.
        lane: The lane.
        messages: The bundle's records in order, as the store's encoder made them; none if only the mark is new.
        mark: The lane's mark; None if the store keeps none, and so delivers at least once.
        leads: Whether what was put after it may rest on it: it is in the next delivery, however much there is.
    """

    sink: int
    lane: int
    messages: Sequence[Any]
    mark: Mark | None = None
    leads: bool = False


class Encoder(Protocol):
    """Makes of records what a store's way takes; runs in the worker, for each bundle."""

    def encode(self, lane: int, pieces: list[Piece]) -> Sequence[Any]:
        """Return the records of a lane's pieces in order, each a tuple, whose texts and bytes count as its size.

        Raises:
            NotWritable: the store cannot take a record, though `Sink.writable` let it pass.
        """


class Way(Protocol):
    """A way of making packets durable; all of it runs in a thread of its own, the courier's.

    Attributes:
        end_by: The time (monotonic, in s) at which whatever is under way has to be given up.
    """

    end_by: float

    def open(self) -> None:
        """Get ready for the first packet: connect, and check that this life is still the one (errors: LowtideError)."""

    def deliver(self, packets: Sequence[Packet]) -> None:
        """Return when all of these are durable (errors: LowtideError; then any of them may be or may not be)."""

    def close(self) -> None:
        """Give back what `open` took; called once, also after an error."""


class Sinks(Protocol):
    """The sinks, as one worker sees them."""

    def put(self, packet: Packet, /) -> None:
        """Take a packet."""

    def durable(self) -> list[tuple[int, int]]:
        """Return the (sink, lane) of its packets that became durable since the last call."""


class Delivery(Protocol):
    """One store, as a host sees it; only `close` waits."""

    def put(self, *packets: Packet) -> None:
        """Take packets, which go together."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `durable` has news."""

    def durable(self) -> list[tuple[int, int]]:
        """Return the (sink, lane) of packets that became durable since (errors: what ended the delivery)."""

    @property
    def queued(self) -> int:
        """Records that were put and are not durable."""

    def gauges(self) -> dict[str, Any]:
        """Return counts since the beginning."""

    def close(self, timeout_s: float) -> int:
        """Deliver what was put, as far as it can be done in time, and return how many records were left."""


@dataclass(frozen=True, slots=True)
class JobSinks:
    """The sinks of one job in one store.

    Attributes:
        job: The job's name.
        job_id: The job's id for good: another job of that name has another one.
        generation: Output generation: each delivers everything again, and has marks of its own.
        lanes: Number of lanes of each sink.
        sinks: The sinks by name.
        settings: What `Direct.settings` returned.
        strands: The hash units of each strand of this life; empty where each lane goes by itself.
    """

    job: str
    job_id: str
    generation: int
    lanes: int
    sinks: Mapping[str, Sink]
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    strands: tuple[range, ...] = ()

    @property
    def lane_names(self) -> list[LaneName]:
        """The names under which this life delivers: of all strands, or lanes."""
        named = [(units.start, units.stop) for units in self.strands] or [(lane, 0) for lane in range(self.lanes)]
        return [LaneName(0, sink, first, end) for sink in sorted(self.sinks) for first, end in named]


@dataclass(frozen=True, slots=True)
class Life:
    """One host of one life of a job.

    Attributes:
        incarnation: The life's number, larger than that of each life before; it is the claim.
        holder: Name of the host, for people.
        limit_s: How long the store may take for one delivery.
        check: Raises if this life is not the job's newest; ask after a claim (W10).
    """

    incarnation: int
    holder: str
    limit_s: float
    check: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Stored:
    """Contents of a store that are durable.

    Attributes:
        last: By strand the order key up to which it is delivered; those without a delivery are missing.
        floors: The floors that the records rest on.
    """

    last: Mapping[LaneName, OrderKey]
    floors: tuple[Floor, ...] = ()


class Home(Protocol):
    """A store as the start of a life sees it. The calls come in this order; each may raise ServiceUnavailable."""

    def open(self, known: str | None) -> str:
        """See that the store is the one it was, and make there what the job needs.

        Args:
            known: What an earlier life's call returned; None if none has.

        Returns:
            The store's identity: one that is made again has another. Of one that is restored to a time before, the
            marks tell: they are older than the job's snapshot.

        Raises:
            LastsLost: the store, or what it kept of the job, is gone or another one.
            FlowError: a table does not fit its sink.
        """

    def claim(self) -> None:
        """Claim all strands for this life, and those that lives before it had: their names are in the store.

        Once it returns, nothing of an older life can become durable (W10).

        Raises:
            LifeEnded: a newer life has claimed them.
        """

    def read(self) -> Stored:
        """Return all that is durable: complete only after `claim`, but any time may ask, also without `open`."""

    def close(self) -> None:
        """Give back what was opened; called once, also after an error."""


class Direct(Sink, Protocol):
    """A sink whose store takes records, marks and claims in one step; a frozen value, equal ones are the same place."""

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return what `home` and `way` need of the conf, secrets included; the same for all sinks of a store."""

    def encoder(self, vertex: Vertex, slack_ms: int) -> Encoder:
        """Return the encoder of the sink's records."""

    def home(self, job: JobSinks, life: Life) -> Home:
        """Return the store as the start of this life sees it; all sinks of the store are in `job`."""

    def way(self, job: JobSinks, life: Life) -> Way:
        """Return the way of a host of this life; all sinks of the store are in `job`."""
