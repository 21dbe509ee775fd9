"""A table that a flow writes: a frozen value, no connection and no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lowtide.errors import FlowError
from lowtide.flow.formats.writable import Writable
from lowtide.flow.site import user_site
from lowtide.sinks.postgres.names import LONGEST_BYTES, whole_name

if TYPE_CHECKING:
    from lowtide.conf import Conf
    from lowtide.flow.plan.plan import Vertex
    from lowtide.sinks.contract import Encoder, Home, JobSinks, Life, Way
    from lowtide.sinks.postgres.columns import Table


@dataclass(frozen=True, slots=True)
class Postgres:
    """A table, and the dataclass of its rows; `lt.postgres` makes one.

    Attributes:
        table: The table's name, perhaps with its schema before a dot.
        record: The dataclass.
        key: The column that identifies a row; None if rows are only added.
        deleted: The field that is true for a row to delete; None if none is deleted.
        connection: Which of the conf's connections.
        refused: True if rows that PostgreSQL refuses go to `lowtide.refused`, and the job goes on.
    """

    table: str
    record: type
    key: str | None = None
    deleted: str | None = None
    connection: str = "default"
    refused: bool = False

    @property
    def store(self) -> str:
        """The connection."""
        return f"postgres:{self.connection}"

    @property
    def place(self) -> str:
        """The table."""
        return f'table "{self.table}"'

    @property
    def form(self) -> str:
        """A row."""
        return f"a row of {self.table}"

    @property
    def key_column(self) -> str | None:
        """The key."""
        return self.key

    @property
    def by_key(self) -> bool:
        """True if later rows replace earlier ones."""
        return self.key is not None

    @property
    def writable(self) -> Writable:
        """Records that PostgreSQL can hold."""
        from lowtide.sinks.postgres.columns import writable_of

        return writable_of(self.record)

    def faults(self) -> Sequence[str]:
        """Return what is wrong with the key, or with the field that deletes."""
        from lowtide.flow.schema.schema import schema_of

        kinds, name = schema_of(self.record).kinds, self.record.__qualname__
        found = [
            f"a name in PostgreSQL has at most {LONGEST_BYTES} bytes, and {each!r} has {len(each.encode())}"
            for each in self.table.split(".")
            if len(each.encode()) > LONGEST_BYTES
        ]
        if self.key is not None:
            kind = kinds.get(self.key)
            if kind is None:
                found.append(f"{name} has no field {self.key!r}, which should be the key")
            elif not kind.can_be_key or kind.name.endswith("| None"):
                found.append(f"{self.key!r} cannot be a key: it is {kind.name}")
        if self.deleted is not None:
            gone = kinds.get(self.deleted)
            if self.key is None:
                found.append('deleted= needs mode="upsert": rows that are only added have no key to delete them by')
            if gone is None or gone.name != "bool":
                found.append(f"deleted= names a bool of {name}, found {self.deleted!r}")
        if set(kinds) == {self.deleted}:
            found.append(f"{name} has no field besides {self.deleted!r}")
        return found

    def meets(self, other: object) -> bool:
        """Return whether the tables are one, as far as their names tell; the start of a job asks the server."""
        return isinstance(other, Postgres) and whole_name(other.table) == whole_name(self.table)

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return libpq's parameters, the password included (errors: ConfError)."""
        from lowtide.sinks.postgres.access import settings_of

        return settings_of(conf, self.connection)

    def encoder(self, vertex: Vertex, slack_ms: int) -> Encoder:
        """Return what makes rows of records."""
        from lowtide.sinks.postgres.encoder import RowEncoder

        return RowEncoder(self.record)

    def home(self, job: JobSinks, life: Life) -> Home:
        """Return the database as the start of this life sees it."""
        from lowtide.sinks.postgres.home import PostgresHome

        return PostgresHome(job, life, _tables(job))

    def way(self, job: JobSinks, life: Life) -> Way:
        """Return the way of a host of this life."""
        from lowtide.sinks.postgres.way import PostgresWay

        return PostgresWay(job, life, _tables(job))

    @property
    def columns(self) -> Table:
        """The table as the sink needs it."""
        from lowtide.sinks.postgres.columns import table_for

        return table_for(self.table, self.record, self.key, self.deleted, refuses=self.refused)

    def __str__(self) -> str:
        how = f', by key "{self.key}"' if self.key is not None else ", added"
        how += ", refused rows aside" if self.refused else ""
        where = "" if self.connection == "default" else f" of {self.connection}"
        return f'postgres table "{self.table}"{where} as {self.record.__qualname__}{how}'


def postgres(
    table: str,
    record: type[Any],
    *,
    key: str | None = None,
    mode: Literal["upsert", "append"] | None = None,
    deleted: str | None = None,
    connection: str = "default",
    refused: bool = False,
    dsn: str | None = None,
) -> Postgres:
    """Name a PostgreSQL table to write to, each record once, also after any failure.

    Args:
        table: The table's name, perhaps with its schema before a dot. `lowtide sinks ddl` prints how to make it.
        record: The dataclass of the rows: a column for each field.
        key: The field that identifies a row, for upserts; the table needs a unique index on it.
        mode: "upsert" if a row replaces the one with its key, "append" if rows are only added; by default as `key`
            says.
        deleted: A bool field: a record with it true deletes the row with its key. The table has no such column.
        connection: A table `[postgres.NAME]` of the conf, which has the server and the login.
        refused: Put rows that PostgreSQL refuses, as by a check or a foreign key, into the table `lowtide.refused`
            with the reason. Without it such a row ends the job.
        dsn: Nothing: servers and logins are configuration.

    Raises:
        FlowError: an upsert has no key, or a server is named here.

    Example:
        >>> sink = lt.postgres("shop.orders", Order, key="user")
        >>> orders.write("kept", sink)
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'kept': [Order(user='ada', amount=5)]}
    """
    site = str(user_site())
    if dsn is not None:
        way_out = f"leave it out; servers and logins are configuration: [postgres.{connection}] of the conf"
        raise FlowError("postgres has no dsn=", where=site, way_out=way_out)
    if not all(table.split(".")) or table.count(".") > 1:
        raise FlowError(f"postgres takes a table's name, found {table!r}", where=site, way_out='write "schema.table"')
    if not hasattr(record, "__dataclass_fields__") or not callable(record):
        way_out = f"write lt.postgres({table!r}, Order, ...)"
        raise FlowError(f"postgres takes the dataclass of its rows, found {record!r}", where=site, way_out=way_out)
    if mode not in ("upsert", "append", None):
        raise FlowError(f'mode= takes "upsert" or "append", found {mode!r}', where=site)
    if mode == "upsert" and key is None:
        raise FlowError("an upsert needs a key", where=site, way_out='name the field that identifies a row: key="id"')
    if mode == "append" and key is not None:
        raise FlowError("rows that are only added need no key", where=site, way_out='leave out key= or mode="append"')
    return Postgres(table, record, key, deleted, connection, refused)


def _tables(job: JobSinks) -> dict[str, Table]:
    found = {}
    for name, sink in job.sinks.items():
        assert isinstance(sink, Postgres), "all sinks of a connection are tables"
        found[name] = sink.columns
    return found
