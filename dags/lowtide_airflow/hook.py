"""The Airflow connection of type `lowtide`: where jobs are found, and with what they are started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.sdk import BaseHook, Connection

from lowtide_airflow.client import JobClient, jobs_at
from lowtide_airflow.errors import PlaceRefused
from lowtide_airflow.place import Place

__all__ = ["LowtideHook", "Programs"]

DEFAULT_PORT = 2181


@dataclass(frozen=True, slots=True)
class Programs:
    """With what jobs are started, on the host that Airflow's worker runs on.

    Attributes:
        lowtide: the command `lowtide`.
        conf: the conf file; empty for Lowtide's defaults.
        folder: the working directory; empty for the worker's.
        spark_submit: the command `spark-submit`.
    """

    lowtide: str = "lowtide"
    conf: str = ""
    folder: str = ""
    spark_submit: str = "spark-submit"


class LowtideHook(BaseHook):
    """Jobs of one ZooKeeper root.

    Args:
        connection: the Airflow connection's id.
    """

    conn_name_attr = "connection"
    default_conn_name = "lowtide_default"
    conn_type = "lowtide"
    hook_name = "Lowtide"

    def __init__(self, connection: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.connection = connection

    def get_conn(self) -> Place:
        """Where the jobs are."""
        return place_of(self.get_connection(self.connection))

    async def aget_conn(self) -> Place:
        """The same in a trigger, whose event loop must not wait."""
        return place_of(await self.aget_connection(self.connection))

    def programs(self) -> Programs:
        """With what jobs are started."""
        return programs_of(self.get_connection(self.connection))

    def job(self, name: str) -> JobClient:
        """A job; not connected yet, a context."""
        return JobClient(self.get_conn(), name)

    def test_connection(self) -> tuple[bool, str]:
        """Whether ZooKeeper and the store answer, for the button in Airflow's page of connections."""
        try:
            place = self.get_conn()
            found = jobs_at(place)
            if place.snapshots_url:
                files = place.open_files()
                try:
                    files.names("lowtide-connection-test")
                finally:
                    files.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the button shows it
            return False, str(error)
        return True, f"ZooKeeper answers and knows {len(found)} jobs" + (
            ", the store answers" if place.snapshots_url else "; no store is given"
        )


def place_of(connection: Connection) -> Place:
    """The place that a connection names.

    Raises:
        PlaceRefused: a field of it cannot be.
    """
    extra = _extra(connection)
    host = (connection.host or "").strip()
    if not host:
        raise PlaceRefused(
            "it is not said where ZooKeeper is",
            where=f"Airflow connection {connection.conn_id!r}, field host",
            way_out='give "host:port", with commas between several',
        )
    port = connection.port or DEFAULT_PORT
    hosts = ",".join(each if ":" in each else f"{each}:{port}" for each in (part.strip() for part in host.split(",")))
    return Place(
        zookeeper=hosts,
        root=extra.get("root") or "lowtide",
        snapshots_url=extra.get("snapshots_url") or "",
        s3_endpoint=extra.get("s3_endpoint") or None,
        s3_region=extra.get("s3_region") or None,
        zookeeper_auth=extra.get("zookeeper_password") or None,
        token=(connection.password or "").strip() or None,
    )


def programs_of(connection: Connection) -> Programs:
    """With what a connection says that jobs are started; errors as of `place_of`."""
    extra, default = _extra(connection), Programs()
    return Programs(
        lowtide=extra.get("lowtide") or default.lowtide,
        conf=extra.get("conf") or default.conf,
        folder=extra.get("folder") or default.folder,
        spark_submit=extra.get("spark_submit") or default.spark_submit,
    )


def _extra(connection: Connection) -> dict[str, str]:
    known = ("root", "snapshots_url", "s3_endpoint", "s3_region", "zookeeper_password", "lowtide", "conf", "folder")
    extra = connection.extra_dejson
    unknown = sorted(set(extra) - {*known, "spark_submit"})
    wrong = sorted(name for name in extra if not isinstance(extra[name], str | None))
    if unknown or wrong:
        raise PlaceRefused(
            f"extra fields that are not known: {', '.join(unknown)}" if unknown else f"{wrong[0]} is no text",
            where=f"Airflow connection {connection.conn_id!r}",
            way_out=f"there are {', '.join(known)}, spark_submit; all are texts",
        )
    return dict(extra)
