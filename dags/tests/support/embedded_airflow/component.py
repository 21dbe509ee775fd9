"""One of Airflow's processes: started with a log of its own, observed, and stopped without leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from embedded_airflow import guard

STOP_GRACE_S = 8.0
"""Time that a process may take to stop; tasks that run longer than this are killed."""
GUARD_LIMIT_S = 2 * guard.SWEEP_LIMIT_S + 2.0
"""Time that its guard may take beyond that."""
LINES_SHOWN = 15
LINE_CHARACTERS = 400
TAIL_BYTES = 64 * 1024


class Component:
    """A process of Airflow, under a guard that ends with us.

    Attributes:
        name: Airflow's name for it: "scheduler", "api-server", …
        log: the file with its output; each start overwrites it.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        grace_s: float = STOP_GRACE_S,
    ) -> None:
        self.name = name
        self._grace_s = grace_s
        self.log = log
        self._command = [sys.executable, "-m", "airflow", *words]
        self._environment = dict(environment)
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """True if it, or its guard, lives."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit status; None while it runs and before its first start."""
        return None if self._guard is None else self._guard.poll()

    def start(self) -> None:
        """Start it; returns at once."""
        assert not self.running, f"{self.name} runs already"
        words = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), str(self._grace_s), *self._command]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._guard = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment,
                cwd=self._environment["AIRFLOW_HOME"],
            )

    def wait(self, limit_s: float) -> int | None:
        """Wait until it has ended; returns its exit status, None if it still runs."""
        assert self._guard is not None
        try:
            return self._guard.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def processes(self) -> list[int]:
        """Return its processes, including those that it has started, without the guard."""
        return guard.members(self._guard.pid) if self._guard is not None else []

    def ask_to_stop(self) -> None:
        """Ask it to end; `stop` waits for that."""
        if self._guard is not None and self._guard.poll() is None:
            self._guard.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End it, and every process left of those that it has started."""
        self.ask_to_stop()
        self._finish()

    def kill(self) -> None:
        """End it as a power failure would."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._finish()

    def last_words(self) -> str:
        """Return the last lines of its output."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
                lines = stream.read().decode(errors="replace").splitlines()
        except OSError:
            lines = []
        telling = [line for line in lines if line.strip()]
        return "\n".join(f"  {line[:LINE_CHARACTERS]}" for line in telling[-LINES_SHOWN:]) or "  (it printed nothing)"

    def _finish(self) -> None:
        if self._guard is None:
            return
        try:
            self._guard.wait(self._grace_s + GUARD_LIMIT_S)
        except subprocess.TimeoutExpired:
            left = guard.members(self._guard.pid)
            self._guard.kill()
            self._guard.wait()
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
