"""A job that writes two tables of a real PostgreSQL: its driver is killed, its connections are, and the server is."""

from __future__ import annotations

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
from lowtide.driver.growth import grow
from lowtide.flow.plan.flow_file import load_flow
from lowtide.sinks.postgres.columns import ddl_of
from lowtide.sinks.postgres.names import lane_of

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres, pytest.mark.slow]
PART = 1_500
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

    def grow(self, lanes: int) -> None:
        """Give the job more lanes, once no life of it holds its lease."""
        conf = Conf.load(None, {key: value for key, value in self.settings.items() if key != "job.lanes"})
        with ZooKeeperAccess.of(conf.zookeeper).store(self.name) as store:
            frozen = store.record()
            assert frozen is not None
            grow(store, frozen, lanes, conf, lambda _: None)

    def rows(self) -> int:
        """Number of rows."""
        [(found,)] = self.postgres.ask(f"select count(*) from {self.table}_rows")
        return int(found)


@pytest.fixture
def job(kafka: Kafka, zookeeper: str, tmp_path: Path, postgres: PostgresServer) -> Iterator[Job]:
    job = Job(tmp_path, kafka, zookeeper, postgres)
    yield job
    job.close()


def test_a_job_writes_its_tables_as_run_locally_does_over_kills_of_its_driver_and_of_postgres(job: Job) -> None:
    given = orders(4 * PART)
    flow: Any = load_flow(str(job.flow))
    for call in flow.calls:
        if hasattr(call.step, "sink"):
            job.postgres.ask(ddl_of(call.step.sink.columns))
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
    order: Any = flow.calls[0].step.source.format.record
    due = flow.run_locally(orders=[order(**each) for each in given])
    rows = job.postgres.ask(f'select "user", number, so_far from {job.table}_rows')
    assert sorted(rows) == sorted((each.user, each.number, each.so_far) for each in due["rows"])
    users = job.postgres.ask(f'select "user", number, so_far from {job.table}_users')
    assert len(users) == USERS
    assert {row[0]: row for row in users} == {each.user: (each.user, each.number, each.so_far) for each in due["users"]}


def test_a_job_gets_more_lanes_and_workers_and_its_tables_stay_as_run_locally_says(job: Job) -> None:
    """What was delivered of a strand is so of those that its lanes are divided into; each life ends in mid-delivery."""
    given = orders(3 * PART)
    flow: Any = load_flow(str(job.flow))
    for call in flow.calls:
        if hasattr(call.step, "sink"):
            job.postgres.ask(ddl_of(call.step.sink.columns))
    settings = dict(job.settings)
    for number, (workers, lanes) in enumerate([(2, 2), (4, 8), (3, 8)]):
        job.settings = {**settings, "job.parallelism": workers, "job.lanes": lanes}
        if number == 1:
            job.grow(lanes)
        job.start()
        job.produce(given[number * PART : (number + 1) * PART])
        job.have(number * PART + PART // 3, job.rows)
        if number < 2:
            job.kill()
    job.have(len(given), job.rows)
    order: Any = flow.calls[0].step.source.format.record
    due = flow.run_locally(orders=[order(**each) for each in given])
    # A table that is only added to has its rows in the order of their insertion.
    rows = job.postgres.ask(f'select "user", number, so_far from {job.table}_rows order by ctid')
    for user in {each.user for each in due["rows"]}:
        expected = [(each.user, each.number, each.so_far) for each in due["rows"] if each.user == user]
        assert [row for row in rows if row[0] == user] == expected
    assert len(rows) == len(due["rows"])
    users = job.postgres.ask(f'select "user", number, so_far from {job.table}_users')
    assert {row[0]: row for row in users} == {each.user: (each.user, each.number, each.so_far) for each in due["users"]}
    assert len(users) == USERS
    strands = job.postgres.ask("select lane from lowtide.lanes where job = %s and sink = 'rows'", job.name)
    assert {lane_of("rows", number).slice for (number,) in strands} == {
        *("hash units 0 to 63", "hash units 64 to 127"),
        *("hash units 0 to 31", "hash units 32 to 63", "hash units 64 to 95", "hash units 96 to 127"),
        *("hash units 0 to 47", "hash units 48 to 95", "hash units 96 to 127"),
    }
