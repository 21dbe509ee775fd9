"""The folder of an embedded Airflow: its settings, its users, and the environment of its processes."""

import configparser
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from embedded_airflow import Health, Home, HomeInUse, PortTaken, Settings
from embedded_airflow.airflow import _placed
from embedded_airflow.home import ROLES
from hanging import HANGS_S


@pytest.fixture(name="home")
def _home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    with home.locked():
        home.prepare(Settings(dags=tmp_path / "50% of it"), 20_001)
    return home


def settings(home: Home) -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(home.configuration)
    return parser


def test_passwords_and_secrets_are_for_their_owner_alone(home: Home) -> None:
    for file in (home.passwords_file, home.configuration):
        assert file.stat().st_mode & 0o777 == 0o600
    assert home.folder.stat().st_mode & 0o777 == 0o700
    assert set(home.passwords()) == set(ROLES)
    assert len(set(home.passwords().values())) == len(ROLES)


def test_a_home_keeps_its_passwords_and_secrets_and_takes_new_settings(home: Home, tmp_path: Path) -> None:
    before, passwords = settings(home), home.passwords()
    home.prepare(Settings(dags=tmp_path, workers=5), 20_002)
    after = settings(home)
    assert home.passwords() == passwords
    for section, name in (("core", "fernet_key"), ("api", "secret_key"), ("api_auth", "jwt_secret")):
        assert before[section][name] == after[section][name] != ""
    assert after["core"]["parallelism"] == "5"
    assert after["api"]["port"] == "20002"


def test_everything_listens_on_loopback_and_a_percent_sign_is_no_reference(home: Home, tmp_path: Path) -> None:
    found = settings(home)
    assert found["api"]["host"] == "127.0.0.1"
    assert found["core"]["execution_api_server_url"] == "http://127.0.0.1:20001/execution/"
    assert found["core"]["dags_folder"] == str(tmp_path / "50% of it")


def test_tasks_and_dag_files_find_what_they_import(home: Home, tmp_path: Path) -> None:
    home.prepare(Settings(dags=tmp_path, preload=("wave", "colorsys")), 20_001)
    code = "import sys, airflow_local_settings; print({'wave', 'colorsys'} <= set(sys.modules))"
    for word, known in (("scheduler", "True"), ("dag-processor", "True"), ("api-server", "False")):
        environment = {**os.environ, "PYTHONPATH": str(home.folder / "config")}
        done = subprocess.run(
            [sys.executable, "-c", code, word],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=HANGS_S,
        )
        assert done.stdout.strip() == known


def test_nothing_of_another_airflow_is_inherited(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = ("AIRFLOW_HOME", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW_CONN_OTHER", "_AIRFLOW_PROCESS_CONTEXT")
    for name in foreign:
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("LOWTIDE_AIRFLOW_CONF", "jobs.toml")
    found = home.environment({"AIRFLOW_CONN_OURS": "{}"})
    assert {name for name in found if "AIRFLOW" in name} == {
        "AIRFLOW_HOME", "AIRFLOW_CONN_OURS", "LOWTIDE_AIRFLOW_CONF",
    }  # fmt: skip
    assert found["AIRFLOW_HOME"] == str(home.folder)


def test_a_home_is_for_one_airflow_at_a_time(home: Home) -> None:
    taken = pytest.raises(HomeInUse, match=f"process {os.getpid()} runs an Airflow")
    with home.locked(), taken as error, home.locked():
        pass
    assert "use another folder" in str(error.value)
    with home.locked():
        pass


def test_a_port_that_is_taken_is_refused() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            _placed(port)
    assert _placed(0) > 0


def test_a_heartbeat_of_an_earlier_life_is_no_sign_of_health() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    beats = {"scheduler": 1, "triggerer": -1, "dag_processor": 1}
    reported = {
        name: {"status": "healthy", f"latest_{name}_heartbeat": (began + timedelta(seconds=after)).isoformat()}
        for name, after in beats.items()
    }
    reported["dag_processor"]["status"] = "unhealthy"
    health = Health.of(json.loads(json.dumps({"metadatabase": {"status": "healthy"}, **reported})))
    assert health.missing(began) == ["triggerer", "dag_processor"]
    assert health.missing(began - timedelta(seconds=5)) == ["dag_processor"]
