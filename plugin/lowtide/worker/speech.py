"""The output of a flow's functions in the process's log, each line with its worker."""

from __future__ import annotations

import sys
from types import FrameType

from lowtide.process import speech
from lowtide.worker.stage import LevelStage


def log_as(first: str, fd: int = speech.STDERR) -> None:
    """Log from now on with the name of the worker that runs, and take what is printed into the log.

    Args:
        first: The process's first worker, whose name stands where none runs: in threads of the user's, for example.
        fd: Where the log is written.
    """
    speech.log_as("worker", lambda: _running() or first, fd)


def _running() -> str | None:
    """Return the name of the worker whose stage has called this; the search costs only where something is said."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        stage = frame.f_locals.get("self")
        if isinstance(stage, LevelStage):
            return stage.name
        frame = frame.f_back
    return None
