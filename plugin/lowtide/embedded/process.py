"""A server process by its record: is it the one we started, does it live, end it."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lowtide.process import launcher

KILL_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """The identity of a server: a process named for ever by (boot, pid, start time), and what it serves.

    Attributes:
        pid: process id; may be given to another process once this one has ended.
        start_time: clock ticks from boot to the start of the process.
        boot_id: the kernel's name for the boot.
        server: its name, "kafka" or "zookeeper".
        port: where it listens, on loopback.
        parent: the process it dies with; 0 if it outlives its starter.
    """

    pid: int
    start_time: int
    boot_id: str
    server: str
    port: int
    parent: int

    def alive(self) -> bool:
        """Return whether this very process runs; a process that reuses its id does not count, nor does a zombie."""
        try:
            if self.boot_id != launcher.boot_id() or self.start_time != launcher.start_time(self.pid):
                return False
            state = Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state not in "ZX"

    def stop(self, grace_s: float) -> bool:
        """End the process: SIGTERM, and SIGKILL if it still runs after `grace_s`; returns whether it was killed.

        Signals go to a process descriptor opened before the identity was checked, so that they cannot hit
        another process that was given the id meanwhile.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            if _ended(descriptor, grace_s):
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            _ended(descriptor, KILL_WAIT_S)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)


def read_record(file: Path) -> ProcessRecord | None:
    """The record in a file; None if there is none or it is not one (a disk that was full, an older version)."""
    try:
        return ProcessRecord(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def launch(
    command: Sequence[str],
    *,
    record_file: Path,
    server: str,
    port: int,
    output: Path,
    dies_with_us: bool,
    grace_s: float,
) -> subprocess.Popen[bytes]:
    """Start a server in its own session (a Ctrl-C at the terminal does not reach it), with its output in a file.

    Returns at once. The record is written before the server's first instruction (see `launcher`).
    """
    parent = os.getpid() if dies_with_us else 0
    what = {"server": server, "port": port, "parent": parent}
    start = [sys.executable, "-I", "-S", launcher.__file__, str(record_file), str(parent), str(grace_s)]
    with output.open("wb") as file:
        return subprocess.Popen(
            [*start, json.dumps(what), *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=output.parent,
        )


def _ended(descriptor: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
