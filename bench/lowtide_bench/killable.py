"""A flow in a program of its own, whose processes can be killed during a measurement."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from lowtide.conf import Conf
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.state import JobState
from lowtide.process.mark import end_marked
from lowtide.status.control_client import ControlClient
from lowtide_bench.child import Child, ChildFailed
from lowtide_bench.systems import Way

STOP_SLACK_S = 15.0
"""Time to wait for the job's end beyond the job's own limit."""
LOG_CHARACTERS = 3_000
GRACE_S = 8.0
"""Limit on the end of the JVM and its children once their program is killed."""

Victim = Literal["worker", "driver"]


class Killable:
    """A running job; a `System` that counts nothing but its output.

    Args:
        way: Its topics.
        conf: Place and settings; the job's folder is used too.
        folder: Folder for the program's copy of the conf.
        job: The job's name, if it is not the flow's.
    """

    def __init__(self, way: Way, conf: Conf, folder: Path, job: str = "") -> None:
        file = folder / "conf.pickle"
        file.write_bytes(pickle.dumps(conf))
        name = job or way.flow
        self._task = {"conf": str(file), "flow": way.flow, "job": name, "from": way.source, "to": way.sink}
        self._stop_limit_s = conf.job.stop_limit_s + STOP_SLACK_S
        self._jobs = JobFolder(Path(conf.job.folder), name)
        self._lives: set[str] = set()
        self._anew = threading.Event()
        """Cleared while a killed program is being restarted."""
        self._anew.set()
        self._child = self._begin()

    def _begin(self) -> Child:
        return Child("lowtide_bench.program", self._task)

    def state(self) -> JobState | None:
        """Return the state in the job's folder; None before it has begun."""
        state = self._jobs.state()
        if state is not None:
            self._lives.add(state.life)
        return state

    def told(self) -> str:
        """Return the job's state, and the end of its log, which goes with the run's folder."""
        state = self.state()
        stands = "it has not begun" if state is None else f"{state.phase}: {state.step or state.cause}"
        try:
            log = self._jobs.log_file.read_text(errors="replace")[-LOG_CHARACTERS:]
        except OSError:
            log = ""
        return f"{stands}; the end of its log:\n{log}"

    def check(self) -> None:
        """Raise ChildFailed if the program has ended by itself."""
        child = self._child
        try:
            child.hear(0.001)
        except ChildFailed:
            # If it was killed, another has replaced it, or soon will.
            if self._anew.is_set() and child is self._child:
                raise

    def hops(self) -> Mapping[str, Mapping[int, int]]:
        """Return nothing: histograms are not read here."""
        return {}

    def epoch_ends_ns(self) -> list[int]:
        """Return nothing: they are unknown here."""
        return []

    def client(self) -> ControlClient | None:
        """Return the control API of the current life; None while it starts."""
        state, token = self.state(), self._jobs.token()
        control = None if state is None else state.control_address()
        return ControlClient(control, token) if control is not None and token else None

    def kill(self, victim: Victim, number: int) -> tuple[str, int] | None:
        """Send SIGKILL to the driver program, and restart it at once; or to a worker, each time to another.

        Returns:
            The killed process, and the time, ns since 1970; None if there is no such process now.
        """
        if victim == "driver":
            self._anew.clear()
            old, killed_ns = self._child, time.time_ns()
            os.kill(old.pid, signal.SIGKILL)
            old.end()
            self._child = self._begin()
            self._anew.set()
            return f"driver, process {old.pid}", killed_ns
        client = self.client()
        workers = [] if client is None else [each for each in client.status().workers if each.attached and each.pid]
        if not workers:
            return None
        mine = sorted(workers, key=lambda each: each.worker)[number % len(workers)]
        killed_ns = time.time_ns()
        os.kill(mine.pid, signal.SIGKILL)
        return f"worker {mine.worker}, process {mine.pid}", killed_ns

    def stop(self) -> None:
        """Stop the job; kill what is left of any of its lives."""
        self.state()
        self._child.terminate(self._stop_limit_s)
        self._child.end()
        for life in self._lives:
            end_marked(life, GRACE_S)
