"""Ends a job from outside."""

from __future__ import annotations

import os
import pwd
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from lowtide.errors import LifeEnded, LowtideError, NotRunning
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.state import JobState, now
from lowtide.process.identity import Process
from lowtide.process.mark import end_marked
from lowtide_snapshots.cause import Cause

LEFT_OVER_GRACE_S = 10.0
KILL_WAIT_S = 5.0


class NotOurs(LowtideError):
    """Let the user whose job it is stop it, or become that user."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job.

    Attributes:
        state: Its last state.
        took_s: How long it took.
        killed: Whether it had to be killed, or processes of it.
    """

    state: JobState
    took_s: float
    killed: bool


def end_job(folder: JobFolder, limit_s: float, ask: Callable[[], None] | None = None) -> JobEnd:
    """Ask the job to stop; kill it with all its processes if that takes longer than `limit_s`.

    Args:
        folder: The job's.
        limit_s: Of its end.
        ask: Asks it in another way than by SIGTERM; if that raises, the job keeps running.

    Raises:
        NotRunning: it has ended before, and no process of it is left.
        NotOurs: it is another user's.
    """
    began = time.monotonic()
    state = folder.state()
    assert state is not None
    who = [process for process in (state.supervisor, state.runner) if process is not None and process.alive()]
    if not who:
        if end_marked(state.life, 0.0) == 0:
            raise NotRunning(
                f'job "{folder.name}" does not run; it has {state.seen().phase}',
                where=str(folder.path),
                way_out=f"why: {state.seen().cause}",
            )
        return JobEnd(state.seen(), time.monotonic() - began, killed=True)
    if ask is None:
        _ask(folder, who[0])
    else:
        ask()
    if who[0].ended_within(limit_s):
        left = end_marked(state.life, LEFT_OVER_GRACE_S)
        last = folder.state() or state
        return JobEnd(last.seen(), time.monotonic() - began, killed=left > 0 or last.exit_code not in (0, 130))
    for process in who:
        process.send(signal.SIGKILL)
    for process in who:
        process.ended_within(KILL_WAIT_S)
    end_marked(state.life, 0.0)
    folder.forget_secret()
    cause = Cause("other", f"it did not stop within {limit_s:g} s and was killed")
    killed = msgspec.structs.replace(
        folder.state() or state, phase="failed", cause=cause, exit_code=LifeEnded.exit_code, ended_at=now(), step=""
    )
    folder.write(killed)
    return JobEnd(killed, time.monotonic() - began, killed=True)


def _ask(folder: JobFolder, process: Process) -> None:
    try:
        process.send(signal.SIGTERM)
    except PermissionError as error:
        raise NotOurs(
            f'job "{folder.name}" belongs to another user: we may not signal process {process.pid}',
            where=str(folder.path),
            way_out=f"have {_owner(process.pid)} stop it: lowtide stop {folder.name}",
        ) from error


def _owner(pid: int) -> str:
    """The name of the user that runs a process, or the number of one without a name."""
    try:
        user = os.stat(f"/proc/{pid}").st_uid
        return pwd.getpwuid(user).pw_name
    except OSError:
        return "that user"
    except KeyError:
        return f"user {user}"
