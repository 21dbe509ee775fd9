"""Errors of the provider, besides those of `lowtide_snapshots`: one class per thing to do about it.

All have the form of `LowtideError`: what, where, and the way out.
"""

from __future__ import annotations

from lowtide_snapshots.errors import LowtideError, SnapshotFailed

__all__ = [
    "ConnectionInvalid",
    "FileNotWritten",
    "JobsFileRefused",
    "NotRunning",
    "RunsAlready",
    "SinkUnknown",
    "SnapshotFailed",
    "SubmitFailed",
]


class ConnectionInvalid(LowtideError, ValueError):
    """Correct the Airflow connection: it, or a field of it, is missing or wrong."""


class FileNotWritten(LowtideError):
    """Move the file that is there, let it be replaced, or name another folder."""

    exit_code = 2


class JobsFileRefused(LowtideError, ValueError):
    """Correct the jobs file: the text names the job and the key."""


class NotRunning(LowtideError):
    """Start the job, or wait until it is recovered: only a running job can do this."""


class RunsAlready(LowtideError):
    """Stop the job first, or leave it: it runs already, and this submission did not start it."""


class SinkUnknown(LowtideError, ValueError):
    """Correct the sink's name, or start the job with it: the job writes no files by this name."""


class SubmitFailed(LowtideError):
    """Correct what the command names, then submit again.

    Attributes:
        code: the command's exit status.
    """

    def __init__(self, what: str, *, where: str = "", way_out: str = "", code: int = 1) -> None:
        super().__init__(what, where=where, way_out=way_out)
        self.code = code
