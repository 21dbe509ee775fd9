"""Hook for Airflow connections of type `lowtide`: the services that jobs use, and the commands that start them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lowtide_airflow.compat import BaseHook, read_connection
from lowtide_airflow.errors import ConnectionInvalid
from lowtide_airflow.job.client import JobClient, jobs_at
from lowtide_airflow.job.services import Services
from lowtide_snapshots.zookeeper.tls import ZooKeeperTls

if TYPE_CHECKING:
    from airflow.sdk import Connection

DEFAULT_PORT = 2181
PROGRAMS = ("lowtide", "conf", "folder", "spark_submit")
"""The fields of `Programs`, as a connection has them."""
EXTRA = (
    "root",
    "snapshots_url",
    "s3_endpoint",
    "s3_region",
    "azure_account",
    "azure_endpoint",
    "zookeeper_password",
    "zookeeper_ca_file",
    "zookeeper_certificate_file",
    "zookeeper_key_file",
    *PROGRAMS,
)
"""All extra fields that a connection may have."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Commands that start jobs, on the host of Airflow's worker.

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
    """The jobs of one ZooKeeper root.

    Args:
        lowtide_conn_id: the Airflow connection's id.
    """

    conn_name_attr = "lowtide_conn_id"
    default_conn_name = "lowtide_default"
    conn_type = "lowtide"
    hook_name = "Lowtide"

    def __init__(self, lowtide_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lowtide_conn_id = lowtide_conn_id

    def get_conn(self) -> Services:
        """Return the services that the connection describes (errors: ConnectionInvalid)."""
        return _services(self.get_connection(self.lowtide_conn_id))

    async def aget_conn(self) -> Services:
        """Return the same in a trigger, without blocking its event loop."""
        return await read_connection(self.lowtide_conn_id, _services)

    def programs(self) -> Programs:
        """Return the commands that start jobs (errors: ConnectionInvalid)."""
        given = _extra(self.get_connection(self.lowtide_conn_id))
        return Programs(**{name: given[name] for name in PROGRAMS if given.get(name)})

    def job(self, name: str) -> JobClient:
        """Return a job's client; not connected yet, a context."""
        return JobClient(self.get_conn(), name)

    def test_connection(self) -> tuple[bool, str]:
        """Check that ZooKeeper and the store answer, for the button on Airflow's page of connections."""
        try:
            services = self.get_conn()
            found = jobs_at(services)
            if services.snapshots_url:
                files = services.open_files()
                try:
                    files.names("lowtide-connection-test")
                finally:
                    files.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the button shows it
            return False, str(error)
        store = ", the store answers" if services.snapshots_url else "; no snapshot store is set"
        return True, f"ZooKeeper answers and has {len(found)} jobs{store}"


def _services(connection: Connection) -> Services:
    extra = _extra(connection)
    host = (connection.host or "").strip()
    if not host:
        raise ConnectionInvalid(
            "ZooKeeper's address is missing",
            where=f"Airflow connection {connection.conn_id!r}, field host",
            way_out='give "host:port", with commas between several',
        )
    port = connection.port or DEFAULT_PORT
    hosts = ",".join(each if ":" in each else f"{each}:{port}" for each in (part.strip() for part in host.split(",")))
    return Services(
        zookeeper=hosts,
        root=extra.get("root") or "lowtide",
        snapshots_url=extra.get("snapshots_url") or "",
        s3_endpoint=extra.get("s3_endpoint") or None,
        s3_region=extra.get("s3_region") or None,
        azure_account=extra.get("azure_account") or None,
        azure_endpoint=extra.get("azure_endpoint") or None,
        zookeeper_auth=extra.get("zookeeper_password") or None,
        zookeeper_tls=_zookeeper_tls(connection, extra),
        token=(connection.password or "").strip() or None,
    )


def _zookeeper_tls(connection: Connection, extra: dict[str, str]) -> ZooKeeperTls | None:
    authority, certificate, key = (extra.get(f"zookeeper_{name}_file") or None for name in ("ca", "certificate", "key"))
    if authority is None and certificate is None and key is None:
        return None
    if authority is None or (certificate is None) != (key is None):
        raise ConnectionInvalid(
            "TLS to ZooKeeper needs zookeeper_ca_file, and both of zookeeper_certificate_file and zookeeper_key_file "
            "or neither",
            where=f"Airflow connection {connection.conn_id!r}",
            way_out="set the missing one",
        )
    return ZooKeeperTls(authority, certificate, key)


def _extra(connection: Connection) -> dict[str, str]:
    _must_be_json(connection)
    extra = connection.extra_dejson
    unknown = sorted(set(extra) - set(EXTRA))
    wrong = sorted(name for name in extra if not isinstance(extra[name], str | None))
    if unknown or wrong:
        raise ConnectionInvalid(
            f"unknown extra fields: {', '.join(unknown)}" if unknown else f"{wrong[0]} is not a text",
            where=f"Airflow connection {connection.conn_id!r}",
            way_out=f"the fields are {', '.join(EXTRA)}; all are texts",
        )
    return dict(extra)


def _must_be_json(connection: Connection) -> None:
    """Refuse what Airflow would take for no fields at all (errors: ConnectionInvalid, without any of the text)."""
    try:
        fault = "" if isinstance(json.loads(connection.extra or "{}"), dict) else "is JSON but not an object"
    except ValueError as error:
        at = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        fault = f"is not JSON{at}"
    if fault:
        raise ConnectionInvalid(
            f"field extra {fault}",
            where=f"Airflow connection {connection.conn_id!r}",
            way_out=f'write an object, as {{"root": "lowtide"}}; the fields are {", ".join(EXTRA)}',
        )
