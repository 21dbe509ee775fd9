"""A job whose driver runs in a standalone cluster, where Airflow's `spark-submit --deploy-mode cluster` puts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.waiting import HANGS_S, wait_until

from lowtide.driver.session import jars
from lowtide.embedded.ports import free_port
from lowtide.jars.third_party import pyspark_folder
from lowtide_airflow.job.program import Start
from lowtide_airflow.job.spark_submit import SparkSubmit
from lowtide_airflow.jobs_file import SparkEntry
from lowtide_snapshots.job.store import JobStore

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]
WITHIN_S = HANGS_S
FLOW = """
from dataclasses import dataclass

import lowtide


@dataclass(frozen=True)
class Order:
    user: str
    number: int


@dataclass(frozen=True)
class Count:
    so_far: int = 0


@dataclass(frozen=True)
class Seen:
    user: str
    number: int
    so_far: int


def count(state: Count, order: Order) -> tuple[Count, Seen]:
    after = Count(state.so_far + 1)
    return after, Seen(order.user, order.number, after.so_far)


flow = lowtide.Flow("{job}")
orders = flow.read("orders", lowtide.kafka("{source}", lowtide.json(Order)))
counted = orders.key_by("user").scan("count", count, Count())
counted.write("out", lowtide.kafka("{sink}", lowtide.json(Seen), key="user"))
lowtide.main(flow)
"""


@contextmanager
def running(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    """A service of Spark's, from its start to its end."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(pyspark_folder())}
    command = [str(pyspark_folder() / "bin/spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
    with (folder / f"{name}.log").open("w") as log:
        service = subprocess.Popen([*command, *arguments], stdout=log, stderr=log, env=environment, process_group=0)
    try:
        yield
    finally:
        os.killpg(service.pid, signal.SIGTERM)
        service.wait(WITHIN_S)


def said_by(service: str, folder: Path) -> str:
    return (folder / f"{service}.log").read_text()


@pytest.fixture(name="master")
def _master(tmp_path: Path) -> Iterator[str]:
    """A cluster of one worker, in whose folder the drivers run."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as services:
        services.enter_context(running(tmp_path, "master.Master", "--port", str(port), "--webui-port", "0"))
        wait_until(lambda: "ALIVE" in said_by("master.Master", tmp_path), WITHIN_S, "a master")
        place = ["--cores", "8", "--memory", "3g", "--work-dir", str(tmp_path / "work"), "--webui-port", "0"]
        services.enter_context(running(tmp_path, "worker.Worker", *place, master))
        wait_until(lambda: "registered with master" in said_by("worker.Worker", tmp_path), WITHIN_S, "a worker")
        yield master


def ended(folder: Path) -> list[str]:
    """How the drivers that have ended did so, in this order."""
    return re.findall(r"Driver driver-\S+ (exited .*)", said_by("worker.Worker", folder))


def said_by_drivers(folder: Path) -> str:
    return "\n".join(file.read_text()[-3000:] for file in sorted(folder.glob("work/driver-*/std*")))


def test_the_driver_runs_in_the_cluster_and_one_key_begins_one_life(
    kafka: Kafka,
    zookeeper: str,
    master: str,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, source, sink = unique("orders"), kafka.topic("orders", 2), kafka.topic("out", 2)
    (tmp_path / "orders.py").write_text(FLOW.format(job=job, source=source, sink=sink))
    (tmp_path / "orders.toml").write_text(
        f'[kafka]\nbootstrap_servers = "{kafka.address}"\ntransactions = "v2"\n[zookeeper]\nhosts = "{zookeeper}"\n'
        f'[snapshots]\nurl = "{tmp_path}/snapshots"\n[spark]\ncheckpoint_folder = "{tmp_path}/checkpoints"\n'
        f'[job]\nfolder = "{tmp_path}/jobs"\n'
        "[epoch]\nduration_s = 5.0\n[embedded]\nenabled = false\n"
    )
    for partition in (0, 1):
        orders = [{"user": f"user-{number % 5}", "number": number} for number in range(partition, 400, 2)]
        kafka.produce(source, orders, partition)
    spark = SparkEntry(
        master,
        python=sys.executable,
        jars=tuple(f"local://{jar}" for jar in jars()),
        properties={
            "spark.cores.max": "6",
            "spark.driver.memory": "700m",
            "spark.executor.memory": "700m",
            # Executors have no jars of Kafka's own producer but those that Spark brings them.
            "spark.executorEnv.LOWTIDE_CACHE": str(tmp_path / "executors' cache"),
        },
    )
    monkeypatch.setenv("SPARK_HOME", str(pyspark_folder()))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    submit = SparkSubmit(job, spark, str(pyspark_folder() / "bin/spark-submit"), limit_s=WITHIN_S)
    start = Start(f"local://{tmp_path}/orders.py", f"local://{tmp_path}/orders.toml")
    said: list[object] = []
    submit.submit(start, "airflow:first", said.append)
    assert len(kafka.records(sink, 400, WITHIN_S)) == 400, said_by_drivers(tmp_path)

    submit.submit(start, "airflow:first", said.append)
    wait_until(lambda: ended(tmp_path) == ["exited with failure"], WITHIN_S, "the second driver ends")
    with JobStore(zookeeper, job) as store:
        assert store.incarnation() == 1

    lowtide = [sys.executable, "-m", "lowtide.cli", "stop", job, "--conf", "orders.toml"]
    subprocess.run(lowtide, cwd=tmp_path, check=True, timeout=WITHIN_S)
    both = ["exited with failure", "exited successfully"]
    wait_until(lambda: ended(tmp_path) == both, WITHIN_S, "the first driver ends")
    assert len(kafka.records(sink, 400)) == 400
