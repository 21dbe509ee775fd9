"""A Delta table: one application transaction per lane, in the commit that adds the rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from lowtide.sinks.errors import CatalogUnavailable
from lowtide.sinks.files.carrier import store_of
from lowtide.sinks.staged.contract import Carriage
from lowtide.sinks.tables.access import storage_options
from lowtide.sinks.tables.carrier import Conflict, Position, first_line
from lowtide.sinks.tables.fit import missing_columns


class Delta:
    """See `Table`.

    Args:
        location: The table's folder, or `s3://...`.
        carriage: The sink.
    """

    def __init__(self, location: str, carriage: Carriage) -> None:
        self.place = f'Delta table "{location}"'
        self._location = location
        self._settings: Mapping[str, Any] = carriage.settings
        self._lanes = range(carriage.lanes)
        self._app = f"lowtide/{carriage.job}/{carriage.job_id}/{carriage.sink}/{carriage.generation}"
        self._table: DeltaTable
        self._columns: pa.Schema

    def open(self, schema: pa.Schema) -> None:
        """Make the table if it is missing, and add columns that it lacks."""
        options = storage_options(self._location, self._settings)
        try:
            DeltaTable.create(self._location, schema=schema, mode="ignore", storage_options=options)
            there = pa.schema(self._loaded().schema().to_arrow())
            if lacks := missing_columns(self.place, there, schema):
                wider = pa.schema([*there, *lacks])
                write_deltalake(self._loaded(), wider.empty_table(), mode="append", schema_mode="merge")
        except (DeltaError, OSError) as error:
            raise self._unavailable(error) from error

    def load(self) -> dict[int, int] | None:
        """Load the newest version."""
        try:
            table = self._table = self._loaded()
            self._columns = pa.schema(table.schema().to_arrow())
            versions = {lane: table.transaction_version(self._lane(lane)) for lane in self._lanes}
        except (DeltaError, TableNotFoundError, OSError) as error:
            raise self._unavailable(error) from error
        found = {lane: version for lane, version in versions.items() if version is not None}
        return found or None

    def versions(self) -> int | None:
        """Return how many entries the log has that no clean-up has removed."""
        with closing(store_of(self._location, self._settings)) as store:
            return sum(each.name.endswith(".json") for each in store.names("_delta_log/")) or None

    def append(self, rows: pa.Table, position: Position) -> None:
        """Commit to the version that was loaded."""
        moves = [Transaction(self._lane(lane), offset) for lane, offset in position.items()]
        # deltalake would commit a second time after another's commit.
        commit = CommitProperties(app_transactions=moves, max_commit_retries=0)
        try:
            # deltalake takes no rows that lack a column, as one that another writer has added.
            rows = pa.concat_tables([self._columns.empty_table(), rows], promote_options="default")
            write_deltalake(self._table, rows, mode="append", commit_properties=commit)
        except (CommitFailedError, DeltaError, OSError) as error:
            raise Conflict(first_line(error)) from error

    def _loaded(self) -> DeltaTable:
        return DeltaTable(self._location, storage_options=storage_options(self._location, self._settings))

    def _lane(self, lane: int) -> str:
        return f"{self._app}/{lane}"

    def _unavailable(self, error: Exception) -> CatalogUnavailable:
        return CatalogUnavailable(
            f"cannot open {self.place}: {first_line(error)}",
            way_out="check that the place is there, and that the job may read and write it; [files.NAME] names the "
            "S3 server",
        )
