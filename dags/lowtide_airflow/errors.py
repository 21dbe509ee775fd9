"""Errors of the provider, besides those of `lowtide_snapshots`: one class per thing to do about it.

All have the form of `SnapshotsError`: what, where, and the way out.
"""

from __future__ import annotations

from lowtide_snapshots.errors import SnapshotsError

__all__ = [
    "ConnectionInvalid",
    "ControlRefused",
    "ControlUnreachable",
    "JobsFileRefused",
    "NotRunning",
    "RunsAlready",
    "SnapshotFailed",
    "SubmitFailed",
    "TokenRefused",
]


class ConnectionInvalid(SnapshotsError, ValueError):
    """Correct the Airflow connection: it, or a field of it, is missing or wrong."""


class JobsFileRefused(SnapshotsError, ValueError):
    """Correct the jobs file: the text names the job and the key."""


class NotRunning(SnapshotsError):
    """Start the job, or wait until it is recovered: only a running job can do this."""


class RunsAlready(SnapshotsError):
    """Stop the job first, or leave it: it runs already, and this submission did not start it."""


class ControlUnreachable(SnapshotsError):
    """Check that the job still runs, then try again: its control API gave no usable answer."""


class ControlRefused(SnapshotsError):
    """Change the request: the job refused it, and its answer has the reason."""


class TokenRefused(SnapshotsError):
    """Give the Airflow connection the content of the job's [control].token_file as its password."""


class SnapshotFailed(SnapshotsError):
    """Take another snapshot: this one was abandoned, and the text has the reason; the job goes on."""


class SubmitFailed(SnapshotsError):
    """Correct what the command names, then submit again.

    Attributes:
        code: the command's exit status.
    """

    def __init__(self, what: str, *, where: str = "", way_out: str = "", code: int = 1) -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.code = code
