"""A job's log as its page shows it, and the file that a process writes to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

MOST_LINES = 1_000


class LogTail(msgspec.Struct, frozen=True):
    """The end of a log.

    Attributes:
        host: The machine that the log is on.
        file: Its path there.
        lines: The last ones, oldest first; none if there is no log.
    """

    host: str
    file: str
    lines: list[str]


def log_of(process: int, descriptor: int = 2) -> Path | None:
    """Return the file that a process of this user writes its errors to; None if they go elsewhere."""
    link = f"/proc/{process}/fd/{descriptor}"
    try:
        file = Path(os.readlink(link))
        return file if stat.S_ISREG(os.stat(link).st_mode) and file.is_file() else None
    except OSError:
        return None
