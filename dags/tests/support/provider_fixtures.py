"""The fixtures of the provider's tests. Every run of tests reads them, so that they import late."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from seen_job import Job


@pytest.fixture(name="jobs")
def _jobs(zookeeper: str, tmp_path: Path) -> Iterator[Callable[[], Job]]:
    """Makes jobs that no other test has."""
    from seen_job import Job

    with contextlib.ExitStack() as opened:
        yield lambda: Job(zookeeper, tmp_path, opened)


@pytest.fixture(name="job")
def _job(jobs: Callable[[], Job]) -> Job:
    return jobs()


@pytest.fixture(name="connected")
def _connected(job: Job, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of an operator or a sensor for this job; the connection leads to it."""
    host, _, port = job.services.zookeeper.partition(":")
    extra = {"snapshots_url": job.services.snapshots_url}
    connection = {
        "conn_type": "lowtide",
        "host": host,
        "port": int(port),
        "password": job.services.token,
        "extra": extra,
    }
    monkeypatch.setenv("AIRFLOW_CONN_LOWTIDE_TEST", json.dumps(connection))
    return {"job": job.name, "lowtide_conn_id": "lowtide_test", "deferrable": True}


@pytest.fixture(name="airflow_home", scope="session")
def _airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder for what Airflow writes on import; every importer asks for this first."""
    home = tmp_path_factory.mktemp("airflow")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AIRFLOW_HOME", str(home))
        patched.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        yield home
