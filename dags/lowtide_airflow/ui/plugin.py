"""Airflow plugin: the page in the navigation, and the buttons of tasks."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from lowtide_airflow.ui.links import JobLink, SnapshotLink


class LowtidePlugin(AirflowPlugin):
    """Lowtide's page, served by Airflow's API server."""

    name = "lowtide"
    operator_extra_links: list[Any] = [JobLink(), SnapshotLink()]  # noqa: RUF012 - as Airflow has it
    external_views: list[Any] = [  # noqa: RUF012
        {
            "name": "Lowtide",
            "href": "lowtide/",
            "destination": "nav",
            "url_route": "lowtide",
        }
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The page's application; built only where Airflow serves it, as workers load plugins too."""
        from lowtide_airflow.ui.app import page_app
        from lowtide_airflow.ui.board import airflow_board

        return [{"app": page_app(airflow_board()), "url_prefix": "/lowtide", "name": "Lowtide"}]
