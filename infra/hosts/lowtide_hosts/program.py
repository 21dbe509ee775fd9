"""Program that runs on a host as a service: a server, a master, a worker."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lowtide_hosts.errors import HostsError
from lowtide_hosts.host import HOME, Host
from lowtide_hosts.processes import Process

POLL_S = 0.1
LOG_SHOWN = 1500


@dataclass(frozen=True)
class Program:
    """A program on a host.

    Attributes:
        host: Its host.
        name: Its name on that host; `/home/NAME` is its folder there.
        command: Its command, which must stay in the foreground.
        environment: Its variables, beside PATH, HOME and LANG.
        files: Files to write into its folder first: a path below it to the content.
        prepare: A shell command to run before it, each time.
        port: Port that has to accept connections before the program counts as started; 0 for none.
        start_limit_s: Limit on its start.
        stop_limit_s: Limit on its end after a request, before it is killed.
    """

    host: Host
    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    prepare: str = ""
    port: int = 0
    start_limit_s: float = 60.0
    stop_limit_s: float = 5.0

    @property
    def folder(self) -> Path:
        """Return its folder, seen from outside."""
        return self.host.home / self.name

    @property
    def log(self) -> Path:
        """Return the file of its output."""
        return self.folder / "log"

    def start(self) -> Process:
        """Start it; return when it accepts connections.

        Raises:
            HostsError: it ended, or did not answer in time; with the end of its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for path, content in self.files.items():
            write(self.folder / path, content)
        inner = f"{HOME}/{self.name}"
        if self.prepare:
            self._prepare(inner)
        with self.log.open("ab") as log:
            outer = subprocess.Popen(
                self.host.inside(self.command, self.environment, inner),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        process = self._entered(outer)
        (self.folder / "process.json").write_text(json.dumps(asdict(process)))
        deadline = time.monotonic() + self.start_limit_s
        while self.port and process.lives and not self._answers():
            if time.monotonic() > deadline:
                process.end(self.stop_limit_s)
                raise HostsError(f"{self._said()} has not opened port {self.port} within {self.start_limit_s:.0f} s")
            time.sleep(POLL_S)
        if not process.lives:
            raise HostsError(f"{self._said()} has ended")
        return process

    @classmethod
    def running(cls, host: Host, name: str) -> Process | None:
        """Return the process of a program that was started there, if it still runs."""
        file = host.home / name / "process.json"
        if not file.is_file():
            return None
        process = Process(**json.loads(file.read_text()))
        return process if process.lives else None

    @classmethod
    def stop(cls, host: Host, name: str, limit_s: float) -> None:
        """Stop it, and remove its files."""
        process = cls.running(host, name)
        if process is not None:
            process.end(limit_s)
        shutil.rmtree(host.home / name, ignore_errors=True)

    def _prepare(self, inner: str) -> None:
        command = self.host.inside(["sh", "-ec", self.prepare], self.environment, inner)
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=self.start_limit_s)
        with self.log.open("a") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode:
            raise HostsError(f"{self._said()} could not be prepared (exit {done.returncode})")

    def _entered(self, outer: subprocess.Popen[bytes]) -> Process:
        deadline = time.monotonic() + POLL_S * 100
        while time.monotonic() < deadline and outer.poll() is None:
            process = Process.of(outer.pid)
            inside = process.children() if process is not None else []
            if inside:
                return inside[0]
            time.sleep(POLL_S / 10)
        raise HostsError(f"{self._said()} has ended")

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.host.address, self.port), 0.5).close()
        except OSError:
            return False
        return True

    def _said(self) -> str:
        said = self.log.read_text(errors="replace")[-LOG_SHOWN:] if self.log.exists() else ""
        return f"{said}\n{self.name} on {self.host.name}"


def write(file: Path, content: str) -> None:
    """Write a file that only its owner can read, with its folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text(content)


def read(file: Path) -> str | None:
    """Read a file; return None if it does not exist."""
    return file.read_text(errors="replace") if file.is_file() else None
