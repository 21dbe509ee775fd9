"""The three stores, as their readers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, Protocol

from orders_to_lake import Order
from s3_server import ACCESS, SECRET, S3Server
from tests.postgres_server import PostgresServer

Row = tuple[Any, ...]
SUM = "select count(*), sum(cents) / 100, count(distinct customer) from orders"
PER_CUSTOMER = "select customer, count(*), max(total_cents) from orders group by customer order by 3 desc limit 3"


class Rows(Protocol):
    """A store with rows.

    Attributes:
        what: What it has, in the plural.
        question: SQL that a reader may ask.
    """

    what: str
    question: str

    def due(self, orders: Sequence[Order]) -> int:
        """Return how many rows there will be."""

    def count(self) -> int:
        """Return how many rows readers see."""

    def rows(self) -> list[Row]:
        """Return all of them."""

    def wanted(self, due: Mapping[str, Sequence[Any]]) -> list[Row]:
        """Return what should be there, given what a local run writes."""

    def answer(self) -> str:
        """Return the answer to the question."""


class Totals:
    """The table in PostgreSQL."""

    what = "totals in PostgreSQL"
    question = "select customer, orders, cents from totals order by cents desc limit 3"

    def __init__(self, postgres: PostgresServer) -> None:
        self._postgres = postgres

    def due(self, orders: Sequence[Order]) -> int:
        return len({order.customer for order in orders})

    def count(self) -> int:
        return len(self.rows())

    def rows(self) -> list[Row]:
        return self._postgres.ask("select customer, orders, cents from totals")

    def wanted(self, due: Mapping[str, Sequence[Any]]) -> list[Row]:
        return list({total.customer: astuple(total) for total in due["to-database"]}.values())

    def answer(self) -> str:
        return "\n".join(f"  {row}" for row in self._postgres.ask(self.question))


def make_tables(postgres: PostgresServer, flow: Any) -> None:
    """Make the flow's tables in PostgreSQL, as `lowtide sinks ddl --apply` does."""
    from lowtide.sinks.postgres.columns import ddl_of

    for call in flow.calls:
        sink = getattr(call.step, "sink", None)
        if sink is not None and sink.store.startswith("postgres"):
            postgres.ask(ddl_of(sink.columns))


def make_bucket(s3: S3Server, name: str) -> None:
    """Make a bucket."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS,
        aws_secret_access_key=SECRET,
    )
    client.create_bucket(Bucket=name)


class Lake(Rows, Protocol):
    """Rows that DuckDB reads by Arrow."""

    def dataset(self) -> Any:
        """Return what it reads."""

    def due(self, orders: Sequence[Order]) -> int:
        return len(orders)

    def rows(self) -> list[Row]:
        return self.ask("select number, customer, cents, total_cents from orders")

    def answer(self) -> str:
        return "\n".join(f"  {row}" for row in self.ask(self.question))

    def ask(self, question: str) -> list[Row]:
        """Ask DuckDB."""
        import duckdb

        with duckdb.connect() as asked:
            asked.register("orders", self.dataset())
            return asked.execute(question).fetchall()


class Files(Lake):
    """The Parquet files: a reader takes what is there under its final name."""

    what = "orders in files"
    question = SUM

    def __init__(self, s3: S3Server) -> None:
        from pyarrow.fs import S3FileSystem

        self._files = S3FileSystem(
            access_key=ACCESS, secret_key=SECRET, endpoint_override=s3.endpoint, region="us-east-1"
        )
        self._rows: dict[str, int] = {}

    def names(self) -> list[str]:
        """Return the names of all files."""
        from pyarrow.fs import FileSelector

        found = self._files.get_file_info(FileSelector("lake/orders", recursive=True, allow_not_found=True))
        return sorted(each.path for each in found if each.path.endswith(".parquet"))

    def count(self) -> int:
        from pyarrow.parquet import read_metadata

        for name in self.names():
            if name not in self._rows:  # A file never changes.
                self._rows[name] = read_metadata(name, filesystem=self._files).num_rows
        return sum(self._rows.values())

    def wanted(self, due: Mapping[str, Sequence[Any]]) -> list[Row]:
        return [astuple(row) for row in due["to-files"]]

    def dataset(self) -> Any:
        from pyarrow import dataset

        return dataset.dataset(self.names(), filesystem=self._files, format="parquet")


class Table(Lake):
    """The Iceberg table: a reader takes its newest version."""

    what = "orders in the table"
    question = PER_CUSTOMER

    def __init__(self, catalog: Mapping[str, str]) -> None:
        self._catalog = catalog

    def count(self) -> int:
        table = self._table()
        snapshot = None if table is None else table.current_snapshot()
        return 0 if snapshot is None else int(snapshot.summary["total-records"])

    def wanted(self, due: Mapping[str, Sequence[Any]]) -> list[Row]:
        return [astuple(row) for row in due["to-table"]]

    def dataset(self) -> Any:
        return self._table().scan().to_arrow()

    def _table(self) -> Any:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return load_catalog(**self._catalog).load_table("lake.orders")
        except NoSuchTableError:
            return None
