"""The last lines of a job's log, for its page."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

MOST_BYTES = 512 << 10
"""So much of the log's end is read."""
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


def last_lines(file: Path, count: int) -> list[str]:
    """Return the last lines of a file, `count` at most and of its last `MOST_BYTES`; none if it cannot be read."""
    try:
        with file.open("rb") as opened:
            length = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, length - MOST_BYTES))
            some = opened.read(MOST_BYTES)
    except OSError:
        return []
    lines = some.decode("utf-8", "replace").splitlines()
    if length > MOST_BYTES:
        del lines[:1]  # A part of a line.
    return lines[-count:] if count else []
