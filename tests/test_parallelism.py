"""However many workers a level has, and in whichever mode: the same input comes out as the same bytes, lane by lane."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from tests.shop import LANES, Shop, now_ms

from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.driver.frozen import job_record
from lowtide.driver.growth import grow
from lowtide.driver.recovery import StartFrom
from lowtide.errors import FlowError, LifeEnded
from lowtide.flow.plan.compiler import compile_job
from lowtide.local.oracle import Output, read_output

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
RECORDS = 3_000
FOUR_LANES = 4


def test_r12_the_same_bytes_at_every_parallelism_and_in_both_modes(spark: Spark) -> None:
    """The log is there before a job starts, so that no idle heartbeat lifts a label in one run and not in another.

    Optimistic jobs have a process for each worker, so that frames overtake each other; ordered ones have one for all.
    """
    first = Shop.open("width", spark.kafka, spark.settings(), lanes=FOUR_LANES)
    first.produce(range(RECORDS), now_ms() - 60_000, step_ms=3)
    outputs: dict[tuple[str, int], dict[int, list[Output]]] = {}
    repairs = 0
    for grouping, processes in (("optimistic", 8), ("ordered", 1)):
        for parallelism in (1, 2, 4):
            shop = Shop.open("width", spark.kafka, spark.settings(), *first.sources, lanes=FOUR_LANES)
            shop = shop.but(job__parallelism=parallelism, job__grouping=grouping, exchange__max_frame_rows=50)
            shop = shop.but(worker__processes=processes)
            with shop.running() as job:
                assert shop.judge.right() == RECORDS
                if grouping == "optimistic":
                    repairs += job.status()["totals"]["repairs"]
                else:
                    assert job.status()["totals"]["repairs"] == 0
            outputs[grouping, parallelism] = read_output(shop.conf.kafka, shop.sink)
    reference = outputs.pop(("optimistic", 1))
    assert all(reference[lane] for lane in range(FOUR_LANES))
    for place, output in outputs.items():
        assert output == reference, place
    # Else the optimistic mode had nothing to put right, and this test shows nothing of it.
    assert repairs > 0


@pytest.mark.parametrize(
    ("lanes", "partitions"), [pytest.param(FOUR_LANES, FOUR_LANES, marks=pytest.mark.nightly), (8, 3)]
)
def test_a_job_goes_on_with_more_or_fewer_workers_and_in_the_other_mode(
    spark: Spark, lanes: int, partitions: int
) -> None:
    """Lanes are frozen; who owns them is not. A life that ends in mid-run leaves the next one its lanes as they are.

    Lanes that share a partition have their order there, whoever writes them.
    """
    shop = Shop.open("wider", spark.kafka, spark.settings(), lanes=lanes, letters=1, partitions=partitions)
    lives = [(1, "optimistic"), (4, "ordered"), (2, "optimistic")]
    for number, (parallelism, grouping) in enumerate(lives):
        life = shop.but(job__parallelism=parallelism, job__grouping=grouping)
        with life.running() as job:
            shop.produce(range(1000 * number, 1000 * (number + 1)))
            if number == 1:
                kill_one(shop, job.status()["workers"])
                with pytest.raises(LifeEnded):
                    job.wait()
            else:
                assert shop.judge.right()
    assert shop.judge.right() == len(lives) * 1000 - 3


def test_a_job_gets_more_lanes_between_two_lives(spark: Spark) -> None:
    """What was delivered of a lane is so of those that it is divided into, and no key leaves its partition."""
    shop = Shop.open("grown", spark.kafka, spark.settings(), lanes=2)
    with shop.but(job__parallelism=2).running():
        shop.produce(range(1000))
        assert shop.judge.right() == 1000
    shop.produce(range(1000, 2000))
    frozen = job_record(compile_job(shop.flow(), shop.conf))
    grown = shop.but(job__parallelism=4, job__lanes=6)
    with pytest.raises(FlowError, match="lanes was 2, now 6"), grown.running():
        pass
    with ZooKeeperAccess.of(shop.conf.zookeeper).store(shop.name) as store:
        assert grow(store, frozen, 6, shop.conf, lambda _: None).lanes == 6
    with grown.running():
        shop.produce(range(2000, 3000))
        assert grown.judge.right() == 3000
    assert {partition for partition, found in read_output(shop.conf.kafka, shop.sink).items() if found} == {0, 1}


@pytest.mark.nightly
def test_a_job_with_the_floors_of_another_gives_its_bytes(spark: Spark) -> None:
    """Floors are decisions that no log has: a job without them may order the same log otherwise."""
    first = Shop.open("blue", spark.kafka, spark.settings())
    with first.running():
        for number in range(10):
            first.produce(range(100 * number, 100 * number + 50), partitions=(0,))
            # By then the idle partition has been granted floors, which lift what comes with these timestamps.
            first.produce(range(100 * number + 50, 100 * (number + 1)), now_ms() - 5_000, partitions=(1,))
        assert first.judge.right() == 1_000
    reference = read_output(first.conf.kafka, first.sink)
    others = [Shop.open(name, spark.kafka, spark.settings(), *first.sources) for name in ("green", "grey")]
    for shop, start in zip(others, (StartFrom(floors_from=first.name), StartFrom()), strict=True):
        with shop.running(start):
            assert shop.judge.right() == 1_000
    green, grey = (read_output(shop.conf.kafka, shop.sink) for shop in others)
    assert green == reference
    assert grey != reference
    # The command may be repeated, also when the topic has grown, of which each job has noted from where it labels it.
    widen(spark, first.sources[0])
    with first.running():
        pass
    for number in range(10, 12):
        with others[0].running(StartFrom(floors_from=first.name)):
            others[0].produce(range(100 * number, 100 * (number + 1)))
            assert others[0].judge.right() == 100 * (number + 1)


def test_floors_are_not_taken_from_any_job(spark: Spark) -> None:
    first = Shop.open("blue", spark.kafka, spark.settings())
    with first.running():
        first.produce(range(10))
        assert first.judge.right() == 10
    fresh = Shop.open("fresh", spark.kafka, spark.settings(), *first.sources)
    refused = [
        (first, fresh.name, 'no job "fresh-'),
        (first, first.name, "its own floors"),
        (fresh.but(job__lanes=4), first.name, "lanes differ"),
        (fresh.but(job__delivery="at_least_once"), first.name, "only a job that delivers exactly once"),
    ]
    for shop, other, why in refused:
        with pytest.raises(FlowError, match=why), shop.running(StartFrom(floors_from=other)):
            pass
    # Nothing was written down for the one that was refused: with what is right it starts.
    with fresh.running(StartFrom(floors_from=first.name)):
        assert fresh.judge.right() == 10
    elsewhere = Shop.open("other", spark.kafka, spark.settings())
    with elsewhere.running():
        elsewhere.produce(range(10))
        assert elsewhere.judge.right() == 10
    with pytest.raises(FlowError, match="has started before"), fresh.running(StartFrom(floors_from=elsewhere.name)):
        pass


def widen(spark: Spark, topic: str) -> None:
    """Give a topic a third partition."""
    admin: Any = AdminClient({"bootstrap.servers": spark.kafka.address})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()


def kill_one(shop: Shop, workers: list[dict[str, int]]) -> None:
    os.kill(next(worker["pid"] for worker in workers if worker["level"] == LANES), signal.SIGKILL)
