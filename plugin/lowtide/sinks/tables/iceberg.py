"""An Iceberg table: the position is a property of the table, set in the transaction that adds the rows.

Summaries of snapshots vanish when snapshots expire; properties stay. A transaction of properties alone would move no
branch, so nothing would refuse it after another commit: even the first one appends, if only nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from lowtide.sinks.errors import CatalogUnavailable, SchemaDiffers
from lowtide.sinks.staged.contract import Carriage
from lowtide.sinks.tables.carrier import Conflict, Position, first_line
from lowtide.sinks.tables.fit import missing_columns

RETRIES = "commit.retry.num-retries"


class Iceberg:
    """See `lowtide.sinks.tables.carrier.Table`.

    Args:
        name: The table's, with its namespaces.
        carriage: The sink; its settings are the catalog's properties.
    """

    def __init__(self, name: str, carriage: Carriage) -> None:
        self.place = f'Iceberg table "{name}"'
        self._name = name
        self._settings: Mapping[str, Any] = carriage.settings
        self._property = f"lowtide.{carriage.job}.{carriage.job_id}.{carriage.sink}.{carriage.generation}"
        self._catalog: Catalog
        self._table: Table

    def open(self, schema: pa.Schema) -> None:
        """Make the table if it is missing, and add columns that it lacks."""
        try:
            self._catalog = load_catalog(**self._settings)
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            table = self._catalog.create_table_if_not_exists(self._name, schema=schema)
            if missing_columns(self.place, table.schema().as_arrow(), schema):
                with table.update_schema() as update:
                    update.union_by_name(schema)
        except SchemaDiffers:
            raise
        except Exception as error:
            raise self._unavailable(error) from error

    def load(self) -> dict[int, int] | None:
        """Load the newest version."""
        try:
            self._table = self._catalog.load_table(self._name)
        except Exception as error:
            raise self._unavailable(error) from error
        text = self._table.properties.get(self._property)
        return None if text is None else {int(lane): offset for lane, offset in json.loads(text).items()}

    def versions(self) -> int | None:
        """Return how many snapshots have not expired."""
        try:
            return len(load_catalog(**self._settings).load_table(self._name).metadata.snapshots)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as error:
            raise self._unavailable(error) from error

    def append(self, rows: pa.Table, position: Position) -> None:
        """Commit to the version that was loaded."""
        # Of this handle alone, whatever others set: the library would commit a second time after another's commit. A
        # commit reloads the properties.
        self._table.metadata.properties[RETRIES] = "0"
        try:
            with self._table.transaction() as transaction:
                transaction.append(rows)
                transaction.set_properties({self._property: json.dumps(dict(position))})
        except Exception as error:
            # Whatever a catalog's client raises: it may have committed, which the position tells.
            raise Conflict(first_line(error)) from error

    def _unavailable(self, error: Exception) -> CatalogUnavailable:
        return CatalogUnavailable(
            f"cannot open {self.place}: {first_line(error)}",
            way_out="check the conf's [iceberg.NAME], that the catalog runs, and that the job may write the table",
        )
