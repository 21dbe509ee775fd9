"""Stores that a flow passes records on to, by name, and what their readers count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import lowtide as lt
from lowtide.conf import Conf
from lowtide_bench.record import Sample

__all__ = ["KAFKA", "OUTLETS", "PACED", "PACED_ROLL", "POSTGRES", "STORES", "WRITTEN", "Store", "table_of"]

KAFKA, POSTGRES, PACED = "kafka", "postgres", "paced"
WRITTEN = "sent_ns > 0"
"""Of rows in PostgreSQL: that the job has written them, and not the bench before it."""
PACED_ROLL, ROLL, COMMIT_EVERY = timedelta(seconds=5), timedelta(seconds=10), timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Store:
    """A store under measurement.

    Attributes:
        title: What it is called in tables.
        sink: Returns the sink for a place: a folder of its own, whose name is also that of topic, table or keys.
        rows: Returns how many rows readers see there.
        staged: Whether records are staged in Kafka on their way.
    """

    title: str
    sink: Callable[[str], Any]
    rows: Callable[[Conf, str], int]
    staged: bool = True


def table_of(place: str) -> str:
    """Return the name of a place's table."""
    return Path(place).name.replace("-", "_")


def _minutes_in(place: str, format_: Any, roll: timedelta) -> Any:
    """Return a sink of files with a folder for each minute."""
    return lt.files(f"{place}/minute={{tick:%Y%m%d%H%M}}/", format_, roll=roll)


def _passing(store: Store) -> Callable[[str, str, str], lt.Flow]:
    """Return what makes the flow that passes records on into a store, through one exchange."""

    def make(name: str, source: str, place: str) -> lt.Flow:
        flow = lt.Flow(name)
        flow.read("source", lt.kafka(source, lt.json(Sample))).key_by("sequence").write("sink", store.sink(place))
        return flow

    return make


def _paced(name: str, source: str, place: str) -> lt.Flow:
    """Return the flow that passes records on into files and into a table at once."""
    flow = lt.Flow(name)
    records = flow.read("source", lt.kafka(source, lt.json(Sample))).key_by("sequence")
    records.write("files", _minutes_in(place, lt.parquet(Sample), PACED_ROLL))
    records.write("rows", lt.postgres(table_of(place), Sample))
    return flow


def _in_kafka(conf: Conf, place: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "rows", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 2}
    consumer = Consumer({"bootstrap.servers": conf.kafka.bootstrap_servers, **settings})
    topic, rows = Path(place).name, 0
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    open_ends = set(partitions)
    while open_ends:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                rows += 1
            else:
                open_ends.discard(message.partition())
    consumer.close()
    return rows


def _in_parquet(_: Conf, place: str) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in Path(place).rglob("*.parquet"))


def _in_lines(_: Conf, place: str) -> int:
    return sum(path.read_bytes().count(b"\n") for path in Path(place).rglob("*.jsonl"))


def _in_delta(_: Conf, place: str) -> int:
    from deltalake import DeltaTable

    return int(DeltaTable(place).to_pyarrow_table(columns=["sequence"]).num_rows)


def _in_iceberg(conf: Conf, place: str) -> int:
    from pyiceberg.catalog import load_catalog

    from lowtide.sinks.tables.access import catalog_settings

    catalog = load_catalog(**catalog_settings(conf, "default"))
    return int(catalog.load_table(f"bench.{table_of(place)}").scan().count())


def _in_redis(conf: Conf, place: str) -> int:
    from lowtide.sinks.puts.redis import redis_of

    client = redis_of().Redis.from_url(conf.redis["default"].url)
    return sum(1 for _ in client.scan_iter(f"{table_of(place)}:*", 10_000))


def _in_postgres(conf: Conf, place: str) -> int:
    from lowtide_bench.outlets.servers import asked

    [(rows,)] = asked(conf, f"select count(*) from {table_of(place)} where {WRITTEN}")  # noqa: S608 - own names
    return int(rows)


STORES: Mapping[str, Store] = {
    KAFKA: Store("Kafka", lambda at: lt.kafka(Path(at).name, lt.json(Sample)), _in_kafka, staged=False),
    "parquet": Store("files, Parquet", lambda at: _minutes_in(at, lt.parquet(Sample), ROLL), _in_parquet),
    "lines": Store("files, JSON lines", lambda at: _minutes_in(at, lt.json_lines(Sample), ROLL), _in_lines),
    "delta": Store("Delta", lambda at: lt.delta(at, Sample, commit_every=COMMIT_EVERY), _in_delta),
    "iceberg": Store(
        "Iceberg", lambda at: lt.iceberg(f"bench.{table_of(at)}", Sample, commit_every=COMMIT_EVERY), _in_iceberg
    ),
    "redis": Store("Redis", lambda at: lt.puts(table_of(at), Sample, key="sequence", put=lt.redis()), _in_redis),
    POSTGRES: Store(
        "PostgreSQL, upserts", lambda at: lt.postgres(table_of(at), Sample, key="sequence"), _in_postgres, staged=False
    ),
}

OUTLETS: Mapping[str, Callable[[str, str, str], lt.Flow]] = {
    PACED: _paced,
    **{name: _passing(store) for name, store in STORES.items()},
}
"""By name what makes a flow for a job's name, a topic and a place."""
