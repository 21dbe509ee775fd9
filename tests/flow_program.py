"""A flow that counts orders, run by `lowtide run` in a program of its own, for the tests of stores besides Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.processes import of_program
from tests.conftest import unique
from tests.waiting import HANGS_S, wait_until

from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.driver.growth import grow
from tests.driver import below, runs

if TYPE_CHECKING:
    from tests.conftest import Kafka

EXAMPLES = Path(__file__).parent.parent / "examples"
USERS = 17
FLOW = """
from dataclasses import dataclass

import lowtide as lt


@dataclass(frozen=True)
class Order:
    user: str
    number: int
    so_far: int = 0


def count(so_far: int, order: Order) -> tuple[int, Order]:
    return so_far + 1, Order(order.user, order.number, so_far + 1)


flow = lt.Flow("{name}")
orders = flow.read("orders", lt.kafka("{topic}", lt.json(Order))).key_by("user").scan("counted", count, 0)
"""


class FlowProgram:
    """The flow with its sinks, and the programs that run it, one after the other.

    Attributes:
        name: The job's name.
        flow: The flow's file.
        log: What the programs have said.
        settings: The settings of the job.
    """

    def __init__(self, folder: Path, kafka: Kafka, sinks: str, settings: Mapping[str, object]) -> None:
        self.name, self._topic, self._kafka = unique("stores"), kafka.topic("orders", 2), kafka
        self.flow, self.log, self.settings = folder / "flow.py", folder / "log", settings
        self.flow.write_text(FLOW.format(name=self.name, topic=self._topic) + sinks)
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        settings = [each for key, value in self.settings.items() for each in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "lowtide.cli", "run", str(self.flow), *settings]
        environment = {**os.environ, "PYTHONPATH": str(EXAMPLES)}
        with self.log.open("a") as log:
            started = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.flow.parent)
        self._started.append(started)
        return started

    def kill(self) -> None:
        """Kill the running program, and wait until its processes have noticed: they deliver until then."""
        started = self._started[-1]
        family = below(started.pid)
        started.kill()
        started.wait(HANGS_S)
        wait_until(lambda: not [each for each in family if runs(each)], HANGS_S, "the killed program's processes end")

    def grow(self, lanes: int) -> None:
        """Give the job more lanes, once no life of it holds its lease; the next program is started with them."""
        conf = Conf.load(None, {key: value for key, value in self.settings.items() if key != "job.lanes"})
        with ZooKeeperAccess.of(conf.zookeeper).store(self.name) as store:
            frozen = store.record()
            assert frozen is not None
            grow(store, frozen, lanes, conf, lambda _: None)
        self.settings = {**self.settings, "job.lanes": lanes}

    def carriers(self) -> list[int]:
        """The processes that carry for the running program."""
        return of_program(self._started[-1].pid).get("carrier", [])

    def produce(self, orders: list[dict[str, Any]]) -> None:
        """Write orders, those of one user in their order."""
        for partition in range(2):
            self._kafka.produce(self._topic, [each for each in orders if by_user(each) == partition], partition)

    def have(self, count: int, rows: Callable[[], int]) -> None:
        """Wait until so many rows are there."""

        def there() -> bool:
            assert self._started[-1].poll() is None, self.log.read_text()[-4000:]
            return rows() >= count

        wait_until(there, HANGS_S, f"{count} rows are in the table")

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(HANGS_S)


def by_user(order: dict[str, Any]) -> int:
    """The partition of an order: those of one user stay in their order."""
    return int(order["user"].removeprefix("user-")) % 2


def orders(count: int) -> list[dict[str, Any]]:
    """So many orders of all users."""
    return [{"user": f"user-{number % USERS}", "number": number} for number in range(count)]
