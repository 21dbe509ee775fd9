"""Deliveries to a cluster of brokers whose leaders move, and one of which dies (R13)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.several_brokers import SeveralBrokers, several_brokers
from tests.shop import Load, Shop
from tests.test_kafka_delivery import Sink, hear
from tests.waiting import HANGS_S, wait_until

from lowtide.sinks.kafka.lasts import topic_of
from tests.driver import view

if TYPE_CHECKING:
    from tests.conftest import Spark

    from lowtide.driver.job import Job

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
TRANSACTIONS_LOG = "__transaction_state"


@pytest.fixture(name="brokers", scope="module")
def _brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralBrokers]:
    with several_brokers(tmp_path_factory.mktemp("brokers")) as brokers:
        yield brokers


class Delivering:
    """Delivers to three lanes, ten records at a time, for as long as the block lasts."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.worker = sink, sink.worker(limit_ms=60_000)
        self.sent, self.durable = [0, 0, 0], [0, 0, 0]
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(1)
        self._all = self._threads.submit(self._deliver)

    def __enter__(self) -> Delivering:
        self.goes_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._all.result()
        self._threads.shutdown()

    def goes_on(self) -> None:
        """Wait until every lane has something durable that it has not now."""
        before = list(self.durable)

        def more() -> bool:
            if self._all.done():
                self._all.result()
            return all(now > then for now, then in zip(self.durable, before, strict=True))

        wait_until(more, HANGS_S, "deliveries to all lanes")

    def _deliver(self) -> None:
        for lane in range(3):
            self._put(lane)
        while not (self._over.is_set() and self.sent == self.durable):
            for _, lane in hear(self.worker):
                self.durable[lane] = self.sent[lane]
                if not self._over.is_set():
                    self._put(lane)

    def _put(self, lane: int) -> None:
        self.worker.put(self.sink.packet(lane, range(self.sent[lane], self.sent[lane] + 10)))
        self.sent[lane] += 10


def each_down(brokers: SeveralBrokers, topics: Sequence[str]) -> Iterator[str]:
    """Stop a broker and kill another one; yield when it no longer leads, and when it leads again what it did before."""
    for node, killed in ((2, False), (3, True)):
        before = {topic: brokers.leaders(topic) for topic in topics}
        brokers.stop(node, killed=killed)
        brokers.wait_until_led_without(node, topics)
        yield f"broker {node} is down"
        brokers.start(node, topics)
        assert {topic: brokers.leaders(topic) for topic in topics} == before
        yield f"broker {node} is back"


@pytest.mark.parametrize("version", [pytest.param("v1", marks=pytest.mark.nightly), "v2"])
def test_r13_each_record_once_while_leaders_move_and_a_broker_dies(brokers: SeveralBrokers, version: str) -> None:
    """Leaders of the output's partitions, of the lasts and of the transactions' log."""
    with contextlib.closing(Sink(brokers, version=version)) as sink:
        with Delivering(sink) as delivering:
            assert sorted(brokers.leaders(sink.out).values()) == [1, 2, 3]
            for _ in each_down(brokers, [sink.out, sink.lasts, TRANSACTIONS_LOG]):
                delivering.goes_on()
        sent = delivering.sent
        assert delivering.worker.gauges()["protocol"] == version
        assert sink.found(sum(sent)) == {lane: list(range(sent[lane])) for lane in range(3)}
        assert sink.last() == {lane: sent[lane] - 1 for lane in range(3)}


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.nightly
def test_a_job_delivers_what_the_oracle_does_in_one_life_meanwhile(spark: Spark, brokers: SeveralBrokers) -> None:
    """Its source is on those brokers, too."""
    settings = {
        "kafka.bootstrap_servers": brokers.address,
        "kafka.delivery_limit_ms": 90_000,
        "kafka.transactions": "v2",
    }
    shop = Shop.open("several", brokers, spark.settings() | settings, lanes=3)
    with shop.running() as job:
        with Load(shop) as load:
            for _ in each_down(brokers, [*shop.sources, shop.sink, topic_of(shop.name), TRANSACTIONS_LOG]):
                job.wait(until_delivered(job, 500))
        assert shop.judge.right() == load.written
        assert job.status()["incarnation"] == job.incarnation
        assert job.client().status().protocols == {"kafka": ["v2"]}


def until_delivered(job: Job, more: int) -> Callable[[], bool]:
    """For `Job.wait`: go on until the life has delivered so many more."""
    at_least = view(job)["totals"]["delivered"] + more
    return lambda: view(job)["totals"]["delivered"] < at_least
