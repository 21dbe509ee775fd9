"""Lowtide's provider for Apache Airflow.

Airflow finds `get_provider_info` through the entry point group `apache_airflow_provider`.
"""

from __future__ import annotations

__all__ = ["get_provider_info"]


def get_provider_info() -> dict[str, object]:
    """Return what Airflow's provider manager reads when it starts: name, description, and the classes on offer.

    Hooks, operators and triggers are listed here once they exist; Airflow refuses a name that it cannot import.
    """
    from importlib.metadata import version

    return {
        "package-name": "lowtide-airflow",
        "name": "Lowtide",
        "description": "Runs Lowtide's snapshots and recoveries.",
        "versions": [version("lowtide-airflow")],
    }
