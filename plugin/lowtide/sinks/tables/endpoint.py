"""Tables that a flow appends to: frozen values, no connection and no I/O."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import KAFKA
from lowtide.flow.formats.formats import JsonFormat
from lowtide.flow.formats.writable import Writable
from lowtide.flow.site import user_site
from lowtide.sinks.files.endpoint import Files
from lowtide.sinks.files.spelling import folder_of, within

if TYPE_CHECKING:
    import pyarrow as pa

    from lowtide.conf import Conf
    from lowtide.sinks.staged.contract import Carriage, Carrier
    from lowtide.sinks.tables.carrier import Kept

EVERY = timedelta(seconds=10)
LEAST_MS = 1_000
MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TableSink:
    """A table, and the dataclass of its rows.

    Attributes:
        table: Its name or location.
        record: The dataclass.
        commit_every_ms: The longest time that a row waits for its commit.
        connection: A table of the conf: the S3 server or the catalog.
    """

    table: str
    record: type
    commit_every_ms: int
    connection: str = "default"
    staged: ClassVar[bool] = True
    store: ClassVar[str] = KAFKA
    by_key: ClassVar[bool] = False
    kind: ClassVar[str] = ""

    @property
    def place(self) -> str:
        """The table, and its server or catalog."""
        where = "" if self.connection == "default" else f" of {self.connection}"
        return f'{self.kind} table "{self.table.rstrip("/")}"{where}'

    @property
    def form(self) -> str:
        """A row."""
        return f"a row of {self.table}"

    @property
    def key_column(self) -> str | None:
        """The column that is not in the value, but its key."""
        from lowtide.flow.schema.columns import columns_of

        return columns_of(self.record).key

    @property
    def writable(self) -> Writable:
        """Records that JSON can write: they are staged so."""
        return JsonFormat(self.record).writable

    @property
    def mark_every_ms(self) -> int:
        """As rows are committed: a lane without any says so as often."""
        return self.commit_every_ms

    def faults(self) -> Sequence[str]:
        """Return what is wrong with the fields, or with the time."""
        from lowtide.flow.schema.marks import fields_of
        from lowtide.flow.schema.schema import schema_of

        name = self.record.__qualname__
        found = [f"commit_every= is at least 1 s, found {self.commit_every_ms} ms"] * (self.commit_every_ms < LEAST_MS)
        for each in fields_of(self.record):
            if each.placed is not None and type(each.placed).__name__ != "Key":
                found.append(
                    f"{name}.{each.name} is marked lt.{type(each.placed).__name__}(), and tables have no such place"
                )
        for column in schema_of(self.record).arrow:
            if not self._holds(column.type):
                found.append(f"{self.kind} has no type for {name}.{column.name}, which is {column.type}")
        return found

    @abstractmethod
    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return what the library needs of the conf (errors: ConfError)."""

    @abstractmethod
    def client(self, carriage: Carriage) -> Kept:
        """Return the table; nothing is opened yet."""

    def carrier(self, carriage: Carriage) -> Carrier:
        """Return the table's committer."""
        from lowtide.sinks.tables.carrier import TableCarrier

        return TableCarrier(self.client(carriage), self.record, self.commit_every_ms / 1000, carriage)

    def _holds(self, _type: pa.DataType) -> bool:
        return True

    def __str__(self) -> str:
        return f"{self.place}, a commit each {timedelta(milliseconds=self.commit_every_ms)}"


@dataclass(frozen=True, slots=True)
class DeltaSink(TableSink):
    """A Delta table; `lt.delta` makes one."""

    kind: ClassVar[str] = "Delta"

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return the S3 server; credentials come in boto3's standard ways (errors: ConfError)."""
        from lowtide.sinks.files.access import settings_of

        return settings_of(conf, self.connection)

    def client(self, carriage: Carriage) -> Kept:
        """Return the table; nothing is opened yet."""
        from lowtide.sinks.tables.delta import Delta

        return Delta(self.table, carriage)

    @property
    def root(self) -> tuple[str, str]:
        """The table's folder, as `folder_of` gives it."""
        return folder_of(self.table, self.connection)

    def meets(self, other: object) -> bool:
        """Return whether one's folder is in the other's: clean-ups of a table delete files that it does not know."""
        if not isinstance(other, DeltaSink | Files):
            return False
        return within(self.root, other.root) or within(other.root, self.root)

    def faults(self) -> Sequence[str]:
        """Return what is wrong with the place, the fields, or the time."""
        found = [*TableSink.faults(self)]
        if not self.table.startswith(("s3://", "/", "file://")):
            found.append(f"a Delta table is in s3://... or an absolute folder, found {self.table!r}")
        return found

    def _holds(self, type_: pa.DataType) -> bool:
        """Delta has no time of day."""
        return "time64" not in str(type_)


@dataclass(frozen=True, slots=True)
class IcebergSink(TableSink):
    """An Iceberg table; `lt.iceberg` makes one."""

    kind: ClassVar[str] = "Iceberg"

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return the catalog's properties, secrets included (errors: ConfError)."""
        from lowtide.sinks.tables.access import catalog_settings

        return catalog_settings(conf, self.connection)

    def client(self, carriage: Carriage) -> Kept:
        """Return the table; nothing is opened yet."""
        from lowtide.sinks.tables.iceberg import Iceberg

        return Iceberg(self.table, carriage)

    def faults(self) -> Sequence[str]:
        """Return what is wrong with the name, the fields, or the time."""
        found = [*TableSink.faults(self)]
        if "." not in self.table or not all(self.table.split(".")):
            found.append(f'an Iceberg table has a namespace, as "lake.orders", found {self.table!r}')
        return found


def delta(table: str, record: type, *, commit_every: timedelta = EVERY, connection: str = "default") -> DeltaSink:
    """Name a Delta table to append to, exactly once; it is made if it is missing.

    Args:
        table: `s3://bucket/...`, or an absolute folder.
        record: The dataclass of its rows.
        commit_every: The longest time that a row waits for its commit, at least 1 s.
        connection: A table `[files.NAME]` of the conf, which has the S3 server if it is not Amazon's.

    Raises:
        FlowError: an argument is of another type.

    Example:
        >>> orders.write("table", lt.delta("s3://lake/orders", Order, commit_every=lt.seconds(10)))
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'table': [Order(user='ada', amount=5)]}
    """
    return DeltaSink(*_checked("delta", table, record, commit_every), connection)


def iceberg(table: str, record: type, *, commit_every: timedelta = EVERY, catalog: str = "default") -> IcebergSink:
    """Name an Iceberg table to append to, exactly once; it is made if it is missing.

    Args:
        table: Its name with its namespace.
        record: The dataclass of its rows.
        commit_every: The longest time that a row waits for its commit, at least 1 s.
        catalog: A table `[iceberg.NAME]` of the conf.

    Raises:
        FlowError: an argument is of another type.

    Example:
        >>> orders.write("table", lt.iceberg("lake.orders", Order, commit_every=lt.seconds(10)))
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'table': [Order(user='ada', amount=5)]}
    """
    return IcebergSink(*_checked("iceberg", table, record, commit_every), catalog)


def _checked(word: str, table: Any, record: Any, every: Any) -> tuple[str, type, int]:
    site = str(user_site())
    if not isinstance(table, str):
        raise FlowError(f"{word} takes the name of a table, found {table!r}", where=site)
    if not isinstance(record, type):
        raise FlowError(
            f"{word} takes the dataclass of a table's rows, found {record!r}",
            where=site,
            way_out=f"write lt.{word}({table!r}, Type)",
        )
    if not isinstance(every, timedelta):
        raise FlowError(
            f"commit_every= takes a length of time, found {every!r}", where=site, way_out="write lt.seconds(10)"
        )
    return table, record, every // MS
