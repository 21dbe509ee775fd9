"""One job that Airflow runs, and a program that runs its DAGs without a scheduler, for all tests of this folder."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.dag_runs.dag_program import ROOT, DagProgram, Done
from tests.settings import settings_of
from tests.shop import Shop
from tests.waiting import HANGS_S, wait_until

from lowtide.jobs.folder import JobFolder
from lowtide.process.mark import marked
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.services import Services
from tests.driver import below

if TYPE_CHECKING:
    from tests.conftest import Kafka

TOKEN = "a-token-that-only-tests-have"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LANES = 2
SLOTS = 8
FLOW = """
from pathlib import Path

from tests.shop import Shop

flow = Shop.from_json((Path(__file__).parent / "shop.json").read_text()).flow()
"""


@dataclass
class Stage:
    """What the tests play on: a job that is not started yet, its jobs file and its connection.

    Attributes:
        program: runs its DAGs.
    """

    shop: Shop
    folder: Path
    services: Services
    environment: dict[str, str]
    program: DagProgram

    @property
    def name(self) -> str:
        return self.shop.name

    def dag(self, purpose: str) -> str:
        return f"lowtide_{purpose}__{self.name}"

    def run(self, purpose: str, **conf: Any) -> Done:
        """Run one of its DAGs, and see that it succeeds."""
        done = self.program.run(self.dag(purpose), conf)
        assert done.state == "success", f"{done}\n{self.program.log()}"
        return done

    def client(self) -> JobClient:
        """The job as Airflow sees it; a context."""
        return JobClient(self.services, self.name)

    @property
    def job(self) -> JobFolder:
        return JobFolder(self.folder / "jobs", self.name)

    def running(self) -> int:
        """See that it runs, starting it if it does not; its incarnation."""
        with self.client() as client:
            if client.status().state != "running":
                self.run("submit")
            status = client.status()
        assert status.state == "running"
        return status.incarnation

    def kill(self) -> None:
        """SIGKILL to the driver program and to its supervisor, so that nobody writes down that it died.

        A death is one once the lease is free: until then the job counts as running.
        """
        state = self.job.state()
        assert state is not None
        processes = [process for process in (state.runner, state.supervisor) if process is not None]
        for process in processes:
            process.send(signal.SIGKILL)
        wait_until(lambda: not marked(state.life), HANGS_S, "the end of its processes")
        with self.client() as client:
            wait_until(lambda: not client.status().alive, HANGS_S, "the end of its lease")

    def close(self) -> None:
        """Leave nothing behind."""
        self.program.close()
        state = self.job.state()
        for process in (state.supervisor, state.runner) if state is not None else ():
            if process is not None and process.alive():
                for pid in [process.pid, *below(process.pid)]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


@pytest.fixture(name="stage", scope="module")
def _stage(kafka: Kafka, zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("dag_runs")
    (folder / "token").write_text(TOKEN)
    given: dict[str, Any] = {
        **settings_of(kafka, zookeeper, folder, SLOTS),
        "job.folder": str(folder / "jobs"),
        "control.token_file": str(folder / "token"),
        "snapshots.max_commit_age_s": 0.0,
    }
    shop = Shop.open("airflow", kafka, given)
    (folder / "shop.json").write_text(shop.to_json())
    (folder / "flow.py").write_text(FLOW)
    settings = "\n".join(f'"{name}" = {json.dumps(value)}' for name, value in shop.settings.items())
    jobs = f'[[job]]\nname = "{shop.name}"\nflow = "{folder}/flow.py"\nsnapshot = "never"\nkeep = 3\n'
    jobs += f"hour_complete = true\n[job.settings]\n{settings}\n"
    (folder / "airflow.toml").write_text(jobs)
    commands = Path(sys.executable).parent
    services = Services(zookeeper, snapshots_url=str(folder / "snapshots"), token=TOKEN)
    extra = {"snapshots_url": services.snapshots_url, "lowtide": str(commands / "lowtide"), "folder": str(folder)}
    connection = {"conn_type": "lowtide", "host": zookeeper, "password": TOKEN, "extra": extra}
    environment = {
        "LOWTIDE_AIRFLOW_CONF": str(folder / "airflow.toml"),
        "AIRFLOW_CONN_LOWTIDE_DEFAULT": json.dumps(connection),
        "PATH": f"{commands}:{os.environ['PATH']}",
        "JAVA_TOOL_OPTIONS": QUICK_JVM,
    }
    assert (ROOT / "dags/lowtide_submit.py").exists()
    stage = Stage(shop, folder, services, environment, DagProgram(folder / "home", environment))
    yield stage
    stage.close()
