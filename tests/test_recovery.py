"""Recovery from the last commit: by the program itself, after its death, at other widths; output stays exactly once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.job_program import Program
from tests.settings import settings_of
from tests.shop import Bought, Load, Order, Shop, buy, now_ms
from tests.waiting import HANGS_S, wait_until

from lowtide import Flow
from lowtide import json as as_json
from lowtide import kafka as from_kafka
from lowtide.cli.snapshot import take

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
Start = Callable[..., Program]
BEHIND = 12_000


class Slow:
    """Gives an order back; after a moment for as long as a file is there."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __call__(self, order: Order) -> Order:
        if os.path.exists(self._file):
            time.sleep(0.002)
        return order


def slowly(shop: Shop) -> Flow:
    flow = Flow(shop.name)
    orders = flow.read("orders", from_kafka(shop.sources[0], as_json(Order))).map(Slow(shop.crawls), name="slow")
    bought = orders.key_by("user").scan("bought", buy, Bought("", "", 0))
    bought.write("out", from_kafka(shop.sink, as_json(Bought), key="user"))
    return flow


@pytest.fixture(name="settings")
def _settings(kafka: Kafka, zookeeper: str, tmp_path: Path) -> dict[str, object]:
    return settings_of(kafka, zookeeper, tmp_path, 14) | {"job.folder": str(tmp_path / ".lowtide/jobs")}


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Iterator[Start]:
    begun: list[Program] = []

    def start(shop: Shop, *, wait: bool = True) -> Program:
        begun.append(Program(shop, tmp_path))
        if wait:
            begun[-1].running()
        return begun[-1]

    yield start
    for program in begun:
        program.close()


def test_the_program_starts_its_job_again_by_itself(kafka: Kafka, settings: dict[str, object], start: Start) -> None:
    """After the death of workers, the first in the first start, of a fork server and of the service; then it ends."""
    shop = Shop.open("restarts", kafka, settings | {"job.restarts": 4}, letters=2)
    program = start(shop, wait=False)
    os.kill(program.first_worker(), signal.SIGKILL)
    program.running(restarts=1)
    assert "ready after" not in program.log().partition("starting again")[0], "the first life has never run"
    with Load(shop):
        view = program.moved()
        committed = take(program.client, shop.name, None, limit_s=HANGS_S)
        assert committed.rows
        os.kill(next(each.pid for each in view.workers if each.worker == "2/1"), signal.SIGKILL)
        program.running(restarts=2)
        program.moved()
        for number, what in enumerate(("-m lowtide.worker.forkserver", "-m lowtide.service "), 3):
            os.kill(program.children(what)[0], signal.SIGKILL)
            program.running(restarts=number)
            program.moved()
    assert shop.judge.right()
    log = program.log()
    assert f"beginning from commit {committed.id}" in log
    os.kill(program.children("-m lowtide.service ")[0], signal.SIGKILL)
    assert program.ended() == 5, log
    state = program.jobs.state()
    assert state is not None
    assert (state.phase, state.restarts) == ("failed", 4)
    events = [line for line in program.jobs.log_file.read_text().splitlines() if '"event":"life_ended"' in line]
    ends = [(event["incarnation"], bool(event["cause"])) for event in map(json.loads, events)]
    assert ends == [(life, True) for life in (1, 2, 3, 4, 5)], "each life says once why it has ended"


def test_snapshots_in_memory_outlive_a_life_and_not_the_program(
    kafka: Kafka, settings: dict[str, object], start: Start
) -> None:
    shop = Shop.open("in-memory", kafka, settings | {"job.restarts": 2, "snapshots.url": "memory:"}, letters=2)
    program = start(shop)
    with Load(shop):
        view = program.moved()
        committed = take(program.client, shop.name, None, limit_s=HANGS_S)
        assert committed.rows
        os.kill(next(each.pid for each in view.workers if each.worker == "2/1"), signal.SIGKILL)
        program.running(restarts=1)
        program.moved()
    assert shop.judge.right()
    assert f"beginning from commit {committed.id}" in program.log()
    program.process.kill()
    program.ended()
    later = start(shop, wait=False)
    assert later.ended() == 6, later.log()
    assert "were in the memory of a service that has ended" in later.log()
    assert "--allow-no-state and another job name" in later.log()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("step", "restarts"),
    [
        pytest.param("starting Spark", 0, id="before Spark runs: Spark starts another one"),
        pytest.param("claiming the sinks", 1, id="before the query starts"),
    ],
)
def test_the_service_killed_within_the_first_start_is_followed_by_another(
    step: str, restarts: int, kafka: Kafka, settings: dict[str, object], start: Start
) -> None:
    shop = Shop.open(f"starting-{restarts}", kafka, settings | {"job.restarts": restarts}, letters=2)
    program = start(shop, wait=False)
    os.kill(program.first("-m lowtide.service ", step), signal.SIGKILL)
    state = program.running(restarts)
    assert state.restarts == restarts
    with Load(shop):
        program.moved()
    assert shop.judge.right()
    program.stop()


@pytest.mark.nightly
def test_a_job_goes_on_at_other_widths_from_a_commit_that_others_made(
    kafka: Kafka, settings: dict[str, object], start: Start
) -> None:
    """2, 4 and 3 workers of each level, each life killed under load, with a snapshot in each."""
    first = Shop.open("widths", kafka, settings, lanes=4, letters=4)
    for number, parallelism in enumerate((2, 4, 3), 1):
        shop = first.but(job__parallelism=parallelism)
        program = start(shop)
        with Load(shop, first=100_000 * number):
            program.moved()
            committed = take(program.client, shop.name, None, limit_s=HANGS_S)
            program.moved()
            program.process.kill()
            program.ended()
        assert committed.id.startswith(f"{number:06d}-")
    program = start(first.but(job__parallelism=1))
    assert first.judge.right()
    assert f"beginning from commit {committed.id}" in program.log()
    program.stop()


def test_a_snapshot_is_taken_while_a_job_catches_up_and_mends(
    kafka: Kafka, settings: dict[str, object], start: Start, tmp_path: Path
) -> None:
    """One partition lies an hour behind the other; the life after it goes on from there, and replays the rest."""
    hour_ms = 3_600_000
    held_back = settings | {"job.max_front_lead_ms": 5_000}
    slow = tmp_path / "slow"
    slow.touch()
    written = "tests.test_recovery:slowly"
    shop = replace(Shop.open("catching-up", kafka, held_back), crawls=str(slow), written_by=written)
    shop.produce(range(BEHIND), at_ms=now_ms() - hour_ms, partitions=(0,), step_ms=250)
    shop.produce(range(BEHIND), at_ms=now_ms() - hour_ms, partitions=(1,), step_ms=150)
    program = start(shop)
    wait_until(lambda: program.client.status().totals.delivered, HANGS_S, "the job has begun to catch up")
    committed = take(program.client, shop.name, None, limit_s=HANGS_S)
    slow.unlink()
    assert committed.min_time_ms is not None
    assert committed.min_time_ms < now_ms() - hour_ms / 60, "it was still behind"
    program.process.kill()
    program.ended()
    program = start(shop)
    assert f"beginning from commit {committed.id}" in program.log()
    assert shop.judge.right()
    assert program.client.status().totals.records_in < BEHIND * 2, "it has not read all of it again"
    program.stop()
