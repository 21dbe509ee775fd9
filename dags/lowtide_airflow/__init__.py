"""Lowtide's provider for Apache Airflow.

Airflow finds `get_provider_info` through the entry point group `apache_airflow_provider`. `lowtide_airflow.client` is
the part that knows nothing of Airflow.
"""

from __future__ import annotations

from typing import Any

__all__ = ["get_provider_info"]


def get_provider_info() -> dict[str, Any]:
    """Return what Airflow's provider manager reads when it starts: name, connection type, the modules on offer."""
    from importlib.metadata import version

    from lowtide_airflow.provider_info import provider_info

    return provider_info(version("lowtide-airflow"))
