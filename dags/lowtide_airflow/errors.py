"""What the provider refuses or fails with, besides what `lowtide_snapshots` raises: one class per thing to be done.

All have the form of `SnapshotsError`: what, where, and the way out.
"""

from __future__ import annotations

from lowtide_snapshots.errors import SnapshotsError

__all__ = [
    "ControlRefused",
    "ControlUnreachable",
    "JobsFileRefused",
    "NotRunning",
    "PlaceRefused",
    "RunsAlready",
    "SnapshotFailed",
    "SubmitFailed",
    "TokenRefused",
]


class PlaceRefused(SnapshotsError, ValueError):
    """Correct the Airflow connection: a field of it is missing or cannot be."""

    exit_code = 2


class JobsFileRefused(SnapshotsError, ValueError):
    """Correct the jobs file: the text names the job and the key."""

    exit_code = 2


class NotRunning(SnapshotsError):
    """Start the job, or wait until it is recovered: what was asked can only be done by a job that runs."""

    exit_code = 4


class RunsAlready(SnapshotsError):
    """Stop the job first, or leave it: it runs already, and not by this submission."""

    exit_code = 4


class ControlUnreachable(SnapshotsError):
    """Look whether the job still runs, then ask again: its control API gave no answer that could be used."""

    exit_code = 4


class ControlRefused(SnapshotsError):
    """Ask for something else: the job answers, and says why it does not do this."""

    exit_code = 3


class TokenRefused(SnapshotsError):
    """Give the Airflow connection the content of the job's [control].token_file as its password."""

    exit_code = 4


class SnapshotFailed(SnapshotsError):
    """Take another snapshot: this one was given up, and the text says why; the job goes on."""

    exit_code = 6


class SubmitFailed(SnapshotsError):
    """Mend what the command names, then submit again.

    Attributes:
        code: what the command ended with.
    """

    def __init__(self, what: str, *, where: str = "", way_out: str = "", code: int = 1) -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.code = code
