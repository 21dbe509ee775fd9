"""What the page's looks need of Airflow: its jobs file, and its connections."""

from __future__ import annotations

from airflow.configuration import conf
from airflow.sdk.exceptions import AirflowException

from lowtide_airflow.errors import PlaceRefused
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.place import Place
from lowtide_airflow.ui.watching import Watching

__all__ = ["watching"]


def watching() -> Watching:
    """Return what looks at the jobs of this Airflow."""
    return Watching(_entries, _place, LowtideHook.default_conn_name)


def _entries() -> tuple[JobEntry, ...]:
    return read_jobs(conf.get("core", "dags_folder"))


def _place(connection: str) -> Place:
    try:
        return LowtideHook(connection).get_conn()
    except AirflowException as error:
        raise PlaceRefused(
            f"Airflow has no connection {connection!r}",
            where="Airflow's connections",
            way_out="make one of type lowtide with this id, or name another in the jobs file",
        ) from error
