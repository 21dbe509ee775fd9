"""Guard of one Airflow process: ends it, and all processes that it has started, when it or the guard's starter ends.

It runs as a script without site packages, so that it starts in a few milliseconds:

    python -I -S guard.py STARTER_PID GRACE_S COMMAND...

It leads a session, and everything that Airflow starts stays in that session: processes left in it at the end are
killed. A job that outlives Airflow has a session of its own, and is not touched.

When the guard gets SIGTERM, or the starter dies in any way, the command gets SIGTERM, and SIGKILL after GRACE_S
seconds. If the guard itself is killed, the kernel kills the command (PR_SET_PDEATHSIG).
"""

import ctypes
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CANNOT_RUN = 127
SWEEP_LIMIT_S = 5.0
POLL_S = 0.02
REAP_EVERY_MS = 1000
"""Interval at which ended orphans of the session are collected, which become our children."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def session_of(pid: int) -> int:
    """Return a process's session; 0 if the process is gone, or has ended and is not collected yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The second field is the command in parentheses and may hold anything, parentheses too.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[3])


def members(session: int) -> "list[int]":
    """Return the processes of a session except its leader."""
    numbers = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return [pid for pid in numbers if pid != session and session_of(pid) == session]


def start(command: "list[str]") -> int:
    """Fork the command so that the kernel kills it when this process dies; returns its process id."""
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getppid() == guard:  # else the guard died before the signal was set
            os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(CANNOT_RUN)


class Guarded:
    """One command, from its start until none of its processes is left."""

    def __init__(self, command: "list[str]") -> None:
        self.asked, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGTERM, lambda *_: os.write(self._wake, b"t"))
        self.pid = start(command)
        self.descriptor = os.pidfd_open(self.pid)
        self.code = CANNOT_RUN

    def reap(self) -> None:
        """Collect children that have ended, the command and orphans alike."""
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.pid:
                    self.code = os.waitstatus_to_exitcode(found[1])
        except ChildProcessError:
            return

    def wait(self, starter: int) -> bool:
        """Wait until the command ends by itself (True), the starter has gone or SIGTERM came (False)."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        poll.register(self.asked, select.POLLIN)
        try:
            poll.register(os.pidfd_open(starter), select.POLLIN)
            gone = os.getppid() != starter
        except ProcessLookupError:
            gone = True
        ready: list[int] = []
        while not (ready or gone):
            ready = [descriptor for descriptor, _ in poll.poll(REAP_EVERY_MS)]
            if self.descriptor not in ready:
                self.reap()
        return self.descriptor in ready

    def end(self, grace_s: float) -> None:
        """Ask the command to end, and kill it if it has not in time."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        signal.pidfd_send_signal(self.descriptor, signal.SIGTERM)
        if not poll.poll(grace_s * 1000):
            signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
            poll.poll(SWEEP_LIMIT_S * 1000)

    def sweep(self) -> None:
        """Kill what is left in the session."""
        deadline = time.monotonic() + SWEEP_LIMIT_S
        while (left := members(os.getpid())) and time.monotonic() < deadline:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(POLL_S)
            self.reap()


def main(arguments: "list[str]") -> int:
    """Guard the command; see the module."""
    starter, grace_s, *command = arguments
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    guarded = Guarded(command)
    if not guarded.wait(int(starter)):
        guarded.end(float(grace_s))
    guarded.sweep()
    guarded.reap()
    return guarded.code if guarded.code >= 0 else 128 - guarded.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
