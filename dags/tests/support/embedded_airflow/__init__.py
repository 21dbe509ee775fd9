"""A real Airflow on loopback for tests and demonstrations: its four processes on sqlite in one folder.

with EmbeddedAirflow(home, Settings(dags=folder)) as airflow:    # it ends with this process
    airflow.url, airflow.home.passwords_file
    api = airflow.api("op")
    run = api.trigger("some_dag", {"parameter": 1})
    api.wait("some_dag", run.id, limit_s=60)

`python -m embedded_airflow --home DIR --dags DIR` runs one until Ctrl-C. Unlike `airflow standalone` it leaves no
processes behind when it is stopped, and listens on loopback only.
"""

from embedded_airflow.airflow import EmbeddedAirflow
from embedded_airflow.api import AirflowApi, Dag, DagRun, Health, TaskRun
from embedded_airflow.errors import (
    AirflowDied,
    AirflowRefused,
    AirflowSilent,
    EmbeddedError,
    HomeInUse,
    PortTaken,
    RunFailed,
)
from embedded_airflow.home import Home, Settings

__all__ = [
    "AirflowApi",
    "AirflowDied",
    "AirflowRefused",
    "AirflowSilent",
    "Dag",
    "DagRun",
    "EmbeddedAirflow",
    "EmbeddedError",
    "Health",
    "Home",
    "HomeInUse",
    "PortTaken",
    "RunFailed",
    "Settings",
    "TaskRun",
]
