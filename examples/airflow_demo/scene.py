"""The demonstration's services: Kafka, ZooKeeper, a folder for snapshots, and an Airflow that knows the job."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from demo.running import Job
from demo.showing import Show
from embedded_airflow import AirflowApi, EmbeddedAirflow, Settings
from inverted_index import flow

from lowtide.conf.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.embedded import EmbeddedServices
from lowtide.jobs.folder import JobFolder
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.services import Services

ROOT = Path(__file__).parents[2]
FLOW = ROOT / "examples/inverted_index.py"
FOLDER = ROOT / ".lowtide/airflow"
PARTITIONS = 2
TOKEN_BYTES = 24
DAGS_LIMIT_S = 60.0
AIRFLOW_WORKERS = 2

CONF = """\
[job]
folder = "{folder}/jobs"
grouping = "optimistic"
start_limit_s = 120.0

[kafka]
bootstrap_servers = "{kafka}"

[zookeeper]
hosts = "{zookeeper}"
session_timeout_s = 4.0     # a driver that died leaves its lease so long

[spark]
checkpoint_folder = "{folder}/checkpoints"

[snapshots]
url = "{folder}/snapshots"
max_commit_age_s = 0.0      # Airflow takes them

[control]
token_file = "{folder}/token"

[embedded]
enabled = false
"""

JOBS = """\
[[job]]
name = "{name}"
flow = "{flow}"
snapshot = "{snapshot}"
keep = 5
recover = true
hour_complete = {hour_complete}
owner = "demo"
contact = "any reader"
"""


class Scene:
    """All services while the block lasts; everything it started ends with it, the job too.

    Attributes:
        conf: The job's.
        job: The job as the commands of `lowtide` see it.
        folder: The job's folder with its state.
        services: Kafka and ZooKeeper.
        airflow: Airflow.
    """

    def __init__(self, show: Show, *, snapshot: str, hour_complete: bool) -> None:
        self.conf_file = FOLDER / "lowtide.toml"
        self.folder = JobFolder(FOLDER / "jobs", flow.name)
        self.job = Job(flow.name, FLOW, self.conf_file, FOLDER / "jobs", show.say)
        self._show = show
        self._jobs = JOBS.format(name=flow.name, flow=FLOW, snapshot=snapshot, hour_complete=str(hour_complete).lower())
        self._stack = ExitStack()
        self._airflow = ExitStack()

    def __enter__(self) -> Self:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        with ExitStack() as stack:
            self._show.step("starting Kafka and ZooKeeper")
            stack.callback(shutil.rmtree, FOLDER / "services", ignore_errors=True)
            self.services = stack.enter_context(EmbeddedServices(FOLDER / "services"))
            self._write()
            self.conf = Conf.load(self.conf_file)
            for name in ("documents", "index"):
                Topics(self.conf.kafka).create(name, partitions=PARTITIONS)
            stack.callback(self.job.stop)
            self.airflow = EmbeddedAirflow(
                FOLDER / "home",
                Settings(dags=ROOT / "dags", workers=AIRFLOW_WORKERS),
                environment=self._environment(),
                say=self._show.step,
            )
            self._airflow.enter_context(self.airflow)
            stack.callback(self.end_airflow)
            self.api.wait_for_dags([self.dag(purpose) for purpose in ("submit", "snapshot", "recover")], DAGS_LIMIT_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def api(self) -> AirflowApi:
        """Return Airflow's API, with the rights of an operator."""
        return self.airflow.api("op")

    def dag(self, purpose: str) -> str:
        """Return the id of the job's DAG of this kind."""
        return f"lowtide_{purpose}__{flow.name}"

    def client(self) -> JobClient:
        """Return the job's client as Airflow has it; a context."""
        token = (FOLDER / "token").read_text()
        return JobClient(
            Services(self.services.zookeeper, snapshots_url=str(FOLDER / "snapshots"), token=token), flow.name
        )

    def watch_for_deaths(self) -> None:
        """Have Airflow recover the job if it dies."""
        self.api.unpause(self.dag("recover"))
        self.api.read_again(self.dag("recover"))

    def end_airflow(self) -> None:
        """Stop Airflow; the job continues."""
        self._airflow.close()

    def _write(self) -> None:
        token = FOLDER / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_urlsafe(TOKEN_BYTES))
        services = self.services
        self.conf_file.write_text(CONF.format(folder=FOLDER, kafka=services.kafka, zookeeper=services.zookeeper))
        (FOLDER / "airflow.toml").write_text(self._jobs)

    def _environment(self) -> dict[str, str]:
        """Return the environment of Airflow's processes: the jobs file, and the connection to find and start jobs."""
        commands = Path(sys.executable).parent
        extra = {
            "snapshots_url": str(FOLDER / "snapshots"),
            "lowtide": str(commands / "lowtide"),
            "conf": str(self.conf_file),
            "folder": str(ROOT),
        }
        connection = {
            "conn_type": "lowtide",
            "host": self.services.zookeeper,
            "password": (FOLDER / "token").read_text(),
            "extra": extra,
        }
        return {
            "LOWTIDE_AIRFLOW_CONF": str(FOLDER / "airflow.toml"),
            "AIRFLOW_CONN_LOWTIDE_DEFAULT": json.dumps(connection),
            "PATH": f"{commands}:{os.environ['PATH']}",
        }
