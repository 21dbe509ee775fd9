"""A job's log: one file that Spark, the workers and the runner append to, and a few older ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT_BYTES = 16 << 20
KEPT = 5


class Log:
    """The files `job.log`, and `job.log.1` (younger) to `job.log.5`."""

    def __init__(self, file: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.file = file
        self._limit_bytes = limit_bytes

    def begin(self) -> None:
        """Begin a new file for a new life; the oldest is dropped."""
        if self.file.exists():
            self._shift()
            self.file.replace(self._older(1))
        self.file.touch()

    def limit(self) -> None:
        """Begin a new file if this one has grown too large.

        Other processes hold it open, so it is copied and emptied; lines written between the two are lost.
        """
        if self.file.stat().st_size <= self._limit_bytes:
            return
        self._shift()
        shutil.copyfile(self.file, self._older(1))
        os.truncate(self.file, 0)

    def open(self) -> int:
        """Return a descriptor that appends, as all of this file's must: another process may empty it meanwhile."""
        return os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    @contextmanager
    def taking_output(self) -> Iterator[None]:
        """Lead this process's standard output and error into the file, and those of children started meanwhile."""
        kept = [os.dup(1), os.dup(2)]
        file = self.open()
        try:
            os.dup2(file, 1)
            os.dup2(file, 2)
            yield
        finally:
            for number, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.close(file)

    def _older(self, age: int) -> Path:
        return self.file.with_name(f"{self.file.name}.{age}")

    def _shift(self) -> None:
        for age in range(KEPT - 1, 0, -1):
            if self._older(age).exists():
                self._older(age).replace(self._older(age + 1))
