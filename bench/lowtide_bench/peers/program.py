"""Peer as a running program: started, killed as a whole, started again, and ended with everything it started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lowtide.conf import Conf
from lowtide.process.mark import VARIABLE, end_marked, new_life
from lowtide_bench.child import ChildFailed
from lowtide_bench.systems import System, Way

PROGRAMS = Path(__file__).with_name("programs")
STOP_LIMIT_S = 5.0
"""From SIGTERM to SIGKILL: the end of a peer is not measured."""
CAUSES = 3
LINE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Place:
    """Surroundings of a system under measurement.

    Attributes:
        way: The system's topics.
        folder: A folder of its own, empty at first: for checkpoints and its log.
        conf: Lowtide's conf, with this ground's services.
    """

    way: Way
    folder: Path
    conf: Conf

    def task(self, **more: Any) -> str:
        """Return a program's task, as JSON."""
        way = self.way
        common = {"kafka": way.kafka, "source": way.source, "sink": way.sink, "partitions": way.partitions}
        checkpoints = str(self.folder / "checkpoints")
        return json.dumps({"flow": way.flow, **common, "checkpoints": checkpoints, **more})


@runtime_checkable
class Restartable(System, Protocol):
    """A system that can be killed as a whole and continues from its last stored state."""

    def strike(self) -> None:
        """Send SIGKILL, and start it again at once."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A system as the table knows it.

    Attributes:
        name: Its name for the option `--systems`.
        title: Its name in the README's table.
        delivery: The guarantee it gives.
        rates: The rates to look for its limit at, in records per second, rising.
        install: Fetches its software; raises LowtideError if that is not available here.
        start: Starts it.
        snapshots_s: Interval at which to request snapshots; 0 if it takes its own.
        unable: Reason why it cannot do a flow, by the flow's name.
    """

    name: str
    title: str
    delivery: str
    rates: tuple[int, ...]
    install: Callable[[], None]
    start: Callable[[Place], Restartable]
    snapshots_s: float = 0.0
    unable: Mapping[str, str] = field(default_factory=dict)


class Program(Restartable):
    """A command in a process group of its own; all its processes carry a mark to find them by.

    Args:
        command: The command; its last argument comes from `task`.
        task: Returns the program's task, given whether it starts after a kill.
        folder: Folder for its log.
        environment: More variables.
    """

    def __init__(
        self, command: Sequence[str], task: Callable[[bool], str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._command = command
        self._task = task
        self._log = folder / "log"
        scratch = folder / "tmp"
        scratch.mkdir()
        # A process that is killed leaves its temporary files, so they go with the folder.
        temporary = {"TMPDIR": str(scratch), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}"}
        # Processes that a peer starts to run Python import `programs/steps.py` too.
        modules = os.pathsep.join(filter(None, (str(PROGRAMS), os.environ.get("PYTHONPATH"))))
        self._environment = {**os.environ, "PYTHONPATH": modules, **temporary, **environment}
        self._folder = folder
        self._changing = threading.Lock()
        """Held while it is killed and started again: its end is then not a failure."""
        self._process, self._mark = self._begin(restored=False)

    def check(self) -> None:
        """Raise ChildFailed if it has ended by itself."""
        if not self._changing.acquire(blocking=False):
            return
        try:
            code = self._process.poll()
        finally:
            self._changing.release()
        if code is not None:
            log = self._log.read_text(errors="replace")
            raise ChildFailed(f"{self._folder.name} ended with {code}: {why(log)}")

    def strike(self) -> None:
        """Kill all its processes, and start it again."""
        with self._changing:
            end_marked(self._mark, 0)
            self._process.wait()
            self._process, self._mark = self._begin(restored=True)

    def stop(self) -> None:
        """End it with everything it started."""
        with self._changing:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            end_marked(self._mark, STOP_LIMIT_S)
            self._process.wait()

    def _begin(self, *, restored: bool) -> tuple[subprocess.Popen[bytes], str]:
        mark = new_life()
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*self._command, self._task(restored)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**self._environment, VARIABLE: mark},
                start_new_session=True,
            )
        return process, mark


def why(log: str) -> str:
    """Return the lines of a log that name an error, the last few different ones; its last lines if there are none."""
    lines = [line.strip()[:LINE_CHARACTERS] for line in log.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"(Error|Exception)\b\S*:", line)]
    return " / ".join(list(dict.fromkeys(causes or lines))[-CAUSES:])
