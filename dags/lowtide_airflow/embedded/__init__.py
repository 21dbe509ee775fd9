"""A real Airflow on loopback, process by process: scheduler, triggerer, DAG processor, API server; sqlite, one folder.

with EmbeddedAirflow(home, Settings(dags=folder)) as airflow:    # it dies with this process
    airflow.url, airflow.home.passwords_file
    api = airflow.api("op")
    run = api.trigger("some_dag", {"parameter": 1})
    api.wait("some_dag", run.id, limit_s=60)

`python -m lowtide_airflow.embedded --home DIR --dags DIR` runs one until Ctrl-C. It is for demonstrations and tests:
`airflow standalone` leaves processes behind when it is stopped, and listens on every address.
"""

from lowtide_airflow.embedded.airflow import EmbeddedAirflow
from lowtide_airflow.embedded.api import AirflowApi
from lowtide_airflow.embedded.errors import (
    AirflowDied,
    AirflowRefused,
    AirflowSilent,
    EmbeddedError,
    HomeInUse,
    PortTaken,
    RunFailed,
)
from lowtide_airflow.embedded.home import Home, Settings
from lowtide_airflow.embedded.records import Dag, DagRun, Health, TaskRun

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
