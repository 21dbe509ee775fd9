"""A store that is not Kafka, on the real thing: a job whose only sink is a SQLite file; its driver is killed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.flow_program import FlowProgram, orders
from tests.settings import settings_of
from tests.waiting import HANGS_S

from lowtide.api import Flow
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.flow.plan.flow_file import load_flow
from lowtide.sinks.kafka.lasts import topic_of

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
SINKS = """
from sqlite_sink import SqliteSink

orders.write("rows", SqliteSink("{file}", "orders", Order))
"""


class Job(FlowProgram):
    """The flow with a sink in SQLite."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: str) -> None:
        self.kafka, self.file = kafka, folder / "orders.db"
        settings = settings_of(kafka, zookeeper, folder, 8) | {"job.restarts": 0}
        super().__init__(folder, kafka, SINKS.format(file=self.file), settings)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the table, in the order of writing."""
        if not self.file.exists():
            return []
        with closing(sqlite3.connect(self.file, timeout=HANGS_S)) as db:
            tables = {name for (name,) in db.execute("select name from sqlite_master")}
            return db.execute('select * from "orders" order by rowid').fetchall() if "orders" in tables else []


@pytest.fixture
def job(kafka: Kafka, zookeeper: str, tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path, kafka, zookeeper)
    yield job
    job.close()


@pytest.mark.nightly
def test_a_job_with_one_sink_in_sqlite_writes_each_row_once_over_kills(job: Job) -> None:
    given = orders(3_000)
    for part in range(3):
        process = job.start()
        first = part * 1_000
        job.produce(given[first : first + 1_000])
        # In the middle of what was just written: some rows of it are there, others are not.
        job.have(first + (1_000 if part == 2 else 300), lambda: len(job.rows()))
        if part < 2:
            process.kill()
            process.wait(HANGS_S)
    rows, flow = job.rows(), load_flow(str(job.flow))
    assert isinstance(flow, Flow)
    order: Callable[..., Any] = flow.calls[0].step.source.format.record  # type: ignore[attr-defined]
    due = flow.run_locally(orders=[order(**each) for each in given])["rows"]
    assert len(rows) == len(given)
    for user in {each["user"] for each in given}:
        assert [row for row in rows if row[0] == user] == [
            (each.user, each.number, each.so_far) for each in due if each.user == user
        ]
    topics = Topics(Conf.load(None, {"kafka.bootstrap_servers": job.kafka.address}).kafka)
    assert topic_of(job.name) not in topics.names(), "a job without a sink in Kafka has no lasts topic"
    job.close()
    job.flow.write_text(re.sub(r"orders\.db", "other.db", job.flow.read_text()))
    refused = job.start()
    assert refused.wait(HANGS_S) != 0
    assert "which the flow no longer writes" in job.log.read_text()
