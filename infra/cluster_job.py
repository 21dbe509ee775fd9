"""A job on a cluster of hosts: started, fed, observed and judged from outside."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lowtide_hosts.host import HOME, Host
from lowtide_hosts.processes import Process

from lowtide.errors import LowtideError
from lowtide.jobs.folder import JobFolder
from lowtide.status.control_client import ControlClient
from lowtide.status.job_view import JobView

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "infra/story/driver"
NAME = "orders"
POLL_S = 0.25
SHOWN = 3000
FEED_LIMIT_S = 60.0


class JobFailed(Exception):
    """A command failed on the driver's host, or something did not come in time."""


class ClusterJob:
    """The story's job.

    Args:
        network: The cluster's name.
        driver: The host to start it on.
        conf: Its conf, below that host's home; the folder of jobs is beside it.
    """

    def __init__(self, network: str = "lowtide", driver: str = "driver", conf: str = "lowtide/cluster.toml") -> None:
        self._network = network
        self._name = driver
        self._conf = Path(HOME, conf)
        self._feeding: subprocess.Popen[bytes] | None = None

    @property
    def driver(self) -> Host:
        """Return the host that jobs start on; JobFailed if it is not up."""
        host = Host.find(self._network, self._name)
        if host is None:
            raise JobFailed(f"the host {self._name} is not up")
        return host

    def place(self) -> None:
        """Put the programs on the driver's host."""
        shutil.copytree(PROGRAMS, self._folder, dirs_exist_ok=True)
        shutil.copytree(ROOT / "examples/demo", self._folder / "demo", dirs_exist_ok=True)

    def make_topics(self, lanes: int = 2) -> None:
        """Make the topics of its input and output."""
        self.command(f"python feed.py topics {lanes}")

    def start(self, *settings: str, limit_s: float = 300.0) -> None:
        """Start the job; return when it is ready."""
        given = " ".join(f"--set {setting}" for setting in settings)
        self.command(f"lowtide run flow.py --conf {self._conf} {given} --detach", limit_s)

    def stop(self) -> None:
        """Stop it; return when it has stopped."""
        self.command(f"lowtide stop {NAME} --conf {self._conf}")

    def feed(self, rate: float, seconds: float) -> None:
        """Write orders at this rate, in the background."""
        with (self._folder / "feed.log").open("wb") as log:
            self._feeding = subprocess.Popen(
                self._shell(f"exec python feed.py {rate} {seconds}"), stdout=log, stderr=log
            )

    def fed(self, limit_s: float | None = None) -> int:
        """Wait until all is written, or stop writing at the limit; return the number of orders."""
        assert self._feeding is not None
        try:
            self._feeding.wait(limit_s)
        except subprocess.TimeoutExpired:
            # The child of the process that has entered the host.
            entered = Process.of(self._feeding.pid)
            for feed in entered.children() if entered is not None else []:
                feed.signal(signal.SIGTERM)
            self._feeding.wait(FEED_LIMIT_S)
        said = (self._folder / "feed.log").read_text()
        if self._feeding.returncode:
            raise JobFailed(f"orders could not be written:\n{said[-SHOWN:]}")
        return int(said.split()[-1])

    def command(self, command: str, limit_s: float = 300.0) -> str:
        """Run a shell command on the driver's host; return its output.

        Raises:
            JobFailed: it failed, or did not end in time.
        """
        try:
            done = subprocess.run(self._shell(command), check=False, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            raise JobFailed(f"`{command}` has not ended within {limit_s:.0f} s") from error
        if done.returncode:
            said = f"{done.stdout[-SHOWN:]}{done.stderr[-SHOWN:]}"
            raise JobFailed(f"`{command}` ended with {done.returncode}:\n{said}")
        return done.stdout

    def client(self) -> ControlClient | None:
        """Return the control API of the current life; None while there is none."""
        state, token = self._jobs.state(), self._jobs.token()
        control = None if state is None or state.ended else state.control_address()
        return None if control is None or token is None else ControlClient(control, token)

    def view(self) -> JobView | None:
        """Return the job's own status; None while it does not answer."""
        try:
            client = self.client()
            return None if client is None else client.status()
        except LowtideError:
            return None

    def until(self, what: str, reached: Callable[[JobView], bool], limit_s: float) -> JobView:
        """Wait until the job's view satisfies a condition; JobFailed if it does not in time."""
        deadline = time.monotonic() + limit_s
        while True:
            view = self.view()
            if view is not None and reached(view):
                return view
            if time.monotonic() > deadline:
                raise JobFailed(f"not {what} within {limit_s:.0f} s: {view}\n{self.log()}")
            time.sleep(POLL_S)

    def judge(self, lanes: int = 2) -> dict[str, Any]:
        """Compare everything delivered with the oracle; the job must have stopped."""
        verdict: dict[str, Any] = json.loads(self.command(f"python judge.py {lanes}").splitlines()[-1])
        return verdict

    def log(self) -> str:
        """Return the end of the job's log."""
        file = self._jobs.path / "job.log"
        return file.read_text(errors="replace")[-SHOWN:] if file.is_file() else ""

    @property
    def _jobs(self) -> JobFolder:
        return JobFolder(self.driver.home / self._conf.parent.relative_to(HOME) / "jobs", NAME)

    @property
    def _folder(self) -> Path:
        return self.driver.home / "job"

    def _shell(self, command: str) -> list[str]:
        script = f". /home/lowtide/profile; {command}"
        return self.driver.inside(
            ["sh", "-ec", script], {"PYTHONPATH": "/home/job", "CONF": str(self._conf)}, "/home/job"
        )
