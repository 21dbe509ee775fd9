"""Metadata for Airflow's provider manager: the connection type with its form, and the modules."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

NAME = "Lowtide"


def _text(label: str, description: str, default: str | None = None, *, secret: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": ["string", "null"]}
    if default is not None:
        schema["default"] = default
    if secret:
        schema["format"] = "password"
    return {"label": label, "description": description, "schema": schema}


FIELDS = {
    "root": _text("Root", "ZooKeeper node that holds all jobs: the job's [zookeeper].root.", "lowtide"),
    "snapshots_url": _text(
        "Snapshots", "/path, s3://bucket/prefix or az://container/prefix: the job's [snapshots].url."
    ),
    "s3_endpoint": _text("S3 endpoint", "URL of an S3 server other than Amazon's. Credentials come as boto3's."),
    "s3_region": _text("S3 region", "The job's [snapshots].region."),
    "azure_account": _text("Azure account", "The job's [snapshots].account. Credentials come from the environment."),
    "azure_endpoint": _text("Azure endpoint", "URL of a storage account that is not in Azure's public cloud."),
    "zookeeper_password": _text("ZooKeeper user:password", "If the jobs' nodes are closed to others.", secret=True),
    "zookeeper_ca_file": _text("ZooKeeper's authority", "PEM file, for TLS: the job's [zookeeper].ssl_ca_file."),
    "zookeeper_certificate_file": _text("Certificate for ZooKeeper", "PEM file, if its servers ask for one."),
    "zookeeper_key_file": _text("Its key", "PEM file, without a password."),
    "lowtide": _text("Command lowtide", "On the host of Airflow's worker.", "lowtide"),
    "conf": _text("Conf file", "Conf of jobs for which the jobs file names none."),
    "folder": _text("Folder", "Working directory of the commands; the conf's relative paths start here."),
    "spark_submit": _text("Command spark-submit", "For jobs that run on a cluster.", "spark-submit"),
}


def provider_info(version: str) -> dict[str, Any]:
    """Return the provider's metadata.

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
                        "port": "2181, for hosts without a port",
                        "password": "the content of the jobs' [control].token_file",
                    },
                },
            }
        ],
        "asset-uris": [
            {
                "schemes": ["lowtide"],
                "handler": "lowtide_airflow.asset_uris.sanitize_uri",
                "factory": "lowtide_airflow.asset_uris.create_asset",
                "to_openlineage_converter": "lowtide_airflow.asset_uris.convert_asset_to_openlineage",
            }
        ],
        "hooks": [_modules("hook")],
        "operators": [_modules("operators")],
        "sensors": [_modules("sensors")],
        "triggers": [_modules("triggers")],
        "notifications": ["lowtide_airflow.notifications.LowtideNotifier"],
        "task-decorators": [{"class-name": "lowtide_airflow.decorators.lowtide_task", "name": "lowtide"}],
        **_queues(),
        "extra-links": ["lowtide_airflow.ui.links.JobLink", "lowtide_airflow.ui.links.SnapshotLink"],
    }


def _queues() -> dict[str, Any]:
    """The queue, where Airflow's common.messaging is: it brings the class that a queue inherits from."""
    try:
        if find_spec("airflow.providers.common.messaging") is None:
            return {}
    except ModuleNotFoundError:
        return {}
    return {"queues": ["lowtide_airflow.queues.LowtideMessageQueueProvider"]}


def _modules(name: str) -> dict[str, Any]:
    return {"integration-name": NAME, "python-modules": [f"lowtide_airflow.{name}"]}
