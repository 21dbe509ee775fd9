"""However many workers a level has, and in whichever mode: the same input comes out as the same bytes, lane by lane."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.shop import LANES, Shop, now_ms

from lowtide.errors import LifeEnded
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


def test_a_job_goes_on_with_more_or_fewer_workers_and_in_the_other_mode(spark: Spark) -> None:
    """Lanes are frozen; who owns them is not. A life that ends in mid-run leaves the next one its lanes as they are."""
    shop = Shop.open("wider", spark.kafka, spark.settings(), lanes=FOUR_LANES, letters=1)
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


def kill_one(shop: Shop, workers: list[dict[str, int]]) -> None:
    os.kill(next(worker["pid"] for worker in workers if worker["level"] == LANES), signal.SIGKILL)
