"""Sinks in stores with transactions: a store of one's own says how it connects, compares and writes, and no more.

    @dataclass(frozen=True)
    class SqliteSink(TransactionalSink):
        file: str
        table: str
        record: type

        def connect(self, settings, limit_s):
            return Database(self.file, limit_s)
        ...

The job's state in the store is a few bytes under names, in groups: `Connection.read` and `swap` are all that it takes.
Claims, marks and floors (`lowtide.sinks.contract`) are kept there, each strand's claim and mark under one name: a claim
and a delivery both swap it, and so one of the two sees the other, whatever the store's isolation is.
"""

from __future__ import annotations

import math
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from lowtide.conf import Conf
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import LifeEnded, ServiceUnavailable
from lowtide.flow.formats.writable import Writable
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.schema import schema_of
from lowtide.sinks.contract import Encoder, Home, JobSinks, LaneName, Life, Mark, Packet, Stored, Way
from lowtide.sinks.errors import LastsLost, of_another_job
from lowtide_tracker import Floor

__all__ = ["Connection", "RowEncoder", "TransactionalHome", "TransactionalSink", "TransactionalWay"]

STORE = ""
"""The group of what belongs to no job."""
CLAIM_BYTES = 8
LANES = ("lane", "strand")
"""The first words of the names of what is kept by lane, as by earlier versions, and by strand."""
RETRY_S = 0.05


class Connection(Protocol):
    """An open connection to a store; one thread uses it, and may not be the one that opened it.

    It keeps values under names, in groups: of SQL one table, `(part, name, value)`, the first two its primary key,
    which is there from `connect` on.
    """

    def make(self, sink: Any, /) -> None:
        """Make what a sink writes to, if it is not there; or see that it takes the sink's records (errors: FlowError).

        Called at each start, in no transaction.
        """

    def transaction(self) -> AbstractContextManager[None]:
        """Return a transaction: what is done in it is durable at its end, or none of it if anything raises."""

    def read(self, part: str, /) -> Mapping[str, bytes]:
        """Return the values of a group by name."""

    def swap(self, part: str, name: str, before: bytes | None, value: bytes, /) -> bool:
        """Set a value if it is `before`, None for one that is not there; return whether it was.

        Comparing and writing are one step of the store: of SQL one statement.
        """

    def write(self, sink: Any, records: Sequence[Any], /) -> None:
        """Write a sink's records, as its encoder has made them, in order."""

    def close(self) -> None:
        """Close it."""


class TransactionalSink(ABC):
    """A sink whose store has transactions; inherit it as a frozen dataclass with a field `record`.

    Attributes:
        record: The dataclass of the records that it takes.
        key_column: The column that tells which records belong together; None for none.
        by_key: True if later records of a key replace earlier ones: then they all come through one lane.
        writable: Records that can be written.
        errors: The client's own: they mean that nobody knows whether the store has done what it was asked.
    """

    key_column: ClassVar[str | None] = None
    by_key: ClassVar[bool] = False
    writable: ClassVar[Writable] = Writable()
    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)

    if TYPE_CHECKING:

        @property
        def record(self) -> type:
            """A field of the heir's: a property here would be its default."""

    @property
    @abstractmethod
    def store(self) -> str:
        """The store's name, as "sqlite:/srv/orders.db": sinks of one store share its connections and transactions."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Place in the store, as "table orders"."""

    @abstractmethod
    def connect(self, settings: Mapping[str, Any], limit_s: float) -> Connection:
        """Connect to the store; any of its sinks may be asked.

        Args:
            settings: What `settings` returned.
            limit_s: How long any call may take.
        """

    @property
    def form(self) -> str:
        """A row of its fields."""
        return f"a row of {self.record.__qualname__}"

    def faults(self) -> Sequence[str]:
        """Return why the flow cannot write there; by default nothing is wrong."""
        return []

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return what `connect` needs of the conf, secrets included; by default nothing."""
        return {}

    def encoder(self, vertex: Vertex, slack_ms: int) -> Encoder:
        """Return what makes a tuple of each record's fields; give another one for another form."""
        return RowEncoder(self.record)

    def home(self, job: JobSinks, life: Life) -> Home:
        """Return the store as the start of a life sees it."""
        return TransactionalHome(job, life)

    def way(self, job: JobSinks, life: Life) -> Way:
        """Return the way of a host of this life."""
        return TransactionalWay(job, life)


class RowEncoder:
    """Makes a tuple of each record, its fields in order.

    Args:
        record: The records' dataclass.
    """

    def __init__(self, record: type) -> None:
        names = list(schema_of(record).kinds)
        values = attrgetter(*names)
        self._row: Callable[[Any], tuple[Any, ...]] = values if len(names) > 1 else lambda record: (values(record),)

    def encode(self, lane: int, pieces: list[Piece]) -> Sequence[Any]:
        """Return the tuples of a lane's records."""
        return [self._row(record) for piece in pieces for record in piece.rows]


class _Store:
    """The job, the life and the connection of a home or a way."""

    def __init__(self, job: JobSinks, life: Life) -> None:
        self._job, self._life = job, life
        self._sinks = cast("Mapping[str, TransactionalSink]", job.sinks)
        self._any = next(iter(self._sinks.values()))
        self._open: Connection | None = None

    @property
    def _connection(self) -> Connection:
        if self._open is None:
            self._open = self._any.connect(self._job.settings, self._life.limit_s)
        return self._open

    @contextmanager
    def _asking(self, what: str) -> Iterator[Connection]:
        """Say of the client's errors what was being done."""
        try:
            yield self._connection
        except self._any.errors as error:
            raise ServiceUnavailable(
                f"{self._any.store} did not {what}: {error}",
                where=self._any.place,
                way_out="check that it runs and takes writes; then start the job again, which reads what is durable",
            ) from error

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()


class TransactionalHome(_Store):
    """A store at the start of a life; see `lowtide.sinks.contract.Home`."""

    def open(self, known: str | None) -> str:
        """Make what is missing; the id tells this store from another of its name, the owner this job."""
        job = self._job
        with self._asking("open") as store:
            for sink in self._sinks.values():
                store.make(sink)
            with store.transaction():
                if known is None:
                    store.swap(STORE, "id", None, uuid.uuid4().hex.encode())
                    store.swap(job.job, "owner", None, job.job_id.encode())
                found, owner = store.read(STORE).get("id"), store.read(job.job).get("owner")
        if found is None or owner is None or known not in (None, found.decode()):
            raise LastsLost(
                f"{self._any.store} is not the store that the job has delivered to",
                where=self._any.place,
                way_out="starting without what it kept would deliver everything again: restore it, or run the flow "
                "under another name and with a new place",
            )
        if owner != job.job_id.encode():
            raise of_another_job(f'"{job.job}" in {self._any.store}', self._any.place, "what it keeps of that job")
        return found.decode()

    def claim(self) -> None:
        """Claim all lanes that the job has or ever had, unless a newer life has one (errors: LifeEnded)."""
        deadline = time.monotonic() + self._life.limit_s
        while not self._claimed():
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"{self._any.store} did not grant the lanes within {self._life.limit_s:g} s: others write them",
                    where=self._any.place,
                    way_out="end the processes of the job's earlier lives; then start it again",
                )
            time.sleep(RETRY_S)

    def read(self) -> Stored:
        """Return the marks and floors."""
        with self._asking("say what is durable") as store, store.transaction():
            found = store.read(self._job.job)
        last, floors = {}, []
        for name, value in found.items():
            kind, *words = name.split("/")
            if kind in LANES and int(words[0]) == self._job.generation and len(value) > CLAIM_BYTES:
                last[LaneName(0, words[1], *map(int, words[2:]))] = OrderKey.of(value[CLAIM_BYTES:])
            elif kind == "floor":
                front, offset, tick, cap = map(int, words)
                floors.append(Floor(front, offset, tick, bool(cap)))
        return Stored(last, tuple(floors))

    def _claimed(self) -> bool:
        """Claim all lanes, or none: False if a delivery came between."""
        job, mine = self._job.job, self._life.incarnation
        try:
            with self._asking("grant the lanes") as store, store.transaction():
                found = {name: value for name, value in store.read(job).items() if name.partition("/")[0] in LANES}
                newest = max([int.from_bytes(value[:CLAIM_BYTES], "big") for value in found.values()], default=mine)
                if newest > mine:
                    raise LifeEnded(
                        f"life {newest} of the job has claimed the lanes that this life, {mine}, is to deliver",
                        where=self._any.store,
                        way_out="nothing: the newer life is running",
                    )
                for name in sorted(found.keys() | {_name(self._job, lane) for lane in self._job.lane_names}):
                    before = found.get(name)
                    if not store.swap(job, name, before, _value(mine, (before or b"")[CLAIM_BYTES:])):
                        raise _OvertakenError
        except _OvertakenError:
            return False
        return True


class TransactionalWay(_Store):
    """A host's way into a store; see `lowtide.sinks.contract.Way`."""

    def __init__(self, job: JobSinks, life: Life) -> None:
        super().__init__(job, life)
        self.end_by = math.inf

    def open(self) -> None:
        """Connect, and see that this life is still the one."""
        with self._asking("connect"):
            pass
        self._life.check()

    def deliver(self, packets: Sequence[Packet]) -> None:
        """Write all packets in one transaction, each if its lane is where its mark says (errors: LifeEnded)."""
        with self._asking("take a delivery") as store, store.transaction():
            # Lanes in one order, as a claim takes them too: locks of their values are no deadlock.
            for packet in sorted(packets, key=self._place):
                assert packet.mark is not None, "this store keeps marks"
                self._move(store, packet.mark)
                if packet.messages:
                    store.write(self._sinks[packet.mark.lane.sink], packet.messages)

    def _place(self, packet: Packet) -> str:
        return "" if packet.mark is None else _name(self._job, packet.mark.lane)

    def _move(self, store: Connection, mark: Mark) -> None:
        job, mine = self._job.job, self._life.incarnation
        if not store.swap(job, _name(self._job, mark.lane), _value(mine, mark.before), _value(mine, mark.last)):
            raise LifeEnded(
                f'another life has claimed {mark.lane.slice} of sink "{mark.lane.sink}", or has delivered to it',
                where=self._any.store,
                way_out="nothing if another life is running; else start the job again: nothing is lost or duplicated",
            )
        for floor in mark.floors:
            store.swap(job, f"floor/{floor.front}/{floor.offset}/{floor.tick}/{int(floor.cap)}", None, b"")


class _OvertakenError(Exception):
    """A lane has moved since it was read."""


def _name(job: JobSinks, lane: LaneName) -> str:
    if lane.end:
        return f"strand/{job.generation}/{lane.sink}/{lane.lane}/{lane.end}"
    return f"lane/{job.generation}/{lane.sink}/{lane.lane}"


def _value(claim: int, last: bytes) -> bytes:
    return claim.to_bytes(CLAIM_BYTES, "big") + last
