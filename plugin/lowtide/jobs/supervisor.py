"""The process that watches a detached job: it starts the runner, and makes sure that its end is recorded and complete.

    python -m lowtide.jobs.supervisor ROOT NAME LIFE LOCK GRACE_S COMMAND...

It has its own session and no terminal. It passes a request to stop on to the runner, kills the runner if that takes
longer than GRACE_S, waits for all processes of the life, and records how the runner died if that could not do so
itself. When the supervisor is killed, the kernel sends the runner a SIGTERM, and the job stops cleanly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from lowtide.jobs.folder import JobFolder
from lowtide.jobs.signals import HEARD
from lowtide.jobs.state import now
from lowtide.process.identity import Process
from lowtide.process.mark import VARIABLE, end_marked
from lowtide_snapshots.cause import Cause

PR_SET_PDEATHSIG = 1
LEFT_OVER_GRACE_S = 8.0
"""Time for the JVM and its children to end when the runner has ended without them."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def supervise(folder: JobFolder, life: str, lock: int, grace_s: float, command: list[str]) -> int:
    """Run the command to its end; returns the runner's exit status, negative if a signal killed it."""
    heard = {*HEARD, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    state = folder.state()
    assert state is not None
    folder.write(msgspec.structs.replace(state, supervisor=Process.of(os.getpid())))
    us = os.getpid()

    def be_ours() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != us:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)

    environment = {**os.environ, VARIABLE: life}
    # This process has one thread, so it may do what is unsafe with several.
    runner = subprocess.Popen(command, env=environment, pass_fds=(lock,), preexec_fn=be_ours)  # noqa: PLW1509
    kill_at: float | None = None
    while runner.poll() is None:
        left = None if kill_at is None else kill_at - time.monotonic()
        if left is not None and left <= 0:
            runner.kill()
            runner.wait()
            break
        number = signal.sigwait(heard) if left is None else _wait(heard, left)
        if number in HEARD and kill_at is None:
            kill_at = time.monotonic() + grace_s
            runner.send_signal(signal.SIGTERM)
    end_marked(life, LEFT_OVER_GRACE_S)
    _finish(folder, life, runner.returncode, killed=kill_at is not None and runner.returncode == -signal.SIGKILL)
    return runner.returncode


def _wait(heard: set[signal.Signals], limit_s: float) -> int | None:
    came = signal.sigtimedwait(heard, limit_s)
    return came.si_signo if came is not None else None


def _finish(folder: JobFolder, life: str, status: int, *, killed: bool) -> None:
    """Write down how the runner ended, if it has not done so itself."""
    folder.forget_secret()
    state = folder.state()
    if state is None or state.life != life or state.ended:
        return
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    cause = Cause("loss", f"process {state.runner.pid if state.runner else '?'}, which ran it, {how}")
    if killed:
        cause = Cause("other", "it did not stop in time and was killed")
    code = status if status > 0 else 128 - status
    folder.write(msgspec.structs.replace(state, phase="failed", cause=cause, exit_code=code, ended_at=now(), step=""))


def main(arguments: list[str]) -> int:
    """Supervise; see the module."""
    root, name, life, lock, grace_s, *command = arguments
    status = supervise(JobFolder(Path(root), name), life, int(lock), float(grace_s), command)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
