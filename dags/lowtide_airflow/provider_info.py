"""What Airflow's provider manager reads: the connection type with its form, and the modules on offer."""

from __future__ import annotations

from typing import Any

__all__ = ["provider_info"]

NAME = "Lowtide"


def _text(label: str, description: str, default: str | None = None, *, secret: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": ["string", "null"]}
    if default is not None:
        schema["default"] = default
    if secret:
        schema["format"] = "password"
    return {"label": label, "description": description, "schema": schema}


FIELDS = {
    "root": _text("Root", "The node under which all jobs lie in ZooKeeper: [zookeeper].root of the job.", "lowtide"),
    "snapshots_url": _text("Snapshots", "/path or s3://bucket/prefix: [snapshots].url of the job."),
    "s3_endpoint": _text("S3 endpoint", "The URL of an S3 server that is not Amazon's. Credentials come as boto3's."),
    "s3_region": _text("S3 region", "As of [snapshots].region."),
    "zookeeper_password": _text("ZooKeeper user:password", "Where the jobs' nodes are closed to others.", secret=True),
    "lowtide": _text("Command lowtide", "On the host of Airflow's worker.", "lowtide"),
    "conf": _text("Conf file", "With which jobs are started, unless the jobs file names another."),
    "folder": _text("Folder", "In which jobs are started: relative paths of the conf lie below it."),
    "spark_submit": _text("Command spark-submit", "For jobs that run on a cluster.", "spark-submit"),
}


def provider_info(version: str) -> dict[str, Any]:
    """The provider's description.

    Args:
        version: the package's.
    """
    return {
        "package-name": "lowtide-airflow",
        "name": NAME,
        "description": "Starts, snapshots, recovers, rewinds and rescales Lowtide's streaming jobs.",
        "versions": [version],
        "integrations": [{"integration-name": NAME, "tags": ["service"]}],
        "connection-types": [
            {
                "connection-type": "lowtide",
                "hook-class-name": "lowtide_airflow.hook.LowtideHook",
                "hook-name": NAME,
                "conn-fields": FIELDS,
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "extra"],
                    "relabeling": {"host": "ZooKeeper", "port": "ZooKeeper's port", "password": "Token"},
                    "placeholders": {
                        "host": "zk-1.example:2181,zk-2.example:2181",
                        "port": "2181, where the hosts name none",
                        "password": "what the file [control].token_file of the jobs holds",
                    },
                },
            }
        ],
        "hooks": [_modules("hook")],
        "operators": [_modules("operators")],
        "sensors": [_modules("sensors")],
        "triggers": [_modules("triggers")],
        "extra-links": ["lowtide_airflow.ui.links.JobLink", "lowtide_airflow.ui.links.SnapshotLink"],
    }


def _modules(name: str) -> dict[str, Any]:
    return {"integration-name": NAME, "python-modules": [f"lowtide_airflow.{name}"]}
