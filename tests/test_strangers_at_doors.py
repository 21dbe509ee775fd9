"""Strangers at every door of a running job change nothing: the same life goes on, and its output is right.

To its Unix sockets come only those of the job's own user, as these are.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.listening import Listener, listeners
from tests.settings import settings_of
from tests.shop import Load, Shop
from tests.waiting import HANGS_S

from lowtide_tracker.unix import connected
from tests.driver import Driver, below

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
EPOCH_S = 5.0
"""Each epoch's shuffle listens at new ports."""
ROUNDS = 3
SILENT = 60
"""Connections to each door that say nothing."""
WITHIN_S = 2.0
ANSWER_WITHIN_S = 0.05


def garbage() -> bytes:
    return os.urandom(64)


def too_large() -> bytes:
    """A frame of Spark's that says it is longer than one may be."""
    return struct.pack(">q", (1 << 31) + 8) + os.urandom(64)


def never_ending() -> bytes:
    """A frame of Spark's, and a message of Lowtide's, of nearly a gigabyte, of which 4 MB come."""
    return struct.pack(">q", 1_000_000_000) + bytes(4_000_000)


def call() -> bytes:
    """A call as Spark's readers make it, whose content is none."""
    body = os.urandom(32)
    frame = struct.pack(">bqi", 3, 7, len(body)) + body
    return struct.pack(">q", 8 + len(frame)) + frame


def one_way() -> bytes:
    """A message as Spark's readers send it, which says that reader 0 is here."""
    body = struct.pack(">iq", 0, 0) + bytes(16)
    frame = struct.pack(">bi", 9, len(body)) + body
    return struct.pack(">q", 8 + len(frame)) + frame


def web() -> bytes:
    return b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


KINDS: tuple[Callable[[], bytes], ...] = (garbage, too_large, never_ending, call, one_way, web)


@pytest.fixture(name="shop")
def _shop(kafka: Kafka, zookeeper: str, tmp_path: Path) -> Shop:
    settings = {**settings_of(kafka, zookeeper, tmp_path, 8), "epoch.duration_s": EPOCH_S}
    return Shop.open("strangers", kafka, settings, letters=2)


@pytest.fixture(name="driver")
def _driver(shop: Shop, tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(shop, tmp_path / "driver")
    yield driver
    driver.close()


def doors(driver: Driver) -> list[Listener]:
    """The job's current addresses."""
    return listeners([driver.pid, *below(driver.pid)])


def visit(door: Listener, says: bytes) -> None:
    """Say something at a door, and go once the other end closes the connection or has had the time to."""
    try:
        with connected(door.address, WITHIN_S) as stranger:
            stranger.sendall(says)
            stranger.settimeout(ANSWER_WITHIN_S)
            stranger.recv(1 << 16)
    except OSError:
        return  # It was refused, or an epoch has ended and its door is gone.


def life_of(driver: Driver) -> int:
    """Wait until the job has delivered more; its life's number."""
    status = driver.moved(within_s=HANGS_S)
    assert not status["cause"], status["cause"]
    return int(status["incarnation"])


def knock(driver: Driver) -> None:
    """Say every kind of thing at every door, round after round: each epoch's shuffle listens at new ones."""
    visited: set[str] = set()
    for _ in range(ROUNDS):
        found = doors(driver)
        assert len(found) >= 5, f"too few for a job: {found}"
        assert [door for door in found if not door.near] == []
        assert {"service", "tracker", "host"} <= {door.address.rpartition("/")[2].partition("-")[0] for door in found}
        for door in found:
            for kind in KINDS:
                visit(door, kind())
        visited |= {door.address for door in found}
        time.sleep(EPOCH_S / 2)
    assert len(visited) > len(found), "no epoch has ended meanwhile"


def stand(driver: Driver, held: ExitStack) -> None:
    """Open connections to every door, and say nothing."""
    for _ in range(SILENT):
        for door in doors(driver):
            try:
                held.enter_context(connected(door.address, WITHIN_S))
            except OSError:
                continue  # It is full, or an epoch has ended.


@pytest.mark.nightly
def test_strangers_at_every_door_change_nothing(driver: Driver, shop: Shop) -> None:
    """While they talk, and while they stand at every door: epochs end, workers are found again, status is answered."""
    driver.ready()
    with Load(shop), ExitStack() as held:
        life = life_of(driver)
        knock(driver)
        assert life_of(driver) == life
        stand(driver, held)
        time.sleep(EPOCH_S)
        assert life_of(driver) == life
    shop.judge.right()
    driver.stop()
