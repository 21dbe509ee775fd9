"""The way of a host into PostgreSQL: one statement per sink and delivery, once whatever happens to it (R19)."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from lowtide.core.operators.order.order import position_of
from lowtide.errors import LifeEnded, LowtideError, RecordRefused, ServiceUnavailable
from lowtide.sinks.contract import JobSinks, Life, Packet
from lowtide.sinks.errors import SchemaDiffers
from lowtide.sinks.postgres.columns import Table
from lowtide.sinks.postgres.line import Line, Lost, Refused, Unavailable, address_of, connected
from lowtide.sinks.postgres.names import application_of, lane_of
from lowtide.sinks.postgres.sifting import LaneRow, sifted
from lowtide.sinks.postgres.statement import Claim, Lane, lanes_of, parameters_of

RETRY_S = 0.05
SHOWN = 300
"""Characters of a row in an error."""
LOOK = """
    select lane, claim, last from lowtide.lanes
    where job = $1 and generation = $2 and sink = $3 and lane = any($4::int[]) order by lane for update
"""


class PostgresWay:
    """Delivers each lane's rows, mark and floors together, or not at all.

    A statement whose outcome is unknown, as its connection is gone, is looked for: a lane whose mark is the new one has
    become durable; one whose mark is the old one is delivered again, and should the first statement come still, it
    finds another mark than it names, and writes nothing.

    Args:
        job: The job and its sinks.
        life: Who delivers.
        tables: The table of each sink.

    Attributes:
        retries: How often something was tried again, by SQLSTATE, "no answer" for a lost connection.
        refused: Rows set aside, by sink.
        trouble: Why it takes nothing now; empty while it does.
    """

    def __init__(self, job: JobSinks, life: Life, tables: Mapping[str, Table]) -> None:
        self.end_by = math.inf
        self._job, self._life, self._tables = job, life, tables
        # Beside this limit a lock's wait ends first, so that the error says what it waited for.
        self._claim = Claim(job.job, job.generation, life.incarnation, max(1, int(life.limit_s * 900)))
        self.retries: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.trouble = ""
        self._line: Line | None = None
        self._deadline = math.inf

    def open(self) -> None:
        """Connect, and then see that this life is still the newest: the driver has claimed the lanes for it."""
        self._deadline = time.monotonic() + self._life.limit_s
        self._connected("connect")
        self._life.check()

    def deliver(self, packets: Sequence[Packet]) -> None:
        """Return when all of these are durable.

        Raises:
            LifeEnded: a newer life has claimed the lanes.
            RecordRefused: PostgreSQL does not take a row.
            SchemaDiffers: it does not take the statement.
            ServiceUnavailable: it has not taken it in time.
        """
        self._deadline = time.monotonic() + self._life.limit_s
        for sink, lanes in lanes_of(packets).items():
            self._durable(sink, lanes)

    def close(self) -> None:
        """Close the connection."""
        if self._line is not None:
            self._line.close()

    def _durable(self, sink: str, lanes: dict[int, Lane]) -> None:
        """Deliver a sink's lanes, and those again that were not, until all are durable."""
        table = self._tables[sink]
        while lanes:
            what = f'take a delivery of "{sink}"'
            try:
                delivered = {lane for (lane,) in self._ask(*parameters_of(self._claim, sink, table, lanes))}
            except Unavailable as error:
                self._pause(what, error)
                delivered = set()
            except Refused as error:
                if not (table.refuses and error.of_data):
                    raise self._refused(error, sink, lanes) from error
                lanes = sifted(lanes, table, partial(self._tried, sink, lanes))
                continue
            left = {number: lane for number, lane in lanes.items() if number not in delivered}
            if left:
                left = self._looked_for(sink, left)
            if refused := sum(len(lane.refused) for number, lane in lanes.items() if number not in left):
                self.refused[sink] += refused
            lanes = left

    def _tried(self, sink: str, lanes: Mapping[int, Lane], rows: Sequence[LaneRow]) -> Refused | None:
        """Return why PostgreSQL refuses some of the rows, as `_fault`, again and again while that may help."""
        while True:
            try:
                return self._fault(sink, lanes, rows)
            except Unavailable as error:
                self._pause(f'try rows of "{sink}"', error)

    def _looked_for(self, sink: str, lanes: dict[int, Lane]) -> dict[int, Lane]:
        """Return the lanes that have to be delivered again (errors: LifeEnded)."""
        asked = (self._job.job, self._job.generation, sink, list(lanes))
        while True:
            try:
                found = {lane: (claim, last) for lane, claim, last in self._ask(LOOK, asked)}
                break
            except Unavailable as error:
                self._pause("say what is durable", error)
            except Refused as error:
                raise self._wrong(error, sink) from error
        again = {}
        for number, lane in lanes.items():
            claim, last = found.get(number, (None, b""))
            if claim == self._life.incarnation and last == lane.before:
                again[number] = lane
            elif claim != self._life.incarnation or last != lane.last:
                raise self._ended(sink, number, claim)
        return again

    def _ask(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        line = self._line if self._line is not None else self._connected("connect")
        try:
            answer = line.ask(statement, parameters)
            self.trouble = ""
            return answer
        except Lost:
            self._line = None
            line.close()
            raise

    def _connected(self, what: str) -> Line:
        name = application_of(self._job.job, self._life.incarnation)
        while True:
            try:
                self._line = connected(self._job.settings, name, self._life.limit_s, self._end_by)
                return self._line
            except Lost as error:
                self._pause(what, error)

    def _end_by(self) -> float:
        return min(self._deadline, self.end_by)

    def _pause(self, what: str, error: Unavailable) -> None:
        """Wait a moment (errors: ServiceUnavailable once time is up)."""
        if time.monotonic() + RETRY_S > self._end_by():
            raise ServiceUnavailable(
                f"PostgreSQL did not {what} within {self._life.limit_s:g} s: {error}",
                where=address_of(self._job.settings),
                way_out="check that it runs and takes writes, and that nobody holds a lock on the table; the job "
                "continues from its last snapshot: nothing is lost or duplicated",
            ) from error
        self.retries[error.state or "no answer"] += 1
        self.trouble = f"{address_of(self._job.settings)}: {error}"
        time.sleep(RETRY_S)

    def _ended(self, sink: str, lane: int, claim: int | None) -> LifeEnded:
        if claim is not None and claim > self._life.incarnation:
            what = f"life {claim} of the job has claimed"
        else:
            what = "another program has changed"
        return LifeEnded(
            f'{what} {lane_of(sink, lane).slice} of "{sink}", which this life, {self._life.incarnation}, delivers',
            where=address_of(self._job.settings),
            way_out="nothing if another life is running; else start the job again: nothing is lost or duplicated",
        )

    def _wrong(self, error: Refused, sink: str) -> SchemaDiffers:
        return SchemaDiffers(
            f'sink "{sink}": PostgreSQL refuses the statement: {error} ({error.state})',
            where=f"{address_of(self._job.settings)}, table {self._tables[sink].name}",
            way_out="give the table the columns and the job's user the rights that `lowtide sinks ddl` prints",
        )

    def _refused(self, error: Refused, sink: str, lanes: Mapping[int, Lane]) -> LowtideError:
        """Return the error that names the row that PostgreSQL refuses."""
        if not error.of_data:
            return self._wrong(error, sink)
        found = None
        with suppress(Unavailable):
            found = self._culprit(sink, lanes)
        at = self._table_row(sink, found) if found is not None else ""
        return RecordRefused(
            f'sink "{sink}", table {self._tables[sink].name}: PostgreSQL refuses a row: {error}'
            + (f" ({error.state})" if error.state else ""),
            where=f"{address_of(self._job.settings)}{at}",
            way_out="correct the step before the sink, or the table's constraint, and start the job again; with "
            "refused=True such rows go to lowtide.refused",
        )

    def _culprit(self, sink: str, lanes: Mapping[int, Lane]) -> tuple[Any, ...] | None:
        """Return the last row of the shortest beginning that PostgreSQL refuses; O(log rows) statements."""
        rows = [(number, row) for number, lane in lanes.items() for row in lane.rows]
        low, high = 0, len(rows)
        while low < high:
            middle = (low + high) // 2
            if self._fault(sink, lanes, rows[: middle + 1]) is not None:
                high = middle
            else:
                low = middle + 1
        return rows[low][1] if low < len(rows) else None

    def _fault(self, sink: str, lanes: Mapping[int, Lane], rows: Sequence[LaneRow]) -> Refused | None:
        """Return why PostgreSQL refuses some of the rows, None if it does not; nothing of it stays."""
        trial = {
            number: Lane(number, lane.before, lane.last, [], [], [row for of, row in rows if of == number])
            for number, lane in lanes.items()
        }
        self._ask("begin", ())
        try:
            self._ask(*parameters_of(self._claim, sink, self._tables[sink], trial))
            self._ask("set constraints all immediate", ())
        except Refused as error:
            return error if error.of_data else None
        finally:
            self._ask("rollback", ())
        return None

    def _table_row(self, sink: str, row: tuple[Any, ...]) -> str:
        names = [column.name for column in self._tables[sink].columns]
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(names, row[1:], strict=True))
        return f", record at {position_of(row[0])}: {shown[:SHOWN]}"
