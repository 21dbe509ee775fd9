"""The job as its user has it: started, watched, killed and stopped by the commands of `lowtide`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from demo.showing import Show
from lowtide.embedded import EmbeddedServices
from lowtide.jobs.figures import ask_view, headline
from lowtide.jobs.folder import JobFolder
from lowtide.status.job_view import JobView

END_LIMIT_S = 30.0
LOOK_EVERY_S = 0.5
LOG_LINES = 30
CONF = """\
[job]
folder = "{folder}/jobs"

[kafka]
bootstrap_servers = "{services.kafka}"

[zookeeper]
hosts = "{services.zookeeper}"

[spark]
checkpoint_folder = "{folder}/checkpoints"

[embedded]
enabled = false
"""


def write_conf(folder: Path, services: EmbeddedServices, rest: str = "") -> Path:
    """Write the conf of a job whose files are all in one folder; return its file."""
    file = folder / "lowtide.toml"
    file.write_text(CONF.format(folder=folder, services=services) + rest)
    return file


class Job:
    """A job with a conf file.

    Attributes:
        repairs: Number of repairs after records that came late, in all lives so far.
        view: The running life's last status; None before the first.
    """

    def __init__(self, name: str, flow: Path, conf_file: Path, folder: Path, say: Callable[[str], None]) -> None:
        self.view: JobView | None = None
        self._flow = flow
        self._conf_file = conf_file
        self._folder = JobFolder(folder, name)
        self._say = say
        self._repairs_before = 0

    @property
    def repairs(self) -> int:
        return self._repairs_before + (self.view.totals.repairs if self.view else 0)

    def check(self) -> None:
        self._lowtide("check", str(self._flow))

    def start(self) -> None:
        """Start a life; return when it is ready."""
        self._repairs_before, self.view = self.repairs, None
        self._lowtide("run", str(self._flow), "--detach")

    def look(self) -> JobView | None:
        """Get the running life's status; end the demo if the life has ended by itself."""
        state = self._folder.state()
        if state is None:
            return None
        if state.seen().ended:
            raise SystemExit(f"demo: the job has ended: {state.cause}\n{self.log()}")
        self.view = ask_view(self._folder, state) or self.view
        return self.view

    def watch(self, show: Show, limit_s: float, done: Callable[[], bool], progress: Callable[[], str]) -> None:
        """Show progress until it is done, or until the time is over."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and not done():
            view = self.look()
            show.progress(f"{progress()}; {headline(view) if view is not None else 'starting'}")
            time.sleep(LOOK_EVERY_S)
        show.hide()

    def kill(self) -> int:
        """Kill the driver program with SIGKILL; return its pid when all of its processes have gone."""
        self.look()
        state = self._folder.state()
        assert state is not None
        assert state.runner is not None
        pid = state.runner.pid
        self._say(f"\n$ kill -KILL {pid}    # the driver")
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + END_LIMIT_S
        while not ((state := self._folder.state()) and state.ended and not (state.supervisor and _alive(state))):
            if time.monotonic() > deadline:
                raise SystemExit(f"demo: the killed job's processes did not end within {END_LIMIT_S:.0f} s")
            time.sleep(0.1)
        return pid

    def stop(self) -> None:
        """Stop it if it runs."""
        state = self._folder.state()
        if state is not None and not state.seen().ended:
            self._lowtide("stop", self._folder.name)

    def log(self) -> str:
        """Return the end of its log."""
        try:
            lines = self._folder.log_file.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join([*lines[-LOG_LINES:], f"log: {self._folder.log_file}"])

    def _lowtide(self, *words: str) -> None:
        command = ["lowtide", *words, "--conf", str(self._conf_file)]
        self._say(f"\n$ {shlex.join(command)}")
        done = subprocess.run([sys.executable, "-m", "lowtide.cli", *command[1:]], check=False)
        if done.returncode:
            raise SystemExit(f"demo: {shlex.join(command)} ended with {done.returncode}\n{self.log()}")


def _alive(state: object) -> bool:
    supervisor = getattr(state, "supervisor", None)
    return supervisor is not None and supervisor.alive()
