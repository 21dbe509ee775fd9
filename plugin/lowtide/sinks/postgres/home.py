"""PostgreSQL as the start of a life sees it: its tables, the lanes' claims, and what is durable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import LifeEnded, ServiceUnavailable
from lowtide.sinks.contract import JobSinks, Life, Stored
from lowtide.sinks.errors import LastsLost, of_another_job
from lowtide.sinks.postgres import tables
from lowtide.sinks.postgres.columns import Table
from lowtide.sinks.postgres.fit import refuse_other
from lowtide.sinks.postgres.line import Line, Lost, Refused, Unavailable, address_of, connected
from lowtide.sinks.postgres.names import application_of, lane_of, life_of, number_of
from lowtide_tracker import Floor

T = TypeVar("T")
RETRY_S = 0.1
LIMITS = """
    select set_config('lock_timeout', $1, true), set_config('statement_timeout', $1, true),
           set_config('synchronous_commit', 'on', true)
"""
OTHERS = """
    select pid, application_name from pg_stat_activity
    where datname = current_database() and usename = current_user and pid <> pg_backend_pid()
"""


class PostgresHome:
    """The store of a job's sinks of one connection; see `lowtide.sinks.contract.Home`.

    Args:
        job: The job and its sinks.
        life: Which is about to begin.
        sink_tables: The table of each sink.
    """

    def __init__(self, job: JobSinks, life: Life, sink_tables: Mapping[str, Table]) -> None:
        self._job, self._life, self._tables = job, life, sink_tables
        self._line: Line | None = None
        self._deadline = 0.0

    def open(self, known: str | None) -> str:
        """See that the tables are there and the job's own, and that those of the sinks fit.

        Raises:
            LastsLost: the job's row is gone, or of another store.
            LifeEnded: another job of this name uses it.
            SchemaDiffers: a table does not fit its sink.
            ServiceUnavailable: PostgreSQL does not answer in time.
        """
        found = self._until_done("open", lambda line: self._opened(line, known))
        self._until_done("describe the tables", lambda line: refuse_other(line, self._tables, self._where))
        return found

    def claim(self) -> None:
        """Claim all lanes for this life, unless a newer one has (errors: LifeEnded, ServiceUnavailable).

        Connections of older lives are ended first, as a claim waits for the locks that they hold.
        """
        self._until_done("grant the lanes", self._claimed)

    def read(self) -> Stored:
        """Return all that is durable; nothing if the tables are not there."""
        return self._until_done("say what is durable", self._stored)

    def close(self) -> None:
        """Close the connection."""
        if self._line is not None:
            self._line.close()

    @property
    def _where(self) -> str:
        return address_of(self._job.settings)

    def _opened(self, line: Line, known: str | None) -> str:
        job, owner = self._job.job, self._job.job_id
        with self._transaction(line):
            if line.ask(tables.THERE) != [(True,)]:
                line.ask(tables.LOCK)
                for statement in tables.MAKE:
                    line.ask(statement)
            if known is None:
                line.ask("insert into lowtide.jobs (job, owner) values ($1, $2) on conflict do nothing", (job, owner))
            found = line.ask(tables.JOB, (job,))
        if not found:
            raise self._lost("is gone")
        [(identity, owned_by)] = found
        if owned_by != owner:
            rows = "the job's rows in lowtide.jobs, lanes and floors once no job writes them"
            raise of_another_job(f'the row of job "{job}" in lowtide.jobs', self._where, rows)
        if known is not None and identity != known:
            raise self._lost(f"has been replaced by another: its id is {identity}, not {known}")
        return str(identity)

    def _claimed(self, line: Line) -> None:
        job, names, mine = self._job, self._job.lane_names, self._life.incarnation
        for pid, application in line.ask(OTHERS):
            life = life_of(application or "", job.job)
            if life is not None and life < mine:
                # Without the right to do so, the claim waits for the other's end.
                with suppress(Refused):
                    line.ask("select pg_terminate_backend($1::int)", (pid,))
        lanes = [name.sink for name in names], [number_of(name) for name in names]
        with self._transaction(line):
            line.ask(tables.CLAIM_EARLIER, (job.job, job.generation, mine))
            line.ask(tables.CLAIM, (job.job, job.generation, mine, *lanes))
        newest = max((claim for _, _, claim, _ in line.ask(tables.LANES, (job.job, job.generation))), default=mine)
        if newest > mine:
            raise LifeEnded(
                f"life {newest} of the job has claimed the lanes that this life, {mine}, is to deliver",
                where=self._where,
                way_out="nothing: the newer life is running",
            )

    def _stored(self, line: Line) -> Stored:
        if line.ask(tables.MARKED) != [(True,)]:
            return Stored({})
        lanes = line.ask(tables.LANES, (self._job.job, self._job.generation))
        floors = line.ask(tables.FLOORS, (self._job.job,))
        last = {lane_of(sink, lane): OrderKey.of(last) for sink, lane, _, last in lanes if last}
        return Stored(last, tuple(Floor(*floor) for floor in floors))

    @contextmanager
    def _transaction(self, line: Line) -> Iterator[None]:
        """Do what is inside in one transaction, durable once it has ended."""
        limit_ms = str(max(1, int(self._life.limit_s * 900)))
        line.ask("begin")
        try:
            line.ask(LIMITS, (limit_ms,))
            yield
            line.ask("commit")
        except Lost:
            raise
        except BaseException:
            line.ask("rollback")
            raise

    def _until_done(self, what: str, do: Callable[[Line], T]) -> T:
        """Do something, and again as long as that may help."""
        self._deadline = time.monotonic() + self._life.limit_s
        while True:
            try:
                if self._line is None:
                    name = application_of(self._job.job, self._life.incarnation)
                    self._line = connected(self._job.settings, name, self._life.limit_s, lambda: self._deadline)
                return do(self._line)
            except Unavailable as error:
                if isinstance(error, Lost) and self._line is not None:
                    self._line.close()
                    self._line = None
                if time.monotonic() + RETRY_S > self._deadline:
                    raise self._unavailable(what, error) from error
                time.sleep(RETRY_S)
            except Refused as error:
                raise self._unavailable(what, error) from error

    def _unavailable(self, what: str, error: Any) -> ServiceUnavailable:
        way_out = "check that it runs and takes writes, and [postgres] of the conf; then start the job again"
        if isinstance(error, Refused):
            way_out = (
                "give the job's user the right to create the schema lowtide, or run `lowtide sinks ddl` as one who "
            )
            way_out += "has it, and the rights that it prints"
        return ServiceUnavailable(
            f"PostgreSQL did not {what} within {self._life.limit_s:g} s: {error}", where=self._where, way_out=way_out
        )

    def _lost(self, what: str) -> LastsLost:
        return LastsLost(
            f'the row of job "{self._job.job}" in lowtide.jobs, which holds what it has delivered, {what}',
            where=self._where,
            way_out="starting without it would deliver everything again: restore the database, or run the flow under "
            "another name and with new tables",
        )
