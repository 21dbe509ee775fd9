"""The embedded Airflow's client while Airflow's own processes are still starting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from embedded_airflow import api as api_module
from embedded_airflow.api import AirflowApi
from embedded_airflow.errors import AirflowRefused


class Starting(HTTPServer):
    """Answers the first requests of a kind with 500, as an Airflow whose database is locked does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.faults = 2
        self.asked: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: Starting

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {self.path}")
        body = b'{"access_token": "x", "file_token": "f"}'
        if not self.path.endswith("token") and self.server.asked.count(self.server.asked[-1]) <= self.server.faults:
            self.send_response(500)
            body = b"Database error"
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = answer  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def airflow() -> Iterator[Starting]:
    with Starting() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def api(airflow: Starting, monkeypatch: pytest.MonkeyPatch) -> Iterator[AirflowApi]:
    monkeypatch.setattr(api_module, "POLL_S", 0.01)
    with AirflowApi(f"http://127.0.0.1:{airflow.server_port}", "admin", "secret") as made:
        yield made


def test_a_fault_of_airflows_own_is_asked_about_again(api: AirflowApi, airflow: Starting) -> None:
    api.read_again("shop")
    assert airflow.asked[-3:] == ["PUT /api/v2/parseDagFile/f"] * 3


def test_what_may_not_be_asked_twice_is_not(api: AirflowApi, airflow: Starting) -> None:
    with pytest.raises(AirflowRefused, match="Database error"):
        api.trigger("shop")
    assert airflow.asked[-2:] == ["POST /auth/token", "POST /api/v2/dags/shop/dagRuns"]


def test_a_fault_that_stays_is_said(api: AirflowApi, airflow: Starting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "BUSY_LIMIT_S", 0.1)
    airflow.faults = 1_000_000
    with pytest.raises(AirflowRefused, match="Database error"):
        api.pause_between_runs("shop")
