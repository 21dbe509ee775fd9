"""The skeleton as a system to measure: its program, started and ended."""

from __future__ import annotations

import os
import pickle
import signal
import time
from contextlib import suppress
from pathlib import Path

from lowtide.conf import Conf
from lowtide_bench.child import Child, ChildFailed
from lowtide_bench.processes import command, descendants, parents
from lowtide_bench.systems import System, Way

STOP_LIMIT_S = 30.0
POLL_S = 0.1


class Skeleton(System):
    """The running skeleton.

    Args:
        way: Its topics.
        conf: A job's conf, for the settings of Spark and Kafka.
        jar: Its Java class.
        folder: Folder for files of Spark and the program.
        counts: Whether the records are `running-count`'s; others are passed on as they are.
    """

    def __init__(self, way: Way, conf: Conf, jar: Path, folder: Path, *, counts: bool) -> None:
        file = folder / "skeleton.pickle"
        file.write_bytes(pickle.dumps(conf))
        task = {"conf": str(file), "jar": str(jar), "checkpoint": str(folder / "skeleton"), "counts": counts}
        task |= {"kafka": way.kafka, "from": way.source, "to": way.sink, "partitions": way.partitions}
        self._child = Child("lowtide_bench.skeleton.program", task)
        self._ends_ns: list[int] = []

    def check(self) -> None:
        """Raise ChildFailed if the program has ended."""
        while (line := self._child.hear(0.001)) is not None:
            self._ends_ns = line["ends"]

    def epoch_ends_ns(self) -> list[int]:
        """Return the ends that the program reported last; up to half a second old."""
        self.check()
        return self._ends_ns

    def stop(self) -> None:
        """Stop the query, Spark and the workers; kill what is left of them."""
        below = descendants({self._child.pid}, parents())
        started = {pid: command(pid) for pid in below}
        self._child.send({"stop": True})
        deadline = time.monotonic() + STOP_LIMIT_S
        with suppress(ChildFailed):
            while time.monotonic() < deadline:
                self._child.hear(POLL_S)
        self._child.end()
        for pid, line in started.items():
            # A process that has gone has no command line, and another process with its number has a different one.
            if line and command(pid) == line:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
