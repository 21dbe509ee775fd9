"""Appends staged records to a table: rows and the position in the log in one commit, by one committer per table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from lowtide.errors import LowtideError
from lowtide.sinks.errors import CatalogUnavailable, CommitConflict, LastsLost
from lowtide.sinks.staged.arrow import ArrowRows
from lowtide.sinks.staged.contract import Carriage, Progress, StagedRow

PENDING_BYTES = 64 << 20
"""Bytes, as JSON, at which a commit does not wait any longer."""
OPENS = 4
"""Tries to open a table: no library makes catalogs, tables and columns beside another that does the same."""
TRIES = 8
RETRY_S = 0.2
"""The first pause between two tries of a commit; it doubles."""

Position = Mapping[int, int]
"""By lane the offset after the last row that the table has."""


class Conflict(Exception):
    """Another committer was first, or nobody knows: the position tells."""


def first_line(error: Exception) -> str:
    """Return what a library says, without the trace that may follow."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


class Table(Protocol):
    """A table, as its committer sees it. All calls but `close` may raise LowtideError.

    Attributes:
        place: Its name, for errors.
    """

    place: str

    def open(self, schema: pa.Schema) -> None:
        """Make the table if it is missing; hold its columns against the schema (errors: SchemaDiffers)."""

    def load(self) -> dict[int, int] | None:
        """Load its newest version, and return the position that it has; None if this sink has not written it yet."""

    def append(self, rows: pa.Table, position: Position) -> None:
        """Append to the version that was loaded, and only to it, together with the position (errors: Conflict)."""


class Kept(Table, Protocol):
    """A table that says how many versions it keeps; for `lowtide doctor`."""

    def versions(self) -> int | None:
        """Return how many, and make nothing; None where there is no table yet."""


@dataclass(slots=True)
class _Lane:
    """Rows and marks of one lane that are not committed.

    Attributes:
        committed: The offset after its last row in the table.
        rows: Its rows after that.
        mark_ms: Its newest mark.
        visible_ms: Its newest mark before which all rows are committed.
    """

    committed: int
    rows: list[StagedRow] = field(default_factory=list)
    mark_ms: int | None = None
    visible_ms: int | None = None


class TableCarrier:
    """See `lowtide.sinks.staged.contract.Carrier`.

    The lanes of a sink share one committer: commits of their own would be in each other's way. A commit is made on the
    version of the table from which the position was read, and the table refuses it if another one came first. Then the
    position says whose: if it is where it was, a stranger's (a compaction, say), and the commit is made again; if it is
    where this commit would have moved it, its own; else another carrier's, and this one starts over.

    Args:
        table: The table.
        record: The dataclass of the rows.
        commit_every_s: How long rows wait for a commit.
        carriage: The sink.
    """

    def __init__(self, table: Table, record: type, commit_every_s: float, carriage: Carriage) -> None:
        self._table = table
        self._columns = ArrowRows(record)
        self._every_s = commit_every_s
        self._sink = carriage.sink
        self._lanes: dict[int, _Lane] = {}
        self._bytes = 0
        self._due_s: float | None = None
        self._counts: Counter[str] = Counter()

    def open(self, kept: Mapping[int, int]) -> Mapping[int, int]:
        """Make the table or look at it, and return its position."""
        self._open()
        position = self._table.load()
        if position is None:
            self._refuse_replaced(kept)
            position = self._begun(kept)
        if position.keys() - kept.keys():
            # Its next commit would forget these lanes.
            raise self._conflict("it has rows of more lanes than this carrier knows: a life with all of them has begun")
        if behind := [lane for lane, offset in kept.items() if position.get(lane, 0) < offset]:
            raise LastsLost(
                f"{self._table.place} has fewer rows than the job has committed: lane {behind[0]} is at offset "
                f"{position.get(behind[0], 0)}, and was at {kept[behind[0]]}",
                where=f'sink "{self._sink}"',
                way_out="restore the version that the job has committed last; or give the job another name and the "
                "sink another table",
            )
        self._lanes = {lane: _Lane(position.get(lane, 0)) for lane in kept}
        return {lane: state.committed for lane, state in self._lanes.items()}

    def take(self, lane: int, rows: Sequence[StagedRow]) -> None:
        """Note a lane's rows for the next commit."""
        if rows:
            self._lanes[lane].rows += rows
            self._bytes += sum([len(row.value) for row in rows])

    def mark(self, lane: int, time_ms: int) -> None:
        """Note that a lane is complete below a time, which counts once the rows before are committed."""
        state = self._lanes[lane]
        state.mark_ms = time_ms
        if not state.rows:
            state.visible_ms = time_ms

    def settle(self, now_s: float) -> None:
        """Commit if rows have waited for long enough, or are many (errors: CommitConflict)."""
        if not any(state.rows for state in self._lanes.values()):
            return
        if self._due_s is None:
            self._due_s = now_s + self._every_s
        if now_s < self._due_s and self._bytes < PENDING_BYTES:
            return
        self._commit()
        self._due_s, self._bytes = None, 0

    def progress(self) -> Mapping[int, Progress]:
        """Return by lane the position in the table: the log is needed from there."""
        return {lane: Progress(state.committed, state.visible_ms) for lane, state in self._lanes.items()}

    def counts(self) -> Mapping[str, int]:
        """Return its commits: committed, found as their answer was lost, and refused as another one came first."""
        return dict(self._counts)

    def close(self) -> None:
        """Nothing is held."""

    def _open(self) -> None:
        """Open the table; what another carrier makes at the same moment is there at the next try."""
        for _ in range(OPENS - 1):
            try:
                return self._table.open(self._columns.schema)
            except CatalogUnavailable:
                time.sleep(RETRY_S)
        return self._table.open(self._columns.schema)

    def _refuse_replaced(self, kept: Mapping[int, int]) -> None:
        if any(kept.values()):
            raise LastsLost(
                f"{self._table.place} has been replaced: it does not know of the rows that the job has committed to it",
                where=f'sink "{self._sink}"',
                way_out="restore the table; or give the job another name and the sink another table",
            )

    def _begun(self, kept: Mapping[int, int]) -> dict[int, int]:
        """Write down where the sink begins: a table without that later is another one."""
        last = ""
        for _ in range(TRIES):
            try:
                self._table.append(self._columns.schema.empty_table(), kept)
            except Conflict as conflict:
                last = str(conflict)
                time.sleep(RETRY_S)
            if (position := self._table.load()) is not None:
                return position
        raise self._conflict(f"its first commit was refused each time, the last time: {last}")

    def _commit(self) -> None:
        batches = [self._columns.batch(state.rows) for _, state in sorted(self._lanes.items()) if state.rows]
        rows = pa.Table.from_batches(batches, self._columns.schema)
        before = {lane: state.committed for lane, state in self._lanes.items()}
        after = {
            lane: state.rows[-1].offset + 1 if state.rows else state.committed for lane, state in self._lanes.items()
        }
        self._append(rows, before, after)
        for lane, state in self._lanes.items():
            state.committed, state.visible_ms = after[lane], state.mark_ms
            state.rows.clear()

    def _append(self, rows: pa.Table, before: Position, after: Position) -> None:
        wait_s, last = RETRY_S, ""
        for _ in range(TRIES):
            try:
                self._table.append(rows, after)
            except Conflict as conflict:
                last = str(conflict)
            else:
                self._counts["commits committed"] += 1
                return
            time.sleep(wait_s)
            wait_s *= 2
            position = self._position()
            if position == after:
                self._counts["commits found"] += 1
                return
            self._counts["commits refused"] += 1
            if position != before:
                raise self._conflict("another carrier has moved its position, which is as right: this one starts over")
        raise self._conflict(f"it was refused {TRIES} times, the last time: {last}")

    def _position(self) -> Position | None:
        """Load the newest version, and return its position; of lanes that the job has got since it is 0."""
        position = self._table.load()
        return None if position is None else dict.fromkeys(self._lanes, 0) | position

    def _conflict(self, why: str) -> LowtideError:
        return CommitConflict(
            f"cannot commit to {self._table.place}: {why}",
            where=f'sink "{self._sink}"',
            way_out="nothing if that is rare; else see to what it says, or compact the table less often",
        )
