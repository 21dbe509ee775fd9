"""The output of a flow's functions, printed or logged: whole lines in the process's log, each with its worker."""

from __future__ import annotations

import io
import logging
import sys
from types import FrameType

from lowtide.worker.stage import LevelStage

__all__ = ["PrintedLines", "log_as"]

LONGEST = 8192
"""Characters that a line may have; a longer one is cut into several."""


class PrintedLines(io.TextIOBase):
    """Stands for standard output and error: each line that is printed is logged in one piece.

    Processes that write to one file would else mix their lines.
    """

    def __init__(self) -> None:
        self._begun = ""

    encoding = "utf-8"

    def fileno(self) -> int:
        """Return that of standard error, where what is not Python writes."""
        return 2

    def writable(self) -> bool:
        """Take text."""
        return True

    def write(self, text: str) -> int:
        """Log the lines that have ended."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._log(line)
        if len(self._begun) > LONGEST:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Log what is left of a line that has not ended."""
        line, self._begun = self._begun, ""
        if line:
            self._log(line)

    @staticmethod
    def _log(line: str) -> None:
        for at in range(0, max(len(line), 1), LONGEST):
            logging.getLogger("print").info("%s", line[at : at + LONGEST])


def log_as(first: str) -> None:
    """Log from now on with the name of the worker that runs, and take what is printed into the log.

    Args:
        first: The process's first worker, whose name stands where none runs: in threads of the user's, for example.
    """

    def name(record: logging.LogRecord) -> bool:
        record.worker = _running() or first
        return True

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(name)
    handler.setFormatter(
        logging.Formatter("%(asctime)s lowtide worker %(worker)s %(process)d %(levelname)s: %(message)s")
    )
    logging.root.handlers = [handler]
    sys.stdout = sys.stderr = PrintedLines()


def _running() -> str | None:
    """Return the name of the worker whose stage has called this; the search costs only where something is logged."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        stage = frame.f_locals.get("self")
        if isinstance(stage, LevelStage):
            return stage.name
        frame = frame.f_back
    return None
