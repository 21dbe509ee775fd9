"""An Airflow API server, and nothing else of Airflow, with jobs in every state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from controlled import TOKEN
from embedded_airflow import EmbeddedAirflow, Settings
from tests.airflow_page.jobs import Jobs, jobs

SECRET = "page-tests:a-password-of-zookeeper"
JOBS = """\
[[job]]
name = "{living}"
flow = "flow.py"
recover = false
[[job]]
name = "{dead}"
flow = "flow.py"
contact = "the stream team, +49 30 1234"
[[job]]
name = "elsewhere"
flow = "flow.py"
connection = "lowtide_away"
[[job]]
name = "to come"
flow = "flow.py"
[[job]]
name = "unconnected"
flow = "flow.py"
connection = "lowtide_missing"
"""


@dataclass(frozen=True)
class Page:
    """The page under a real API server, and the jobs that it shows."""

    airflow: EmbeddedAirflow
    jobs: Jobs

    @property
    def url(self) -> str:
        return f"{self.airflow.url}/lowtide/"

    def password(self, user: str) -> str:
        return self.airflow.home.passwords()[user]

    def token(self, user: str) -> str:
        body = {"username": user, "password": self.password(user)}
        answer = httpx.post(f"{self.airflow.url}/auth/token", json=body, timeout=120, trust_env=False)
        return str(answer.raise_for_status().json()["access_token"])

    def get(self, path: str, user: str | None = "viewer", **headers: str) -> httpx.Response:
        shown = {"Authorization": f"Bearer {self.token(user)}"} if user else {}
        return httpx.get(f"{self.url}{path}", headers=shown | headers, timeout=120, trust_env=False)

    def job(self, name: str, *, connection: str = "lowtide_default", since_ms: int = 0) -> dict[str, Any]:
        """The page's view of a job."""
        query = httpx.QueryParams({"job": name, "connection": connection, "since_ms": since_ms})
        answer: dict[str, Any] = self.get(f"api/job?{query}").raise_for_status().json()
        return answer


@pytest.fixture(name="page", scope="session")
def _page(zookeeper: str, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "dags").mkdir()
    with jobs(zookeeper, folder / "snapshots", unique) as made:
        (folder / "airflow.toml").write_text(JOBS.format(living=made.living, dead=made.dead))
        environment = {
            "LOWTIDE_AIRFLOW_CONF": str(folder / "airflow.toml"),
            "AIRFLOW_CONN_LOWTIDE_DEFAULT": connection(zookeeper, folder / "snapshots"),
        }
        settings = Settings(dags=folder / "dags")
        with EmbeddedAirflow(folder / "home", settings, environment=environment, parts=["api-server"]) as airflow:
            # One in Airflow's database, the other one in the environment: the page finds both.
            away = {"connection_id": "lowtide_away", "conn_type": "lowtide", "host": "127.0.0.1", "port": 1}
            airflow.api()._send("POST", "/api/v2/connections", json=away)
            yield Page(airflow, made)


def connection(zookeeper: str, snapshots: Path) -> str:
    extra = {"snapshots_url": str(snapshots), "zookeeper_password": SECRET}
    return json.dumps({"conn_type": "lowtide", "host": zookeeper, "password": TOKEN, "extra": extra})
