"""Fronts of all kinds on a real Kafka: what no front may do to the order, the floors and the memory of a job."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from tests.shop import Backfill, Shop, now_ms
from tests.waiting import HANGS_S

from lowtide.errors import LifeEnded
from lowtide.local.oracle import read_output
from lowtide.sinks.kafka.lasts import read_lasts, topic_of

if TYPE_CHECKING:
    from tests.conftest import Spark

    from lowtide.driver.job import Job

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
HOUR_MS = 3_600_000
IN_2099_MS = 4_081_000_000_000
MAX_FUTURE_MS = 1_500


def kill_a_worker(job: Job) -> None:
    """SIGKILL of the worker that delivers, and the end of the life."""
    os.kill(next(worker["pid"] for worker in job.status()["workers"] if worker["worker"] == "2/0"), signal.SIGKILL)
    with pytest.raises(LifeEnded):
        job.wait()


def test_r1_r2_idle_log_append_and_transactional_fronts_and_a_record_of_2099(spark: Spark) -> None:
    """One partition never gets a record, one topic ends in a marker after an aborted transaction; then a kill."""
    kafka = spark.kafka
    appended = kafka.topic("appended", 1, message_timestamp_type="LogAppendTime")
    # Kafka itself would refuse the record of 2099 by default.
    orders = kafka.topic("orders", 2, message_timestamp_after_max_ms=str(1 << 62))
    sources = (orders, appended, kafka.topic("transactional", 1))
    settings = spark.settings() | {"job.max_future_ms": MAX_FUTURE_MS}
    shop = Shop.open("kinds", kafka, settings, *sources)
    began_ms = now_ms()
    shop.produce(range(500), began_ms - 5000, partitions=[0])
    shop.produce([500], IN_2099_MS, partitions=[0])
    shop.produce(range(501, 1000), began_ms - 4000, partitions=[0])
    shop.produce(range(1000, 1500), source=1, partitions=[0])
    for number, end in enumerate(("commit", "abort", "commit", "abort")):
        shop.produce(range(2000 + 100 * number, 2100 + 100 * number), source=2, partitions=[0], transaction=end)
    with shop.running() as job:
        assert shop.judge.right() == 1700
        kill_a_worker(job)
    caps = [floor for floor in read_lasts(shop.conf.kafka, topic_of(shop.name), 30).floors if floor.cap]
    assert [(cap.front, cap.offset) for cap in caps] == [(shop.judge.fronts()[f"{sources[0]}-0"], 500)]
    shop.produce(range(3000, 3100), partitions=[0])
    shop.produce(range(3100, 3200), source=1, partitions=[0])
    with shop.running():
        assert shop.judge.right() == 1900
    latest = max(each.timestamp for lane in read_output(shop.conf.kafka, shop.sink).values() for each in lane)
    assert latest < now_ms() + MAX_FUTURE_MS


def test_r1_a_timestamp_that_spark_cannot_hold_is_capped_like_any_that_is_not_believed(spark: Spark) -> None:
    """Nanoseconds for milliseconds: Spark's microseconds overflow, and each life would end at the same record."""
    orders = spark.kafka.topic("orders", 2, message_timestamp_after_max_ms=str((1 << 63) - 1))
    shop = Shop.open("nanoseconds", spark.kafka, spark.settings() | {"job.max_future_ms": MAX_FUTURE_MS}, orders)
    began_ms = now_ms()
    shop.produce(range(100), began_ms - 5000, partitions=[0])
    shop.produce([100], began_ms * 1_000_000, partitions=[0])
    shop.produce(range(101, 200), began_ms - 4000, partitions=[0])
    with shop.running():
        assert shop.judge.right() == 200
    caps = [floor for floor in read_lasts(shop.conf.kafka, topic_of(shop.name), 30).floors if floor.cap]
    assert [(cap.front, cap.offset) for cap in caps] == [(shop.judge.fronts()[f"{orders}-0"], 100)]


def test_r8_a_front_an_hour_ahead_waits_and_what_it_holds_is_bounded(spark: Spark) -> None:
    """Both logs are read at once, and without the window nearly every record of one would repair those of the other."""
    settings = spark.settings() | {"job.max_front_lead_ms": 2_000, "exchange.max_frame_rows": 100}
    shop = Shop.open("hour", spark.kafka, settings)
    began_ms = now_ms() - 2 * HOUR_MS
    shop.produce(range(3000), began_ms, partitions=[0], step_ms=20)
    shop.produce(range(3000, 9000), began_ms + HOUR_MS, partitions=[1], step_ms=20)
    most: dict[str, int] = {}
    with shop.running() as job:
        deadline = time.monotonic() + HANGS_S
        while (status := job.status())["totals"]["records_out"] < 8900 and time.monotonic() < deadline:
            note(most, status["workers"])
            time.sleep(0.05)
        assert shop.judge.right() == 9000
        repairs = job.status()["totals"]["repairs"]
    # A window of 2 s holds 100 records; what is parked was under way before the front stopped pulling.
    assert most["parked"] <= 3_000, most
    assert most["waiting"] <= 4_000, most
    assert repairs < 6_000


def test_h9_a_backfill_that_flows_does_not_stop_the_other_partition(spark: Spark) -> None:
    """No grant finds the front at its offset; what its own floors did holds in the next life."""
    shop = Shop.open("backfill", spark.kafka, spark.settings() | {"job.max_front_bytes": 64 << 10})
    shop.produce(range(10))
    most: dict[str, int] = {}
    with shop.running() as job:
        assert shop.judge.right() == 10
        with Backfill(shop, first=10_000) as backfill:
            for number in range(100, 150):
                shop.produce([number], partitions=[1])
                note(most, job.status()["workers"])
                if own_floors(job) >= 20:
                    break
            before = backfill.written
            await_that(lambda: job.client().status().totals.delivered >= before)
            assert backfill.flows, "delivered while it flows"
        assert own_floors(job) > 0
        assert most["waiting"] <= 10_000, most
        assert shop.judge.right() > backfill.written
        kill_a_worker(job)
    shop.produce(range(1000, 1100))
    with shop.running():
        assert shop.judge.right() > backfill.written + 100


def own_floors(job: Job) -> int:
    """The number of floors that fronts have set by themselves."""
    return sum(worker["gauges"].get("front", {}).get("own_floors", 0) for worker in job.status()["workers"])


def await_that(done: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + HANGS_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def note(most: dict[str, int], workers: list[dict[str, Any]]) -> None:
    """Keep the largest gauges seen of any worker."""
    for worker in workers:
        gauges = worker["gauges"]
        for name, value in (
            ("parked", gauges.get("front", {}).get("parked", 0)),
            ("waiting", gauges.get("waiting", 0)),
        ):
            most[name] = max(most.get(name, 0), int(value))


def test_r3_a_partition_added_while_the_job_runs_is_read_from_its_start(spark: Spark) -> None:
    shop = Shop.open("grown", spark.kafka, spark.settings())
    with shop.running() as job:
        shop.produce(range(500))
        assert shop.judge.right() == 500
        client: Any = AdminClient({"bootstrap.servers": spark.kafka.address})
        client.create_partitions([NewPartitions(shop.sources[0], 3)])[shop.sources[0]].result()
        deadline = time.monotonic() + HANGS_S
        while len(shop.judge.fronts()) < 3 and time.monotonic() < deadline:
            shop.produce(range(500, 510), partitions=[0])
            time.sleep(0.5)
        # Its records are an hour old, so that it is the opening floor that keeps them above what was delivered.
        shop.produce(range(1000, 1500), now_ms() - HOUR_MS, partitions=[2])
        assert shop.judge.right() >= 1010
        kill_a_worker(job)
    shop.produce(range(2000, 2100), partitions=[0, 1, 2])
    with shop.running():
        assert shop.judge.right() >= 1110
