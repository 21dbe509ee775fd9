"""A store in this process's memory: takes records and marks in one step, as a database does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lowtide.conf import Conf
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import LifeEnded
from lowtide.flow.formats.writable import Writable
from lowtide.flow.plan.plan import Vertex
from lowtide.sinks.contract import JobSinks, LaneName, Life, Packet, Stored
from lowtide_tracker import Floor


@dataclass
class Book:
    """The content of one ledger."""

    claims: dict[LaneName, int] = field(default_factory=dict)
    lasts: dict[LaneName, bytes] = field(default_factory=dict)
    floors: set[Floor] = field(default_factory=set)
    rows: list[tuple[str, Any]] = field(default_factory=list)
    """Each with its sink's name."""


BOOKS: dict[str, Book] = {}


@dataclass(frozen=True)
class LedgerSink:
    """A place in a ledger: `read(record)` of each record is kept."""

    book: str
    record: type
    key: str | None = None

    @property
    def store(self) -> str:
        return f"ledger:{self.book}"

    @property
    def place(self) -> str:
        return f"ledger {self.book}"

    @property
    def form(self) -> str:
        return "lines"

    @property
    def key_column(self) -> str | None:
        return self.key

    @property
    def by_key(self) -> bool:
        return self.key is not None

    @property
    def writable(self) -> Writable:
        return Writable()

    def faults(self) -> Sequence[str]:
        return []

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        return {}

    def encoder(self, vertex: Vertex, slack_ms: int) -> Lines:
        return Lines()

    def home(self, job: JobSinks, life: Life) -> LedgerHome:
        return LedgerHome(self.book, job, life)

    def way(self, job: JobSinks, life: Life) -> LedgerWay:
        return LedgerWay(self.book, life)


class Lines:
    def encode(self, lane: int, pieces: list[Piece]) -> Sequence[Any]:
        return [(row,) for piece in pieces for row in piece.rows]


class LedgerHome:
    def __init__(self, book: str, job: JobSinks, life: Life) -> None:
        self._name, self._job, self._life = book, job, life

    def open(self, known: str | None) -> str:
        BOOKS.setdefault(self._name, Book())
        return self._name

    def claim(self) -> None:
        claims = BOOKS[self._name].claims
        for lane in {*claims, *self._job.lane_names}:
            if claims.get(lane, 0) > self._life.incarnation:
                raise LifeEnded("a newer life has claimed the ledger")
            claims[lane] = self._life.incarnation

    def read(self) -> Stored:
        book = BOOKS[self._name]
        return Stored({lane: OrderKey.of(last) for lane, last in book.lasts.items() if last}, tuple(book.floors))

    def close(self) -> None:
        pass


class LedgerWay:
    def __init__(self, book: str, life: Life) -> None:
        self.end_by = 0.0
        self._name, self._life = book, life

    def open(self) -> None:
        self._life.check()

    def deliver(self, packets: Sequence[Packet]) -> None:
        book = BOOKS[self._name]
        for packet in packets:
            mark = packet.mark
            assert mark is not None
            known = book.lasts.get(mark.lane, b"")
            if book.claims.get(mark.lane) != self._life.incarnation or known != mark.before:
                raise LifeEnded(f"lane {mark.lane} is at {known!r}, not at {mark.before!r}")
            book.lasts[mark.lane] = mark.last
            book.floors |= set(mark.floors)
            book.rows += [(mark.lane.sink, row) for (row,) in packet.messages]

    def close(self) -> None:
        pass
