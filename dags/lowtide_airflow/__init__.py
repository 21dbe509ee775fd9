"""Lowtide's provider for Apache Airflow.

Airflow finds `get_provider_info` through the entry point group `apache_airflow_provider`. The folder `job` does not
import Airflow.
"""

from __future__ import annotations

from typing import Any

__all__ = ["get_provider_info"]


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata for Airflow's provider manager: name, connection type, modules."""
    from importlib.metadata import version

    from lowtide_airflow.provider_info import provider_info

    return provider_info(version("lowtide-airflow"))
