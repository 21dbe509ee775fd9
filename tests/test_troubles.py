"""Five troubles of one real job: `status` names each and its way out, which ends it; nothing is lost or doubled."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import unique
from tests.judging import Judge
from tests.waiting import HANGS_S, wait_until

import lowtide as lt
from lowtide.cli.snapshot import take
from lowtide.cli.status_page import show
from lowtide.driver.job import Job
from lowtide.errors import SnapshotFailed
from lowtide.sinks.postgres.columns import ddl_of
from lowtide.status.job_view import JobView, TroubleKind, TroubleView

if TYPE_CHECKING:
    from tests.conftest import Spark
    from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres, pytest.mark.slow]
DISK_MB = 96
READ_BY_ALL, HELD_BACK = (0, 1), 2
"""Partitions: those that are written to all the time, and the one with the transaction that does not end."""


@dataclass(frozen=True)
class Order:
    user: str
    number: int
    so_far: int = 0


class Count:
    """Counts the orders of a user; does not return while one file is there, and takes its time while another is."""

    def __init__(self, folder: Path) -> None:
        self._hangs, self._crawls = str(folder / "hangs"), str(folder / "crawls")

    def __call__(self, so_far: int, order: Order) -> tuple[int, Order]:
        while os.path.exists(self._hangs):
            time.sleep(0.05)
        if os.path.exists(self._crawls):
            time.sleep(0.2)
        return so_far + 1, replace(order, so_far=so_far + 1)


def refuse(order: Order) -> Order:
    if order.number < 0:
        raise ValueError(f"{order.user} owes us")
    return order


class Disk:
    """A small disk of its own, as root may mount one; else a folder, and what fills it is left out."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self._ballast = folder, folder / "ballast"
        options = ("-t", "tmpfs", "-o", f"size={DISK_MB}m", "lowtide-test", str(folder))
        self.there = not os.geteuid() and not subprocess.run(["mount", *options], check=False).returncode

    @contextmanager
    def full(self, left_mb: int = 0) -> Iterator[None]:
        """Leave so much room on it while the block lasts."""
        if not self.there:
            pytest.skip("a disk of its own takes root, and the right to mount")
        room = os.statvfs(self.folder)
        with self._ballast.open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, room.f_bavail * room.f_frsize - (left_mb << 20))
        yield
        self._ballast.unlink()

    def close(self) -> None:
        if self.there:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


class Troubled:
    """A job under load, in which each trouble can be staged."""

    def __init__(self, spark: Spark, postgres: PostgresServer, folder: Path) -> None:
        self.spark, self.postgres, self.folder = spark, postgres, folder
        self.topic = spark.kafka.topic("orders", 3)
        self.letters = spark.kafka.topic("letters", 1)
        self.table = unique("t").replace("-", "_")
        self.snapshots, self.state = Disk(folder / "snapshots"), Disk(folder / "state")
        self._number = 0
        self._over = threading.Event()
        self._feeding = threading.Thread(target=self._feed)
        self.job: Job

    def flow(self) -> lt.Flow:
        flow = lt.Flow(self._name, dead_letters=lt.kafka(self.letters, lt.raw()))
        orders = flow.read("orders", lt.kafka(self.topic, lt.json(Order))).map(refuse).key_by("user")
        counted = orders.scan("count", Count(self.folder), 0)
        counted.write("out", lt.kafka(self._out, lt.json(Order), key="user"))
        counted.write("rows", lt.postgres(self.table, Order))
        return flow

    @contextmanager
    def running(self) -> Iterator[None]:
        self._name, self._out = unique("troubled"), self.spark.kafka.topic("out", 2)
        flow: Any = self.flow()
        [sink] = [call.step.sink for call in flow.calls if hasattr(getattr(call.step, "sink", None), "columns")]
        self.postgres.ask(ddl_of(sink.columns))
        try:
            with self.spark.job(flow, **self.settings()) as job:
                self.job = job
                self._feeding.start()
                yield
        finally:
            self.end_load()
            self.snapshots.close()
            self.state.close()

    def settings(self) -> dict[str, object]:
        database = {f"postgres__default__{key}": value for key, value in self.postgres.settings.items()}
        disk = {"state__backend": "disk", "state__memory_mb": 0, "state__folder": str(self.state.folder)}
        return database | disk | {"snapshots__url": str(self.snapshots.folder), "job__lanes": 2}

    def produce(self, partition: int, *numbers: int) -> None:
        orders = [Order(f"user-{abs(number) % 7}", number) for number in numbers]
        self.spark.kafka.produce(self.topic, map(asdict, orders), partition)

    def _feed(self) -> None:
        while not self._over.wait(0.2):
            for partition in READ_BY_ALL:
                self._number += 1
                self.produce(partition, self._number)

    def view(self) -> JobView:
        view = self.job.client().status()
        assert view.phase == "running", str(view.cause)
        return view

    def find(self, kind: TroubleKind, name: str) -> tuple[TroubleView, str]:
        """Wait for a trouble; returns it, and what `lowtide status` prints then."""
        wait_until(lambda: self._has(kind, name), HANGS_S, f"{kind}: {name}")
        view = self.view()
        [found] = [each for each in view.found if (each.kind, each.name) == (kind, name)]
        printed = StringIO()
        show(view, printed)
        assert found.says in view.troubles
        return found, " ".join(printed.getvalue().split())

    def is_over(self, kind: TroubleKind, name: str) -> None:
        wait_until(lambda: not self._has(kind, name), HANGS_S, f"no longer {kind}: {name}")

    def _has(self, kind: TroubleKind, name: str) -> bool:
        return any((each.kind, each.name) == (kind, name) for each in self.view().found)

    def end_load(self) -> None:
        """No record comes after this."""
        self._over.set()
        if self._feeding.is_alive():
            self._feeding.join()


@pytest.fixture(name="troubled", scope="module")
def _troubled(spark: Spark, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubled]:
    troubled = Troubled(spark, postgres, tmp_path_factory.mktemp("troubled"))
    with troubled.running():
        yield troubled


@pytest.fixture(name="hanging_writer", scope="module", autouse=True)
def _hanging_writer(troubled: Troubled) -> Any:
    """One that has written to a partition and does not end its transaction; from the beginning, as it takes long."""
    from confluent_kafka import Producer

    own = {"transactional.id": unique("writer"), "transaction.timeout.ms": 600_000}
    writer = Producer({"bootstrap.servers": troubled.spark.kafka.address, **own})
    writer.init_transactions(HANGS_S)
    writer.begin_transaction()
    writer.produce(troubled.topic, b'{"user": "user-1", "number": 100000001}', partition=HELD_BACK)
    assert writer.flush(HANGS_S) == 0
    troubled.produce(HELD_BACK, 100_000_002, 100_000_003)
    return writer


def test_a_function_that_does_not_return_is_named_with_its_step(troubled: Troubled) -> None:
    hangs = troubled.folder / "hangs"
    hangs.touch()
    found, printed = troubled.find("slow step", "count")
    hangs.unlink()
    assert re.search(
        r"function Count.__call__ \(.*test_troubles.py:\d+\) has not returned for \d+ s in worker 1/", printed
    )
    assert f"lowtide logs {troubled.job.plan.name}" in printed
    assert "worker.call_limit_s" in printed
    assert found.headline == 'step "count" is slow'
    troubled.is_over("slow step", "count")


def test_dead_letters_are_named_with_the_step_that_gives_them_and_the_record(troubled: Troubled) -> None:
    troubled.produce(0, -1, -2)
    found, printed = troubled.find("dead letters", "refuse")
    assert found.headline == '"refuse" gives records to the dead letters'
    assert re.search(
        rf'"refuse" gives records to the dead letters: [12] so far, in topic "{troubled.letters}"; '
        rf"the last at {troubled.topic}-0, offset \d+: raised ValueError: user-[12] owes us",
        printed,
    )
    assert "lowtide topic letters flow.py" in printed


def test_a_store_that_takes_nothing_is_named_with_its_sink(troubled: Troubled) -> None:
    troubled.postgres.stop("immediate")
    _, printed = troubled.find("dry sink", "rows")
    view = troubled.view()
    troubled.postgres.start()
    [dry] = [sink for sink in view.sinks if sink.sink == "rows"]
    assert dry.waiting > 0
    assert [sink.waiting < dry.waiting for sink in view.sinks if sink.sink == "out"] == [True], "the other one goes on"
    assert re.search(
        r'sink "rows" takes nothing: [\d,]+ records? wait for PostgreSQL at .*Connection refused', printed
    ), printed
    assert "Does PostgreSQL run and take writes?" in printed
    troubled.is_over("dry sink", "rows")


def test_a_full_disk_of_snapshots_is_named_with_its_folder(troubled: Troubled) -> None:
    name, folder = troubled.job.plan.name, str(troubled.snapshots.folder)
    with troubled.snapshots.full():
        with pytest.raises(SnapshotFailed, match="No space left on device"):
            take(troubled.job.client(), name, None, limit_s=HANGS_S)
        _, printed = troubled.find("full disk", folder)
    assert f"the disk of the snapshots is nearly full: {folder} has 0 MiB left of {DISK_MB} MiB" in printed
    assert f"lowtide snapshots prune {name}" in printed
    assert take(troubled.job.client(), name, None, limit_s=HANGS_S).phase == "committed"
    troubled.is_over("full disk", folder)


def test_a_full_disk_of_state_is_named_with_the_step_that_keeps_most(troubled: Troubled) -> None:
    with troubled.state.full(left_mb=16):
        wait_until(lambda: any(each.kind == "full disk" for each in troubled.view().found), HANGS_S, "a full disk")
        [folder] = [each.name for each in troubled.view().found if each.kind == "full disk"]
        _, printed = troubled.find("full disk", folder)
    assert folder.startswith(str(troubled.state.folder))
    assert re.search(rf"the disk of the state is nearly full: {folder} has \d+ MiB left of {DISK_MB} MiB", printed)
    assert 'step "count" has most of it' in printed
    assert "state.folder" in printed
    troubled.is_over("full disk", folder)


def test_a_partition_that_a_hanging_writer_holds_back_is_named(troubled: Troubled, hanging_writer: Any) -> None:
    partition = f"{troubled.topic}-{HELD_BACK}"
    found, printed = troubled.find("silent partition", partition)
    assert re.search(rf"partition {partition} is silent: a transaction of its writer is open at offset 0,", printed)
    assert "kafka-transactions.sh find-hanging" in printed
    lasted_s = (troubled.view().seen_ms or 0) / 1000 - found.since_ms / 1000
    assert lasted_s >= 30
    hanging_writer.abort_transaction(HANGS_S)
    troubled.is_over("silent partition", partition)


def test_after_all_troubles_what_is_delivered_is_right(troubled: Troubled) -> None:
    troubled.end_load()
    conf = troubled.spark.conf(**troubled.settings())
    assert Judge(troubled.flow(), conf).right()
    out = sorted((each["user"], each["number"], each["so_far"]) for each in troubled.spark.kafka.records(troubled._out))
    asked = f'select "user", number, so_far from {troubled.table}'
    wait_until(lambda: len(troubled.postgres.ask(asked)) >= len(out), HANGS_S, "all rows")
    assert sorted(troubled.postgres.ask(asked)) == out
    assert [each.kind for each in troubled.view().found] == ["dead letters"]
