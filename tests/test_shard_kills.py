"""A job whose tracker is in shards, of which each is killed or stopped under load, and their merge too (R9).

Afterwards the whole output is the oracle's, per lane and byte; it is one life throughout.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.settings import settings_of
from tests.shop import Load, Shop
from tests.waiting import HANGS_S

from tests.driver import Driver

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]


@pytest.fixture(name="job")
def _job(kafka: Kafka, zookeeper: str, tmp_path: Path) -> Iterator[tuple[Shop, Driver]]:
    settings = settings_of(kafka, zookeeper, tmp_path, 8)
    shop = Shop.open("sharded", kafka, settings, letters=2).but(tracker__shards=2)
    driver = Driver(shop, tmp_path / "sharded")
    driver.ready()
    yield shop, driver
    driver.close()


def pids(status: dict[str, Any]) -> list[int]:
    """By shard, and last the merge's."""
    return [*(shard["pid"] for shard in status["tracker"]["shards"]), status["tracker"]["pid"]]


def until(driver: Driver, seen: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + HANGS_S
    while True:
        status = driver.status()
        if seen(status):
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.2)


def test_a_job_outlasts_its_shards_and_their_merge(job: tuple[Shop, Driver]) -> None:
    shop, driver = job
    with Load(shop):
        began = before = driver.moved()
        assert len({*pids(before), began["tracker"]["pid"]}) == 3
        troubles: set[str] = set()
        for restarts, (which, number) in enumerate(
            [(0, signal.SIGKILL), (-1, signal.SIGKILL), (1, signal.SIGSTOP)], start=1
        ):
            victim = pids(before)[which]
            os.kill(victim, number)
            stood_ms = before["seen_ms"] + 1_000

            def again(
                now: dict[str, Any], victim: int = victim, restarts: int = restarts, stood_ms: int = stood_ms
            ) -> bool:
                troubles.update(now["troubles"])
                moved = victim not in pids(now) and (now["min_time_ms"] or 0) > stood_ms
                return moved and now["tracker"]["restarts"] == restarts

            until(driver, again)
            before = driver.moved()
        assert not Path(f"/proc/{victim}").exists()
        assert any("shard 1 of the tracker has been silent for" in trouble for trouble in troubles), troubles
        after = until(driver, lambda now: not any("tracker" in trouble for trouble in now["troubles"]))
        assert [shard["era"] for shard in after["tracker"]["shards"]] == [2, 2]
        assert (after["incarnation"], after["tracker"]["era"]) == (began["incarnation"], 2)
        driver.moved()
    assert shop.judge.right()
    driver.stop()
    assert shop.judge.right()
