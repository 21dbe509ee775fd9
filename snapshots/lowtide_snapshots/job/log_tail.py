"""The end of a job's log."""

from __future__ import annotations

import os
from pathlib import Path

MOST_BYTES = 512 << 10
"""So much of the log's end is read."""


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
