"""A flow in a program of its own, whose processes can be killed during a measurement."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Literal

from lowtide.conf import Conf
from lowtide.errors import LowtideError, NotRunning
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.state import JobState
from lowtide.process.mark import end_marked
from lowtide.status.control_client import ControlClient
from lowtide_bench.child import Child, ChildFailed
from lowtide_bench.processes import command, descendants, parents
from lowtide_bench.systems import System, Way

STOP_SLACK_S = 15.0
"""Time to wait for the job's end beyond the job's own limit."""
POLL_S = 0.2
LOG_CHARACTERS = 3_000
GRACE_S = 8.0
"""Limit on the end of the JVM and its children once their program is killed."""

Victim = Literal["worker", "driver", "caller"]
CALLER = "-m lowtide.calls.process"


class Killable(System):
    """A running job that counts nothing but its output.

    Args:
        way: Its topics.
        conf: Place and settings; the job's folder is used too.
        folder: Folder for the program's copy of the conf.
        job: The job's name, if it is not the flow's.
        port: That of the service which the flow `lowtide_bench.called` asks; None for another flow.
        standby: Whether a second program waits to take over from a killed driver.
    """

    def __init__(
        self, way: Way, conf: Conf, folder: Path, job: str = "", port: int | None = None, *, standby: bool = False
    ) -> None:
        file = folder / "conf.pickle"
        file.write_bytes(pickle.dumps(conf))
        name = job or way.flow
        self._task = {
            "conf": str(file),
            "flow": way.flow,
            "job": name,
            "from": way.source,
            "to": way.sink,
            "port": port,
        }
        self._stop_limit_s = conf.job.stop_limit_s + STOP_SLACK_S
        self._root, self._name = Path(conf.job.folder), name
        self._jobs = JobFolder(self._root, name)
        self._stands_by = standby
        self._standby: tuple[Child, JobFolder] | None = None
        self._standbys = 0
        self._lives: set[str] = set()
        self._anew = threading.Event()
        """Cleared while a killed program is being restarted."""
        self._anew.set()
        self._child = self._begin()

    def _begin(self) -> Child:
        return Child("lowtide_bench.program", self._task)

    def stand_ready(self, limit_s: float) -> None:
        """Wait until a second program can take over, if there is to be one (errors: ChildFailed, NotRunning)."""
        if not self._stands_by:
            return
        if self._standby is None:
            self._standbys += 1
            root = self._root / f"standby-{self._standbys}"
            child = Child("lowtide_bench.program", {**self._task, "folder": str(root), "standby": True})
            self._standby = child, JobFolder(root, self._name)
        child, jobs = self._standby
        until = time.monotonic() + limit_s
        while (state := jobs.state()) is None or state.phase != "standby":
            child.hear(POLL_S)
            if time.monotonic() > until:
                raise NotRunning(f"the standby is not ready after {limit_s:g} s", way_out=f"see {jobs.log_file}")

    def state(self) -> JobState | None:
        """Return the state in the job's folder; None before it has begun."""
        state = self._jobs.state()
        if state is not None:
            self._lives.add(state.life)
        return state

    def describe(self) -> str:
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

    def client(self) -> ControlClient | None:
        """Return the control API of the current life; None while it starts."""
        state, token = self.state(), self._jobs.token()
        control = None if state is None else state.control_address()
        return ControlClient(control, token) if control is not None and token else None

    def running(self, limit_s: float) -> ControlClient:
        """Return the control API once the job runs (errors: ChildFailed, NotRunning)."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            self.check()
            client = self.client()
            try:
                if client is not None and client.status().phase == "running" and client.status().min_time_ms:
                    return client
            except LowtideError:
                pass  # It has only just begun to listen.
            time.sleep(POLL_S)
        raise NotRunning(f"the job does not run after {limit_s:g} s", where=self.describe(), way_out="see its log")

    def kill(self, victim: Victim, number: int) -> tuple[str, int] | None:
        """Send SIGKILL to a process: the driver program, a worker or a caller, of these each time to another.

        A driver that no standby follows is started again at once.

        Returns:
            The killed process, and the time, ns since 1970; None if there is no such process now.
        """
        if victim == "driver":
            self._anew.clear()
            old, killed_ns = self._child, time.time_ns()
            os.kill(old.pid, signal.SIGKILL)
            old.end()
            if self._standby is None:
                self._child = self._begin()
            else:
                (self._child, self._jobs), self._standby = self._standby, None
            self._anew.set()
            return f"driver, process {old.pid}", killed_ns
        if victim == "caller":
            callers = self.callers()
            if not callers:
                return None
            pid, killed_ns = callers[number % len(callers)], time.time_ns()
            os.kill(pid, signal.SIGKILL)
            return f"caller, process {pid}", killed_ns
        client = self.client()
        workers = [] if client is None else [each for each in client.status().workers if each.attached and each.pid]
        if not workers:
            return None
        mine = sorted(workers, key=lambda each: each.worker)[number % len(workers)]
        killed_ns = time.time_ns()
        os.kill(mine.pid, signal.SIGKILL)
        return f"worker {mine.worker}, process {mine.pid}", killed_ns

    def callers(self) -> list[int]:
        """Return the processes of the program that ask services."""
        return sorted(pid for pid in descendants({self._child.pid}, parents()) if CALLER in command(pid))

    def stop(self) -> None:
        """Stop the job; kill what is left of any of its lives."""
        self.state()
        if self._standby is not None:
            state = self._standby[1].state()
            self._lives |= set() if state is None else {state.life}
            self._standby[0].end()
        self._child.terminate(self._stop_limit_s)
        self._child.end()
        for life in self._lives:
            end_marked(life, GRACE_S)
