"""A job that writes two tables of a real PostgreSQL: its driver is killed, its connections are, and the server is."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import unique
from tests.flow_program import USERS, FlowProgram, orders
from tests.postgres_server import PostgresServer
from tests.settings import settings_of
from tests.waiting import HANGS_S

from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.core.fronts.register import FrontRegister
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.flow_file import load_flow
from lowtide.local.oracle import read_sources
from lowtide.local.run import run_log
from lowtide.sinks.postgres.columns import ddl_of
from lowtide.sinks.postgres.names import lane_of
from lowtide_tracker.floors import Floor

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres, pytest.mark.slow]
PART = 1_500
TOPIC = """
orders.write("rows", lt.kafka("rows", lt.json(Order)))
"""
"""Of the same rows to a topic the oracle says which lane has which."""
SINKS = """
orders.write("rows", lt.postgres("{table}_rows", Order))
orders.write("users", lt.postgres("{table}_users", Order, key="user"))
"""


class Job(FlowProgram):
    """The flow with two tables."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: str, postgres: PostgresServer) -> None:
        self.table, self.postgres = unique("t").replace("-", "_"), postgres
        where = {f"postgres.default.{key}": value for key, value in postgres.settings.items()}
        settings = settings_of(kafka, zookeeper, folder, 12) | where | {"job.restarts": 3}
        super().__init__(folder, kafka, SINKS.format(table=self.table), settings)

    def rows(self) -> int:
        """Number of rows."""
        [(found,)] = self.postgres.ask(f"select count(*) from {self.table}_rows")
        return int(found)

    def make_tables(self) -> None:
        """Make both tables; rows that are only added get the number of their insertion, as a table has no order."""
        flow: Any = load_flow(str(self.flow))
        for call in flow.calls:
            if hasattr(call.step, "sink"):
                self.postgres.ask(ddl_of(call.step.sink.columns))
        self.postgres.ask(f"alter table {self.table}_rows add column place bigserial")

    def right(self) -> None:
        """See that both tables are what the flow gives on the log, the rows of each lane in its order and by the byte.

        A row counts as the bytes that `lt.json` makes of it. The order of records of two partitions rests on the
        floors that the job has kept in PostgreSQL beside its rows.
        """
        twin, conf = self.flow.with_name("twin.py"), Conf.load(None, self.settings)
        twin.write_text(self.flow.read_text().replace(SINKS.format(table=self.table), TOPIC))
        plan = compile_job(load_flow(str(twin)), conf)
        with ZooKeeperAccess.of(conf.zookeeper).store(self.name) as store:
            register = FrontRegister.from_json(store.fronts())
        fronts = {f"{entry.partition.source}-{entry.partition.partition}": entry.number for entry in register.entries}
        kept = self.postgres.ask("select front, from_offset, tick, cap from lowtide.floors where job = %s", self.name)
        floors = [*register.floors(), *(Floor(*each) for each in kept)]
        written, _ = run_log(plan, read_sources(conf.kafka, plan, fronts), floors)
        due, found = (defaultdict[int, list[bytes | None]](list) for _ in range(2))
        lanes, newest = dict[str, int](), dict[str, bytes | None]()
        for message in written["rows"]:
            user = json.loads(message.value or b"")["user"]
            due[message.lane].append(message.value)
            lanes[user], newest[user] = message.lane, message.value
        ((_, sink),) = plan.kafka_sinks()
        for row in self.postgres.ask(f'select "user", number, so_far from {self.table}_rows order by place'):
            found[lanes[row[0]]].append(sink.format.encode([sink.format.record(*row)])[0])
        assert found == due
        users = self.postgres.ask(f'select "user", number, so_far from {self.table}_users')
        assert {row[0]: sink.format.encode([sink.format.record(*row)])[0] for row in users} == newest
        assert len(users) == USERS


@pytest.fixture
def job(kafka: Kafka, zookeeper: str, tmp_path: Path, postgres: PostgresServer) -> Iterator[Job]:
    job = Job(tmp_path, kafka, zookeeper, postgres)
    yield job
    job.close()


def test_a_job_writes_its_tables_as_run_locally_does_over_kills_of_its_driver_and_of_postgres(job: Job) -> None:
    given = orders(4 * PART)
    job.make_tables()
    process = job.start()
    # In the middle of what was just written: some rows of it are there, others are not.
    job.produce(given[:PART])
    job.have(PART // 3, job.rows)
    process.kill()
    process.wait(HANGS_S)
    process = job.start()
    job.produce(given[PART : 2 * PART])
    job.have(PART + PART // 3, job.rows)
    for application in job.postgres.ask("select application_name from pg_stat_activity"):
        if str(application[0]).startswith(f"lowtide {job.name}"):
            job.postgres.ask(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", *application
            )
    job.produce(given[2 * PART : 3 * PART])
    job.have(2 * PART + PART // 3, job.rows)
    # As if the machine had gone down: the server goes on from its log.
    job.postgres.stop("immediate")
    job.produce(given[3 * PART :])
    job.postgres.start()
    job.have(len(given), job.rows)
    job.right()


def test_a_job_gets_more_lanes_and_workers_and_its_tables_stay_as_run_locally_says(job: Job) -> None:
    """What was delivered of a strand is so of those that its lanes are divided into; each life ends in mid-delivery."""
    given = orders(3 * PART)
    job.make_tables()
    settings = dict(job.settings)
    for number, (workers, lanes) in enumerate([(2, 2), (4, 8), (3, 8)]):
        if number == 1:
            job.grow(lanes)
        job.settings = {**settings, "job.parallelism": workers, "job.lanes": lanes}
        job.start()
        job.produce(given[number * PART : (number + 1) * PART])
        job.have(number * PART + PART // 3, job.rows)
        if number < 2:
            job.kill()
    job.have(len(given), job.rows)
    job.right()
    strands = job.postgres.ask("select lane from lowtide.lanes where job = %s and sink = 'rows'", job.name)
    assert {lane_of("rows", number).slice for (number,) in strands} == {
        *("hash units 0 to 63", "hash units 64 to 127"),
        *("hash units 0 to 31", "hash units 32 to 63", "hash units 64 to 95", "hash units 96 to 127"),
        *("hash units 0 to 47", "hash units 48 to 95", "hash units 96 to 127"),
    }
