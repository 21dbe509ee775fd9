"""Links from task instances to the page, and how little of it is loaded where it is not served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.airflow

SUPPORT = Path(__file__).parents[1] / "support"

ASK = """
import json, sys
from lowtide_airflow.ui.links import JobLink, SnapshotLink, page_url
from airflow.sdk import DAG, BaseOperator

class Takes(BaseOperator):
    operator_extra_links = (SnapshotLink(), JobLink())

from airflow_names import DagSerialization
with DAG("d", schedule=None) as dag:
    Takes(task_id="t")
kept = DagSerialization.to_dict(dag)["dag"]["tasks"][0]["__var"]["_operator_extra_links"]
print(json.dumps([
    page_url("orders & more", connection="here", snapshot="000003-0007"), page_url("orders"), kept,
]))
"""
LOAD = """
import json, sys
from airflow import plugins_manager
if hasattr(plugins_manager, "_get_plugins"):
    plugins, errors = plugins_manager._get_plugins()
else:  # before Airflow 3.2
    plugins_manager.ensure_plugins_loaded()
    plugins, errors = plugins_manager.plugins, plugins_manager.import_errors
(ours,) = [each for each in plugins if each.name == "lowtide"]
light = "lowtide_airflow.ui.app" not in sys.modules and "lowtide_airflow.job.client" not in sys.modules
if hasattr(plugins_manager, "get_fastapi_plugins"):
    apps, _ = plugins_manager.get_fastapi_plugins()
else:
    plugins_manager.initialize_fastapi_plugins()
    apps = plugins_manager.fastapi_apps
(app,) = [each for each in apps if each["name"] == "Lowtide"]
print(json.dumps([errors, light, app["url_prefix"], app is ours.fastapi_apps[0]]))
"""


def answer(code: str, folder: Path, **more: str) -> list[object]:
    # In a process of its own: Airflow writes its folder when it is imported.
    environment = {**os.environ, "AIRFLOW_HOME": str(folder), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", **more}
    environment["PYTHONPATH"] = str(SUPPORT)
    asked = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert asked.returncode == 0, asked.stderr
    found: list[object] = json.loads(asked.stdout.splitlines()[-1])
    return found


def test_a_link_leads_into_the_frame_of_airflow_s_page(tmp_path: Path) -> None:
    whole, short, kept = answer(ASK, tmp_path, AIRFLOW__API__BASE_URL="https://airflow.example/base/")
    root = "https://airflow.example/base/plugin/lowtide/lowtide/"
    assert whole == f"{root}?job=orders+%26+more&connection=here&snapshot=000003-0007"
    assert short == f"{root}?job=orders"
    # The scheduler keeps the names alone; what they lead to is what the task has said.
    assert kept == {"Snapshot in Lowtide": "_link_SnapshotLink", "Job in Lowtide": "_link_JobLink"}


def test_without_a_base_url_a_link_stays_on_the_server(tmp_path: Path) -> None:
    _, short, _ = answer(ASK, tmp_path)
    assert short == "/plugin/lowtide/lowtide/?job=orders"


def test_the_page_is_built_only_where_it_is_served(tmp_path: Path) -> None:
    assert answer(LOAD, tmp_path) == [{}, True, "/lowtide", True]
