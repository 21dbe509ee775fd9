"""A job that writes files and tables in folders and a real S3: driver and carriers die, each row is there once."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest
from s3_server import ENVIRONMENT, S3Server
from tests.flow_program import FlowProgram, orders
from tests.settings import settings_of
from tests.waiting import HANGS_S, wait_until

from lowtide.conf import Conf
from lowtide.flow.plan.flow_file import load_flow
from lowtide.sinks.files.access import settings_of as files_settings
from lowtide.sinks.tables.access import catalog_settings, storage_options
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import StoreSetting, open_store

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.s3, pytest.mark.slow]
PART = 1_000
SINKS = """
place = "{folder}/dt={{tick:%Y-%m-%d}}/hour={{tick:%H}}/"
minutes = "{bucket}/dt={{tick:%Y-%m-%d}}/hour={{tick:%H}}/minute={{tick:%M}}/"
orders.write("rows", lt.files(place, lt.parquet(Order), roll=lt.seconds(3)))
orders.write("lines", lt.files(place + "lines/", lt.json_lines(Order), roll=lt.seconds(3)))
orders.write("objects", lt.files(minutes, lt.parquet(Order), roll=lt.seconds(10)))
orders.write("delta", lt.delta("{delta}", Order, commit_every=lt.seconds(1)))
orders.write("iceberg", lt.iceberg("lake.orders", Order, commit_every=lt.seconds(1)))
"""
Row = tuple[Any, ...]


class Job(FlowProgram):
    """The flow with two kinds of files in one folder, files and a Delta table in a bucket, and an Iceberg table."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: str, s3: S3Server) -> None:
        self.lake, place = folder / "lake", f"s3://{s3.make_bucket()}"
        bucket, self._delta = f"{place}/lake", f"{place}/delta"
        self.bucket = open_store(StoreSetting(bucket, endpoint=s3.endpoint))
        settings = settings_of(kafka, zookeeper, folder, 12) | {"files.default.endpoint": s3.endpoint}
        settings |= {f"iceberg.default.{name}": value for name, value in catalog_of(folder).items()}
        settings |= {"job.restarts": 3, "job.lanes": 2}
        sinks = SINKS.format(folder=self.lake, bucket=bucket, delta=self._delta)
        super().__init__(folder, kafka, sinks, settings)
        self._zookeeper = zookeeper

    def rows(self, suffix: str = ".parquet") -> list[Row]:
        """The rows of all files in the folder that readers see, as DuckDB reads them."""
        found = [path for path in self.lake.glob(f"**/*{suffix}") if not path.name.startswith((".", "_"))]
        paths = [str(path) for path in found if "_lowtide" not in path.parts]
        if not paths:
            return []
        read = "read_parquet" if suffix == ".parquet" else "read_json_auto"
        query = f'select "user", number, so_far from {read}($1, hive_partitioning = false)'
        return duckdb.execute(query, [paths]).fetchall()

    def objects(self) -> list[str]:
        """The names of all files in the bucket."""
        return [entry.name for entry in self.bucket.names("dt=") if entry.name.endswith(".parquet")]

    def rows_of_objects(self) -> list[Row]:
        """The rows of all files in the bucket."""
        return [row for name in self.objects() for row in rows_of(pq.read_table(io.BytesIO(self.bucket.get(name))))]

    def rows_of_delta(self) -> list[Row]:
        """The rows of the Delta table's last version; none before there is a table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        options = storage_options(self._delta, files_settings(self.conf, "default"))
        try:
            return rows_of(DeltaTable(self._delta, storage_options=options).to_pyarrow_table())
        except TableNotFoundError:
            return []

    def rows_of_iceberg(self) -> list[Row]:
        """The rows of the Iceberg table's last snapshot; none before there is a table."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        catalog = load_catalog(**catalog_settings(self.conf, "default"))
        try:
            return rows_of(catalog.load_table("lake.orders").scan().to_arrow())
        except NoSuchTableError:
            return []

    @property
    def conf(self) -> Conf:
        """The conf of the job."""
        return Conf.load(None, self.settings)

    def complete(self) -> dict[str, int]:
        """The rows of each minute of the bucket that is complete, by its end."""
        names = [entry.name for entry in self.bucket.names("dt=") if entry.name.endswith(".done.json")]
        found = [json.loads(self.bucket.get(name)) for name in names]
        return {each["to"]: each["rows"] for each in found}

    def delivered_ms(self) -> int:
        """The time before which all is delivered, as Airflow sees it."""
        with JobStore(self._zookeeper, self.name) as place:
            record, tick = place.record(), place.published()
        return 0 if record is None or tick is None else tick * record.slack_ms


def catalog_of(folder: Path) -> dict[str, str]:
    """An Iceberg catalog in a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def rows_of(table: Any) -> list[Row]:
    return [(row["user"], row["number"], row["so_far"]) for row in table.to_pylist()]


@pytest.fixture
def job(kafka: Kafka, zookeeper: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    job = Job(tmp_path, kafka, zookeeper, s3)
    yield job
    job.close()
    job.bucket.close()


def period_of(name: str) -> int:
    """The first log time of a file's period."""
    return int(name.rpartition("/")[2].split("-")[2])


def test_each_row_is_in_files_and_tables_once_over_kills_of_driver_and_carriers(job: Job) -> None:
    """In between the job gets more lanes: what was staged before, and was in no file or table yet, is there, too."""
    given = orders(4 * PART)
    process = job.start()
    job.produce(given[:PART])
    job.have(PART // 3, lambda: len(job.rows()))
    tables = (job.rows_of_delta, job.rows_of_iceberg)
    for read in (job.rows_of_objects, *tables):
        job.have(PART // 3, lambda read=read: len(read()))  # type: ignore[misc]
    job.produce(given[PART : PART + PART // 2])
    process.kill()
    process.wait(HANGS_S)
    job.grow(8)
    job.start()
    job.produce(given[PART + PART // 2 : 2 * PART])
    job.have(PART + PART // 3, lambda: len(job.rows()))
    wait_until(lambda: len(job.carriers()) == 5, HANGS_S, "all carriers run")
    for carrier in job.carriers():
        os.kill(carrier, signal.SIGKILL)
    job.produce(given[2 * PART : 3 * PART])
    job.have(2 * PART + PART // 3, lambda: len(job.rows()))
    job.produce(given[3 * PART :])
    flow: Any = load_flow(str(job.flow))
    order: Any = flow.calls[0].step.source.format.record
    due = flow.run_locally(orders=[order(**each) for each in given])
    wanted = sorted((each.user, each.number, each.so_far) for each in due["rows"])
    readers: list[Callable[[], list[Row]]] = [job.rows, lambda: job.rows(".jsonl"), job.rows_of_objects, *tables]
    for read in readers:
        job.have(len(given), lambda read=read: len(read()))  # type: ignore[misc]
        assert sorted(read()) == wanted
    # A minute that is delivered is complete (R21).
    end_ms = max(map(period_of, job.objects())) // 60_000 * 60_000 + 60_000
    wait_until(lambda: job.delivered_ms() >= end_ms, 60 + HANGS_S, "the last minute is delivered")
    complete = job.complete()
    assert max(complete) >= datetime.fromtimestamp(end_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
    assert sum(complete.values()) == len(given)
