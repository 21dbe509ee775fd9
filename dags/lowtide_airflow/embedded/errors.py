"""What can go wrong with the embedded Airflow: one class per thing to be done.

All have the form of `SnapshotsError`: what, where, and the way out.
"""

from __future__ import annotations

from lowtide_snapshots.errors import SnapshotsError

__all__ = ["AirflowDied", "AirflowRefused", "AirflowSilent", "EmbeddedError", "HomeInUse", "PortTaken", "RunFailed"]


class EmbeddedError(SnapshotsError):
    """Base of these errors."""

    exit_code = 4


class HomeInUse(EmbeddedError):
    """End the Airflow that runs in that folder, or take another folder."""


class PortTaken(EmbeddedError):
    """Take another port, or end the process that listens on this one."""


class AirflowDied(EmbeddedError):
    """Read the last lines of the process that ended."""


class AirflowSilent(EmbeddedError):
    """Read the logs: the processes run, but what was waited for did not come in time."""


class AirflowRefused(EmbeddedError):
    """Change the request, or make it as another user.

    Attributes:
        status: The HTTP status: 401 not signed in, 403 not allowed, 404 not there, 409 there already.
    """

    def __init__(self, what: str, *, status: int, where: str = "", way_out: str = "") -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.status = status


class RunFailed(EmbeddedError):
    """Read the log of the task that failed."""
