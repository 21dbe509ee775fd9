"""A job that puts records into Redis and a search index: driver and carriers are killed, and the index resets."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import unique
from tests.flow_program import USERS, FlowProgram, orders
from tests.put_server import PutServer
from tests.puts_contract import Ascending
from tests.redis_server import RedisServer
from tests.settings import settings_of
from tests.waiting import HANGS_S, wait_until

from lowtide.flow.plan.flow_file import load_flow

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.redis, pytest.mark.slow]
PART = 1_500
SINKS = """
orders.write("found", lt.puts("{place}", Order, key="user", put=lt.elasticsearch()))
orders.write("cached", lt.puts("{place}", Order, key="user", put=lt.redis()))
"""


class Job(FlowProgram):
    """The flow with two stores."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: str, server: PutServer, redis: RedisServer) -> None:
        self.place, self.server, self.redis = unique("docs"), server, redis
        where = {"elasticsearch.default.url": server.url, "redis.default.url": f"redis://{redis.address}/0"}
        settings = settings_of(kafka, zookeeper, folder, 12) | where | {"job.restarts": 3, "job.lanes": 2}
        super().__init__(folder, kafka, SINKS.format(place=self.place), settings)
        self.view = Ascending()

    def cached(self) -> dict[str, Any]:
        """Redis's records, by user."""
        return self.redis.read(self.place)

    def counted(self) -> int:
        """Number of orders that both stores know of; looked at, they never go back."""
        found, cached = self.server.read(self.place), self.cached()
        self.view.see(found)
        return min(sum(int(doc["so_far"]) for doc in each.values()) for each in (found, cached))


@pytest.fixture
def job(kafka: Kafka, zookeeper: str, tmp_path: Path, redis: RedisServer) -> Iterator[Job]:
    with PutServer() as server:
        job = Job(tmp_path, kafka, zookeeper, server, redis)
        yield job
        job.close()


def test_a_job_puts_what_run_locally_gives_over_kills_of_its_driver_and_of_its_carriers(job: Job) -> None:
    """In between it gets more lanes, so that keys move to partitions in which offsets begin again."""
    given = orders(4 * PART)
    process = job.start()
    job.produce(given[:PART])
    job.have(PART // 3, job.counted)
    process.kill()
    process.wait(HANGS_S)
    job.grow(8)
    job.start()
    job.server.reset_at_random(5)
    job.produce(given[PART : 2 * PART])
    job.have(PART + PART // 3, job.counted)
    killed = job.carriers()
    assert len(killed) == 2
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    job.produce(given[2 * PART : 3 * PART])
    job.have(2 * PART + PART // 3, job.counted)
    job.server.reset_at_random(None)
    job.produce(given[3 * PART :])
    job.have(len(given), job.counted)
    assert not set(job.carriers()) & set(killed)
    flow: Any = load_flow(str(job.flow))
    order: Any = flow.calls[0].step.source.format.record
    due = flow.run_locally(orders=[order(**each) for each in given])
    last = {each.user: {"user": each.user, "number": each.number, "so_far": each.so_far} for each in due["found"]}
    assert len(last) == USERS
    wait_until(lambda: job.server.read(job.place) == job.cached() == last, HANGS_S, "both have the last of each")
