"""One Airflow, with one job in its jobs file, for all tests of this folder: starting it takes 20 s and more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from embedded_airflow import AirflowApi, DagRun, EmbeddedAirflow, Settings
from embedded_airflow.airflow import PARTS
from tests.waiting import HANGS_S, wait_until

from lowtide.jobs.folder import JobFolder
from lowtide_airflow.cli import dag_files
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.services import Services

if TYPE_CHECKING:
    from tests.conftest import Kafka

JOB = "counting"
HOURS = "hours"
"""A job that no program runs."""
TOKEN = "a-token-that-only-tests-have"
SNAPSHOT_EVERY_S = 8
HEARTBEAT_LIMIT_S = 15
SUBMIT_WITHIN_S = 150.0

FLOW = """\
from dataclasses import dataclass

import lowtide as lt
from lowtide import Flow, json, kafka


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Sum:
    amount: int = 0


@dataclass(frozen=True)
class Total:
    customer: str
    amount: int


def add(sum: Sum, order: Order) -> tuple[Sum, Total]:
    return Sum(sum.amount + order.amount), Total(order.customer, sum.amount + order.amount)


flow = Flow("{job}")
(
    flow.read("orders", kafka("{orders}", json(Order)))
    .key_by("customer").scan("sums", add, Sum())
    .write("totals", kafka("{totals}", json(Total), key="customer"))
)

if __name__ == "__main__":
    lt.main(flow)
"""
CONF = """\
[job]
folder = "{folder}/jobs"
start_limit_s = 120.0
[kafka]
bootstrap_servers = "{kafka}"
[zookeeper]
hosts = "{zookeeper}"
[spark]
checkpoint_folder = "{folder}/checkpoints"
[exchange]
units = 16
[snapshots]
url = "{folder}/snapshots"
max_commit_age_s = 0.0
[control]
token_file = "{folder}/token"
[embedded]
enabled = false
"""
JOBS = """\
[[job]]
name = "{job}"
flow = "{folder}/flow.py"
snapshot = "{every} seconds"
keep = 50
recover = true

[[job]]
name = "{hours}"
flow = "{folder}/flow.py"
snapshot = "never"
recover = false
hour_complete = true
"""


LAKE = "lake"
"""A job that no program runs, with a sink of files."""
LAKE_FLOW = """\
from dataclasses import dataclass

import lowtide as lt


@dataclass(frozen=True)
class Order:
    number: int
    country: str


place = "{folder}/lake/dt={{tick:%Y-%m-%d}}/hour={{tick:%H}}/"
flow = lt.Flow("{job}")
orders = flow.read("orders", lt.kafka("{orders}", lt.json(Order)))
orders.write("archive", lt.files(place, lt.parquet(Order), partition_by=["country"]))
"""
LAKE_DAG = """\
import duckdb
from airflow.sdk import DAG, task
from lowtide_airflow.assets import event_payloads, files_asset

with DAG("lake_hours", schedule=[files_asset("{job}", "archive")]):

    @task
    def read(**context):
        found = []
        for hour in event_payloads(context):
            rows = []
            if duckdb.execute("from glob(?)", [hour["files"]]).fetchall():
                rows = duckdb.execute("select number from read_parquet(?)", [hour["files"]]).fetchall()
            (listed,) = duckdb.execute("select rows from read_json(?)", [hour["done"]]).fetchone()
            found.append({{**hour, "numbers": [number for number, in rows], "listed": listed}})
        return found

    read()
"""


ATTACHED_DAGS = """\
from airflow.sdk import DAG
from lowtide_airflow.operators import RunFlowOperator

for name, deferrable in (("working", False), ("deferred", True)):
    with DAG(f"attached_{{name}}"):
        RunFlowOperator(
            task_id="run", job="{job}", flow="{folder}/flow.py", deferrable=deferrable, retries=0,
            wait_for_completion=True, stop_on_kill=True,
        )
"""


@dataclass(frozen=True)
class Stage:
    """What the tests play on.

    Attributes:
        airflow: Airflow.
        folder: With the job's conf, its flow, its snapshots and what it tells of itself.
        kafka: Where the topic of its orders is.
        orders: That topic.
        totals: The topic that it delivers to.
        zookeeper: Where its place is.
    """

    airflow: EmbeddedAirflow
    folder: Path
    kafka: Kafka
    orders: str
    totals: str
    zookeeper: str

    @property
    def api(self) -> AirflowApi:
        return self.airflow.api("op")

    @property
    def jobs(self) -> JobFolder:
        return JobFolder(self.folder / "jobs", JOB)

    def dag(self, purpose: str) -> str:
        return f"lowtide_{purpose}__{JOB}"

    def client(self) -> JobClient:
        """The job as Airflow sees it; a context."""
        return JobClient(Services(self.zookeeper, snapshots_url=str(self.folder / "snapshots"), token=TOKEN), JOB)

    def runs_job(self) -> bool:
        state = self.jobs.state()
        return state is not None and not state.seen().ended

    def submit(self) -> None:
        """Have Airflow start the job, unless it runs."""
        if not self.runs_job():
            self.api.unpause(self.dag("submit"))
            run = self.api.trigger(self.dag("submit"))
            self.api.wait(run.dag, run.id, SUBMIT_WITHIN_S)
        assert self.runs_job()

    def stop_job(self) -> None:
        if self.runs_job():
            words = ["lowtide.cli", "stop", JOB, "--conf", str(self.folder / "lowtide.toml")]
            subprocess.run([sys.executable, "-m", *words], check=True, timeout=90, capture_output=True)

    @contextmanager
    def snapshots(self) -> Iterator[None]:
        """Have snapshots taken on schedule, and see the last run through."""
        dag = self.dag("snapshot")
        self.api.unpause(dag)
        try:
            yield
        finally:
            wait_until(lambda: self.api.pause_between_runs(dag), HANGS_S, "the end of the last run")

    def ended_snapshot_runs(self) -> set[str]:
        return {run.id for run in self.api.runs(self.dag("snapshot")) if run.over}

    def snapshot_runs(self, before: Collection[str]) -> list[DagRun]:
        """The runs that have begun since; one that was due when the DAG was paused has not."""
        return [run for run in self.api.runs(self.dag("snapshot")) if run.id not in before and run.state != "queued"]

    def states(self, run: DagRun) -> set[str | None]:
        """In which states the tasks of a run are."""
        return {task.state for task in self.api.tasks(run.dag, run.id)}

    def order(self, count: int = 20) -> None:
        """Give the job something to do."""
        self.kafka.produce(self.orders, ({"customer": f"c{number % 5}", "amount": number} for number in range(count)))


@pytest.fixture(name="stage", scope="session")
def _stage(kafka: Kafka, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("airflow")
    orders = kafka.topic("orders")
    totals = kafka.topic("totals", 2)
    names = {"job": JOB, "orders": orders, "totals": totals}
    (folder / "flow.py").write_text(FLOW.format(**names))
    (folder / "lowtide.toml").write_text(CONF.format(folder=folder, kafka=kafka.address, zookeeper=zookeeper))
    (folder / "airflow.toml").write_text(JOBS.format(job=JOB, hours=HOURS, folder=folder, every=SNAPSHOT_EVERY_S))
    (folder / "token").write_text(TOKEN)
    (folder / "lake.py").write_text(LAKE_FLOW.format(folder=folder, job=LAKE, orders=orders))
    dags = folder / "dags"
    dags.mkdir()
    for file in dag_files():
        shutil.copy(file, dags)
    (dags / "lake_hours.py").write_text(LAKE_DAG.format(job=LAKE))
    (dags / "attached.py").write_text(ATTACHED_DAGS.format(job=JOB, folder=folder))
    commands = Path(sys.executable).parent
    extra = {
        "snapshots_url": str(folder / "snapshots"), "lowtide": str(commands / "lowtide"),
        "conf": str(folder / "lowtide.toml"), "folder": str(folder),
    }  # fmt: skip
    connection = {"conn_type": "lowtide", "host": zookeeper, "password": TOKEN, "extra": extra}
    environment = {
        "LOWTIDE_AIRFLOW_CONF": str(folder / "airflow.toml"),
        "AIRFLOW_CONN_LOWTIDE_DEFAULT": json.dumps(connection),
        "PATH": f"{commands}:{os.environ['PATH']}",
    }
    settings = Settings(dags=dags, heartbeat_limit_s=HEARTBEAT_LIMIT_S)
    airflow = EmbeddedAirflow(folder / "home", settings, environment=environment)
    stage = Stage(airflow, folder, kafka, orders, totals, zookeeper)
    with ExitStack() as stack:
        stack.callback(stage.stop_job)
        stack.enter_context(airflow)
        stage.api.wait_for_dags([stage.dag(purpose) for purpose in ("submit", "snapshot", "recover")], HANGS_S)
        stage.api.unpause(stage.dag("recover"))
        stage.api.read_again(stage.dag("recover"))
        yield stage
        airflow.__exit__()
        assert [pid for name in PARTS for pid in airflow.part(name).processes()] == []
