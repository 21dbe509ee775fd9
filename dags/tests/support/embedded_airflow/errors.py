"""Errors of the embedded Airflow: one class per thing to do about it.

All have the form of `LowtideError`: what, where, and the way out.
"""

from __future__ import annotations

from lowtide_snapshots.errors import LowtideError


class EmbeddedError(LowtideError):
    """Base of these errors."""

    exit_code = 4


class HomeInUse(EmbeddedError):
    """End the Airflow that runs in that folder, or use another folder."""


class PortTaken(EmbeddedError):
    """Use another port, or end the process that listens on this one."""


class AirflowDied(EmbeddedError):
    """Read the last lines of the process that ended."""


class AirflowSilent(EmbeddedError):
    """Read the logs: the processes run, but something did not happen in time."""


class AirflowRefused(EmbeddedError):
    """Change the request, or make it as another user.

    Attributes:
        status: the HTTP status: 401 not signed in, 403 not allowed, 404 missing, 409 exists already.
        path: the path that was requested.
    """

    def __init__(self, what: str, *, status: int, path: str, where: str = "", way_out: str = "") -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.status = status
        self.path = path


class RunFailed(EmbeddedError):
    """Read the log of the task that failed."""
