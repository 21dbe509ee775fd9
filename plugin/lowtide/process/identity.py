"""Process identity: a process that cannot be mistaken for another that later gets its number."""

from __future__ import annotations

import os
import select
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from lowtide.process.launcher import boot_id, start_time


def called(pid: int) -> str:
    """Return the name of a process of this machine for people elsewhere."""
    return f"process {pid} on {socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class Process:
    """A process named for ever.

    Attributes:
        pid: Its number, which may be given to another process once this one has ended.
        start_time: Clock ticks from boot to its start.
        boot_id: The kernel's name for the boot.
    """

    pid: int
    start_time: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """Return the process that has this number now; OSError if there is none."""
        return cls(pid, start_time(pid), boot_id())

    def alive(self) -> bool:
        """Return whether this very process runs; a zombie does not."""
        try:
            if self.boot_id != boot_id() or self.start_time != start_time(self.pid):
                return False
            state = Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state not in "ZX"

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal; returns whether it was still there. PermissionError if it is another user's."""
        descriptor = self._open()
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def ended_within(self, limit_s: float) -> bool:
        """Wait for its end, `limit_s` at most; returns whether it has ended."""
        descriptor = self._open()
        if descriptor is None:
            return True
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return bool(poll.poll(max(0.0, limit_s) * 1000))
        finally:
            os.close(descriptor)

    def _open(self) -> int | None:
        """Return a descriptor of this very process, even if its number is reused; None if it has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.alive():
            return descriptor
        os.close(descriptor)
        return None
