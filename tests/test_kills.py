"""SIGKILL of everything a job is made of, in mid-run: afterwards nothing has come out twice and nothing is missing.

Each kill comes under load, and after each the whole output is compared with the oracle's, dead letters too.
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
Start = Callable[[], Driver]


@pytest.fixture(name="settings")
def _settings(kafka: Kafka, zookeeper: str, tmp_path: Path) -> dict[str, object]:
    return settings_of(kafka, zookeeper, tmp_path, 8)


class Lives:
    """The lives of one shop's job: driver programs, one after the other."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        self.shop = shop
        self._folder = folder
        self._begun: list[Driver] = []
        self._written = 0

    def start(self) -> Driver:
        """Begin a life in a program of its own."""
        driver = Driver(self.shop, self._folder)
        self._begun.append(driver)
        driver.ready()
        return driver

    def load(self) -> Load:
        """Orders that nobody has written before."""
        self._written += 1
        return Load(self.shop, 100_000 * self._written)

    def close(self) -> None:
        for driver in self._begun:
            driver.close()


@pytest.fixture(name="lives")
def _lives(kafka: Kafka, settings: dict[str, object], tmp_path: Path) -> Iterator[Callable[..., Lives]]:
    made: list[Lives] = []

    def make(name: str, **more: object) -> Lives:
        shop = Shop.open(name, kafka, settings, letters=2).but(**more)
        made.append(Lives(shop, tmp_path / name))
        return made[-1]

    yield make
    for lives in made:
        lives.close()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def worker_of(status: dict[str, Any], name: str) -> int:
    return next(int(worker["pid"]) for worker in status["workers"] if worker["worker"].startswith(name))


@pytest.mark.parametrize("tls", ["auto", pytest.param("always", marks=pytest.mark.nightly)])
def test_one_program_lives_on_without_its_tracker_and_again_without_workers(
    lives: Callable[..., Lives], tls: str
) -> None:
    """On one machine its processes talk over Unix sockets, or under TLS if the conf says so."""
    shop_lives = lives(f"killed-workers-{tls}", exchange__tls=tls)
    driver, judge = shop_lives.start(), shop_lives.shop.judge
    with shop_lives.load():
        before = driver.moved()
        kill(before["tracker"]["pid"])
        after = wait_for_another_tracker(driver, before)
        driver.moved()
    assert after["incarnation"] == before["incarnation"]
    assert judge.right()

    for worker in ("0/", "1/0", "2/1"):
        with shop_lives.load():
            pid = worker_of(driver.moved(), worker)
            kill(pid)
            assert f"(pid {pid} on executor driver) died" in driver.ended()
            driver.again()
            driver.moved()
        assert judge.right(), worker
    driver.stop()
    assert judge.right()


def wait_for_another_tracker(driver: Driver, before: dict[str, Any]) -> dict[str, Any]:
    """Wait until another tracker's min time has passed what the killed one's can have been."""
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        status = driver.status()
        if status["tracker"]["pid"] != before["tracker"]["pid"] and status["min_time_ms"] > before["seen_ms"] + 1000:
            assert status["tracker"]["restarts"] == 1
            return status
        time.sleep(0.2)
    pytest.fail(f"min time stands: {driver.status()}")


@pytest.mark.nightly
def test_nothing_is_lost_with_the_fork_server_the_service_or_the_driver(
    lives: Callable[..., Lives], tmp_path: Path
) -> None:
    shop_lives = lives("killed-programs")
    judge = shop_lives.shop.judge
    driver = shop_lives.start()
    for what in ("-m lowtide.worker.forkserver", "-m lowtide.service "):
        with shop_lives.load():
            driver.moved()
            victim = driver.children(what)[0]
            kill(victim)
            assert driver.ended()
            driver.stop()
            driver = shop_lives.start()
            driver.moved()
        assert judge.right(), what
    with shop_lives.load():
        driver.moved()
        driver.kill()
        (left,) = (tmp_path / "checkpoints").iterdir()
        # The next one waits until ZooKeeper has given up the lease of the dead one.
        driver = shop_lives.start()
        driver.moved()
        assert not left.exists()
    assert judge.right()
    driver.stop()
    assert judge.right()


@pytest.mark.nightly
def test_nothing_is_lost_with_an_executor(lives: Callable[..., Lives]) -> None:
    # Six slots are what the job needs: one executor has them, until Spark has replaced the other.
    shop_lives = lives("killed-executor", spark__master="local-cluster[2,6,1024]")
    judge = shop_lives.shop.judge
    driver = shop_lives.start()
    with shop_lives.load():
        driver.moved()
        kill(driver.children("CoarseGrainedExecutorBackend")[0])
        assert driver.ended()
        driver.again()
        driver.moved()
    assert judge.right()
    driver.stop()
    assert judge.right()
