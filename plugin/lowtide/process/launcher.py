"""Start one server process and record its identity before it runs.

Run as a script by the interpreter's path, without site packages, so that it starts in a few milliseconds:

    python -I -S launcher.py RECORD_FILE PARENT_PID GRACE_S RECORD_JSON COMMAND...

With PARENT_PID 0 it *becomes* the command (same process id), which then outlives its starter. Otherwise it
stays as a guard: when the parent is gone, however it died, the command gets SIGTERM, and SIGKILL after GRACE_S
seconds; should the guard itself be killed, the kernel kills the command (PR_SET_PDEATHSIG).

The process that turns into the server writes the record before it does: so no server is without a record, by which it
can be stopped.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
DIED_BEFORE_EXEC = 127


def start_time(pid: int) -> int:
    """Return a process's start time, in clock ticks since boot; with the boot's id it names a process for ever."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        # The second field is the command in parentheses and may hold anything, parentheses too.
        return int(file.read().rpartition(")")[2].split()[19])


def boot_id() -> str:
    """The kernel's name for this boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return file.read().strip()


def become(record_file: str, record: dict[str, object], command: list[str]) -> None:
    """Write the record of this very process, then turn into the command; never returns."""
    identity = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "boot_id": boot_id()}
    draft = f"{record_file}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump({**record, **identity}, file)
    os.replace(draft, record_file)
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(DIED_BEFORE_EXEC)


def spawn(record_file: str, record: dict[str, object], command: list[str]) -> int:
    """Fork the command so that the kernel kills it when this process dies; returns its process id."""
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == guard:  # else the guard died before the signal was set
            become(record_file, record, command)
    finally:
        os._exit(DIED_BEFORE_EXEC)


def guard(parent_pid: int, child_pid: int, grace_s: float) -> int:
    """Wait until the child exits, or end it because the parent has gone; return the child's exit code."""
    child = os.pidfd_open(child_pid)
    poll = select.poll()
    poll.register(child, select.POLLIN)
    try:
        parent = os.pidfd_open(parent_pid)
        poll.register(parent, select.POLLIN)
        gone = os.getppid() != parent_pid
    except ProcessLookupError:
        gone = True
    ready = [] if gone else [fd for fd, _ in poll.poll()]
    if child not in ready:
        signal.pidfd_send_signal(child, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        last = select.poll()
        last.register(child, select.POLLIN)
        if not last.poll(max(0.0, deadline - time.monotonic()) * 1000):
            signal.pidfd_send_signal(child, signal.SIGKILL)
    _, status = os.waitpid(child_pid, 0)
    return os.waitstatus_to_exitcode(status)


def main(arguments: list[str]) -> int:
    """Start the command as a guard or as itself; see the module."""
    record_file, parent_pid, grace_s, record_json, *command = arguments
    record = json.loads(record_json)
    if int(parent_pid) == 0:
        become(record_file, record, command)
    code = guard(int(parent_pid), spawn(record_file, record, command), float(grace_s))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
