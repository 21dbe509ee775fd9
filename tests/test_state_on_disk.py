"""A job with its state on disk: killed at every turn, and from memory to disk and back; output stays exactly once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.job_program import Program
from tests.settings import settings_of
from tests.shop import Bought, Load, Order, Shop, Sold, buy, sell
from tests.waiting import HANGS_S

from lowtide import Flow, kafka, seconds
from lowtide import json as as_json
from lowtide.cli.snapshot import take

if TYPE_CHECKING:
    from azurite import Azurite
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
Start = Callable[..., Program]
USERS, ITEMS = 4_001, 2_003


def spread(order: Order) -> Order:
    """An order of one of many users: more than the buffer before the disk holds."""
    return Order(f"user-{order.number % USERS}", f"item-{order.number * 7 % ITEMS}", order.number)


def flow_of(shop: Shop) -> Flow:
    flow = Flow(shop.name)
    orders = flow.read("orders", kafka(shop.sources[0], as_json(Order))).map(spread)
    once = orders.key_by("number").deduplicate("once", within=seconds(20))
    bought = once.key_by("user").scan("bought", buy, Bought("", "", 0))
    sold = bought.key_by("item").scan("sold", sell, Sold("", "", 0))
    sold.write("out", kafka(shop.sink, as_json(Sold), key="item"))
    return flow


@pytest.fixture(name="settings")
def _settings(kafka: Kafka, zookeeper: str, tmp_path: Path) -> dict[str, object]:
    folders = {"job.folder": str(tmp_path / ".lowtide/jobs"), "state.folder": str(tmp_path / "state")}
    return settings_of(kafka, zookeeper, tmp_path, 16) | folders | {"state.backend": "disk", "state.memory_mb": 0}


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Iterator[Start]:
    begun: list[Program] = []

    def start(shop: Shop) -> Program:
        begun.append(Program(shop, tmp_path))
        begun[-1].running()
        return begun[-1]

    yield start
    for program in begun:
        program.close()


def test_a_job_goes_on_whoever_is_killed(kafka: Kafka, settings: dict[str, object], start: Start) -> None:
    """The process that reads the disk: no life ends. A worker: the next life begins from the commit."""
    given = settings | {"job.restarts": 2}
    shop = replace(Shop.open("depth-kills", kafka, given), written_by="tests.test_state_on_disk:flow_of")
    program = start(shop)
    with Load(shop):
        view = program.moved(1_000)
        readers = program.children("-m lowtide.disk.reading")
        assert readers
        for reader in readers:
            os.kill(reader, signal.SIGKILL)
        program.moved()
        committed = take(program.client, shop.name, None, limit_s=HANGS_S)
        assert committed.rows
        assert not set(readers) & set(program.children("-m lowtide.disk.reading")), "others read now"
        os.kill(next(each.pid for each in view.workers if each.worker == "2/1"), signal.SIGKILL)
        program.running(restarts=1)
        program.moved(1_000)
        take(program.client, shop.name, None, limit_s=HANGS_S)
    assert shop.judge.right()
    assert f"beginning from commit {committed.id}" in program.log()
    program.stop()


@pytest.mark.nightly
@pytest.mark.azure
def test_a_job_goes_from_disk_to_memory_and_back(
    kafka: Kafka, settings: dict[str, object], start: Start, tmp_path: Path, azurite: Azurite
) -> None:
    """Each life is killed under load after a snapshot, in Azure; the disk has nothing of a life that is over."""
    from azurite import ACCOUNT

    container = azurite.make_container()
    store = {"url": f"az://{container}/jobs", "endpoint": azurite.endpoint, "account": ACCOUNT}
    given = settings | {f"snapshots.{name}": value for name, value in store.items()}
    first = replace(Shop.open("depth", kafka, given, lanes=4), written_by="tests.test_state_on_disk:flow_of")
    for number, backend in enumerate(("disk", "memory"), 1):
        program = start(first.but(state__backend=backend))
        with Load(first, first=100_000 * number):
            program.moved(1_500)
            folders = list((tmp_path / "state").glob(f"*/{number}/*"))
            assert bool(folders) == (backend == "disk")
            committed = take(program.client, first.name, None, limit_s=HANGS_S)
            program.moved()
            program.process.kill()
            program.ended()
        assert committed.rows
    program = start(first.but(job__parallelism=3))
    assert first.judge.right()
    assert f"beginning from commit {committed.id}" in program.log()
    assert [each.name for each in (tmp_path / "state").glob("*/*")] == ["3"]
    program.stop()
    assert not list((tmp_path / "state").glob("*/*/*"))
