"""The output of a flow's functions, printed or logged: whole lines in the process's log, each with who speaks.

Who speaks is a worker, or the step of a call.

The processes of an executor share one pipe to that log, which does not tear what one call writes, up to `PIPE_BUF`
bytes. What cannot be written is lost and not raised, since a function's result must not depend on its output.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from select import PIPE_BUF
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDERR = 2
LINE_BYTES = 3_600
"""A longer line is cut into several."""
HALF_LINES = 64
"""So many lines that have not ended are kept at most, of threads and speakers that each print a part of one."""

Say = Callable[[str, str, bytes], None]
"""Takes a speaker, a level and a line."""


def log_as(role: str, speaker: Callable[[], str], fd: int = STDERR) -> Callable[[], None]:
    """Log from now on with the name of who speaks, and take what is printed into the log.

    Nothing of that goes through `sys.stderr` or a logger of ours: a flow's functions may set up logging as they like.

    Args:
        role: What the process is.
        speaker: Returns the name of who speaks, wherever it is called; this costs only where something is said.
        fd: Where the log is written.

    Returns:
        Writes what has been begun of lines: for a process that ends without `atexit`.
    """

    def say(name: str, level: str, line: bytes) -> None:
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))},{int(now % 1 * 1000):03}"
        prefix = f"{stamp} lowtide {role} {name} {os.getpid()} {level}: ".encode()
        room = min(LINE_BYTES, PIPE_BUF - len(prefix) - 1)
        with suppress(OSError):
            for piece in cut(line, room):
                os.write(fd, prefix + piece + b"\n")

    def end_lines() -> None:
        for each in streams:
            each.end_lines()

    logging.root.handlers = [LineHandler(say, speaker)]
    streams = [PrintedBytes(say, speaker, name) for name in ("<stdout>", "<stderr>")]
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(each, "utf-8", "backslashreplace", write_through=True) for each in streams
    )
    atexit.register(end_lines)
    return end_lines


class LineHandler(logging.Handler):
    """Writes each line of a record, and of its traceback, as a line of its own."""

    def __init__(self, say: Say, speaker: Callable[[], str]) -> None:
        super().__init__()
        self._say = say
        self._speaker = speaker

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - a message that does not fit its arguments
            self.handleError(record)
            return
        speaker = self._speaker()
        for line in text.encode(errors="backslashreplace").split(b"\n"):
            self._say(speaker, record.levelname, line)


class PrintedBytes(io.RawIOBase):
    """The bytes under `sys.stdout` or `sys.stderr`, written line by line as each has ended.

    Threads, and those that speak in one thread, each end the lines that they have begun.
    """

    mode = "wb"

    def __init__(self, say: Say, speaker: Callable[[], str], name: str) -> None:
        super().__init__()
        self.name = name
        self._say = say
        self._speaker = speaker
        self._begun: dict[tuple[int, str], bytes] = {}

    def fileno(self) -> int:
        """Return that of standard error, where what is not Python writes."""
        return STDERR

    def writable(self) -> bool:
        """Take bytes."""
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write the lines that have ended; never raises for want of room or of a reader."""
        given = bytes(data)
        speaker = threading.get_ident(), self._speaker()
        *lines, begun = (self._begun.pop(speaker, b"") + given).split(b"\n")
        for line in lines:
            self._say(speaker[1], "INFO", line)
        *pieces, begun = cut(begun, LINE_BYTES)
        for piece in pieces:
            self._say(speaker[1], "INFO", piece)
        if begun:
            self._begun[speaker] = begun
            while len(self._begun) > HALF_LINES:
                with suppress(RuntimeError, StopIteration):  # Another thread has begun or ended one meanwhile.
                    self._end(next(iter(self._begun)))
        return len(given)

    def flush(self) -> None:
        """Write what who speaks in this thread has begun of a line."""
        if not self.closed:
            self._end((threading.get_ident(), self._speaker()))

    def end_lines(self) -> None:
        """Write all that has been begun of lines."""
        for speaker in list(self._begun):
            self._end(speaker)

    def close(self) -> None:
        """End all lines; the descriptor belongs to the process."""
        if not self.closed:
            self.end_lines()
        super().close()

    def _end(self, speaker: tuple[int, str]) -> None:
        begun = self._begun.pop(speaker, b"")
        if begun:
            self._say(speaker[1], "INFO", begun)


def cut(line: bytes, room: int) -> list[bytes]:
    """Cut a line into pieces of at most `room` bytes, at least one, none of which ends within a character."""
    pieces = []
    while len(line) > room:
        at = room
        while at > room - 3 and line[at] & 0xC0 == 0x80:
            at -= 1
        pieces.append(line[:at])
        line = line[at:]
    return [*pieces, line]
