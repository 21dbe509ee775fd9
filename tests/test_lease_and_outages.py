"""Two drivers at once, a ZooKeeper that goes away, a tracker that hangs: nothing comes out twice, nothing is missing.

Each comes under load, and the whole output is compared with the oracle's, dead letters too.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.judging import committed
from tests.shop import Load, Shop
from tests.waiting import HANGS_S

from lowtide.driver.job import Job
from lowtide.embedded import EmbeddedServices
from lowtide.errors import ServiceUnavailable
from tests.driver import Driver, below

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
PER_S = 100
SESSION_S = 4.0
"""A lease outlives its driver by so long. Not too short: other tests may want the processors meanwhile."""
FENCED = re.compile(
    r"incarnation \d+ of job .* is over"
    r"|another life of the job has claimed this worker's deliveries"
    # A broker that is just fencing says so, or merely that a commit had an unknown error.
    r"|the outcome of a transaction is unknown"
)


class Drivers:
    """The programs that run one shop's job, one after the other or at once."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        self.shop = shop
        self._folder = folder
        self._begun: list[Driver] = []

    def start(self) -> Driver:
        """Begin a life in a program of its own."""
        driver = Driver(self.shop, self._folder)
        self._begun.append(driver)
        driver.ready()
        return driver

    def close(self) -> None:
        for driver in self._begun:
            driver.close()


@pytest.fixture(name="drivers")
def _drivers(kafka: Kafka, tmp_path: Path) -> Iterator[Callable[[str, str, float], Drivers]]:
    made: list[Drivers] = []

    def make(name: str, zookeeper: str, epoch_s: float) -> Drivers:
        settings = {
            "kafka.bootstrap_servers": kafka.address,
            "zookeeper.hosts": zookeeper,
            "zookeeper.session_timeout_s": SESSION_S,
            "zookeeper.reach_limit_s": 8.0,
            "kafka.delivery_limit_ms": 60_000,
            "epoch.duration_s": epoch_s,
            "spark.master": "local[8]",
            "spark.checkpoint_folder": str(tmp_path / "checkpoints"),
        }
        made.append(Drivers(Shop.open(name, kafka, settings, letters=2), tmp_path / name))
        return made[-1]

    yield make
    for drivers in made:
        drivers.close()


@pytest.fixture(name="own")
def _own(tmp_path: Path) -> Iterator[EmbeddedServices]:
    """A ZooKeeper of this test's own, to be stopped."""
    with EmbeddedServices(tmp_path / "services", only=["zookeeper"]) as services:
        yield services


def moved(driver: Driver, records: int = 100) -> dict[str, Any]:
    """Wait until the job has delivered so many more; what it says of itself then."""
    return driver.moved(records, HANGS_S)


def until(driver: Driver, seen: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask the job about itself until this is seen; what it says then."""
    deadline = time.monotonic() + HANGS_S
    while not seen(status := driver.status()):
        assert time.monotonic() < deadline, status
        time.sleep(0.2)
    return status


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Let processes stand still, as if their machine did, until the block ends."""
    signal_all(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(pids, signal.SIGCONT)


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@dataclass(frozen=True)
class Lease:
    """The holder of a job's lease, and its session."""

    holder: str
    session: int


NOBODY = Lease("", 0)


def lease_of(shop: Shop) -> Lease:
    zookeeper = KazooClient(shop.conf.zookeeper.hosts)
    zookeeper.start()
    try:
        path = f"/{shop.conf.zookeeper.root}/jobs/{shop.name}/lease"
        zookeeper.sync(path)
        data, node = zookeeper.get(path)
        return Lease(json.loads(data)["holder"], node.ephemeralOwner)
    except NoNodeError:
        return NOBODY
    finally:
        zookeeper.stop()
        zookeeper.close()


def assert_fenced(driver: Driver) -> None:
    """The life has ended by itself, and says that another one has begun."""
    cause = driver.ended()
    assert FENCED.match(cause), cause
    assert re.search("what to do: (nothing if the job was started elsewhere|nothing if another life is running)", cause)
    driver.stop()


def test_a_driver_that_stood_still_for_too_long_is_fenced_and_ends(
    drivers: Callable[[str, str, float], Drivers], zookeeper: str
) -> None:
    # An epoch's begin asks the service, and one that stands still would stop the workers before anything fences them.
    programs = drivers("two-drivers", zookeeper, 300.0)
    shop = programs.shop
    first = programs.start()
    with Load(shop, per_s=PER_S):
        moved(first)
        # All of it, as a machine that is paused: a transaction may be open, and goes on in the end.
        with stopped([first.pid, *below(first.pid)]):
            second = programs.start()
            moved(second)
        assert_fenced(first)
        moved(second)

        # Only what knows of ZooKeeper: the workers deliver on, until they are fenced in the midst of it.
        with stopped([second.pid, *second.children("-m lowtide.service ")]):
            before = committed(shop.conf, shop.sink)
            third = programs.start()
            assert committed(shop.conf, shop.sink) > before
            moved(third)
        assert_fenced(second)
        assert moved(third)["incarnation"] == 3
    assert shop.judge.right()
    third.stop()


def test_one_life_outlasts_a_tracker_that_hangs_and_a_zookeeper_that_is_away(
    drivers: Callable[[str, str, float], Drivers], own: EmbeddedServices
) -> None:
    programs = drivers("outages", own.zookeeper, 5.0)
    shop = programs.shop
    driver = programs.start()
    with Load(shop, per_s=PER_S):
        began = moved(driver)
        held = lease_of(shop)
        assert held.holder.startswith(f"process {driver.pid} on ")

        hung = began["tracker"]["pid"]
        os.kill(hung, signal.SIGSTOP)
        # The next one computes min time again, from what the workers know.
        stood_ms = began["seen_ms"] + 1_000
        after = until(driver, lambda now: now["tracker"]["pid"] != hung and now["min_time_ms"] > stood_ms)
        assert after["tracker"]["restarts"] == 1
        assert not Path(f"/proc/{hung}").exists()

        # Shorter than the session's time-out.
        own.stop("zookeeper", grace_s=0)
        moved(driver)
        own.start("zookeeper")
        assert same_life(moved(driver), after)
        assert lease_of(shop) == held

        outlast_a_session(driver, shop, own)
        now = until(driver, lambda now: of_zookeeper(now)[-1:] == ["zookeeper_back"])
        assert same_life(now, after)
        assert "zookeeper_lost" in of_zookeeper(now)

        # A life that ends meanwhile is followed by another once ZooKeeper is back; that one waits for the old lease.
        killed = next(worker["pid"] for worker in after["workers"] if worker["worker"] == "1/0")
        own.stop("zookeeper", grace_s=0)
        os.kill(killed, signal.SIGKILL)
        assert f"(pid {killed} on executor driver) died" in driver.ended()
        own.start("zookeeper")
        assert driver.again()["ready"] == 2
        moved(driver)
    assert shop.judge.right()
    driver.stop()


def outlast_a_session(driver: Driver, shop: Shop, services: EmbeddedServices) -> None:
    """Let ZooKeeper hang until the driver's session is over: it takes the lease again, as no other life has begun."""
    held, pid = lease_of(shop), services.pid("zookeeper")
    assert pid is not None
    signal_all([pid], signal.SIGSTOP)
    hangs_until = time.monotonic() + SESSION_S + 1
    moved(driver)
    # Nothing else is started meanwhile, and it is said why.
    with pytest.raises(ServiceUnavailable, match="ZooKeeper did not answer within 8 s") as caught:
        Job.start(shop.flow(), shop.conf)
    assert f"where: {services.zookeeper}" in str(caught.value)
    assert "what to do: start or repair ZooKeeper" in str(caught.value)
    time.sleep(max(0.0, hangs_until - time.monotonic()))
    moved(driver)
    with stopped([driver.pid]):  # It might come in time to keep its session.
        signal_all([pid], signal.SIGCONT)
        await_lease(shop, lambda found: found == NOBODY)
    await_lease(shop, lambda found: found.holder == held.holder and found.session != held.session)


def await_lease(shop: Shop, seen: Callable[[Lease], bool]) -> None:
    deadline = time.monotonic() + HANGS_S
    while not seen(found := lease_of(shop)):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def of_zookeeper(status: dict[str, Any]) -> list[str]:
    """The events that tell of ZooKeeper."""
    return [event["event"] for event in status["events"] if event["event"].startswith("zookeeper")]


def same_life(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """True if nothing was restarted."""

    def pids(status: dict[str, Any]) -> set[int]:
        return {status["tracker"]["pid"], *(worker["pid"] for worker in status["workers"])}

    return bool(now["incarnation"] == before["incarnation"] and pids(now) == pids(before))
