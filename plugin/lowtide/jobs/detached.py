"""Starts a job under a supervisor and waits until it is ready."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from lowtide.conf import Conf
from lowtide.errors import LifeEnded
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.log import Log
from lowtide.jobs.progress import Progress
from lowtide.jobs.state import JobState, now
from lowtide.process.identity import Process
from lowtide.process.mark import new_life
from lowtide_snapshots.cause import Cause

POLL_S = 0.1
SUPERVISORS_MARGIN_S = 3.0
"""The runner keeps the limit for a stop itself; its supervisor is needed only if it cannot."""


def detach(name: str, conf: Conf, command: Callable[[str], list[str]]) -> JobState:
    """Start the job and return its state once it is ready, or once it has ended before.

    Args:
        name: The job's name.
        conf: Where and how.
        command: Makes the runner's command line from `LIFE:LOCK`, its mark and the lock's descriptor.

    Raises:
        AlreadyRunning: a job of this name runs in the same folder.
        KeyboardInterrupt: the user stopped waiting; the job is stopping too.
    """
    root = Path(conf.job.folder).absolute()
    folder = JobFolder(root, name)
    lock = folder.lock()
    life = new_life()
    log = Log(folder.log_file)
    log.begin()
    # Until the supervisor has taken over, the start fails if this process ends.
    folder.write(JobState(name=name, life=life, phase="starting", started_at=now(), supervisor=Process.of(os.getpid())))
    grace_s = conf.job.stop_limit_s + SUPERVISORS_MARGIN_S
    supervisor = [sys.executable, "-m", "lowtide.jobs.supervisor", str(root), name, life, str(lock), str(grace_s)]
    output = log.open()
    try:
        process = subprocess.Popen(
            [*supervisor, *command(f"{life}:{lock}")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(lock,),
            start_new_session=True,
        )
    finally:
        os.close(output)
        os.close(lock)
    return _until_ready(folder, process)


def _until_ready(folder: JobFolder, supervisor: subprocess.Popen[bytes]) -> JobState:
    progress = Progress()
    said = ""
    try:
        while True:
            gone = supervisor.poll() is not None
            state = folder.state()
            assert state is not None
            if state.step and state.step != said:
                said = state.step
                progress.say(said)
            if state.phase == "standby":
                progress.say(f'standing by: job "{folder.name}" waits in the background; log: {folder.log_file}')
                return state
            if state.phase == "running":
                progress.say(f'ready: job "{folder.name}" runs in the background; log: {folder.log_file}')
                return state
            if state.ended and (gone or state.phase in ("stopped", "finished")):
                return state
            if gone:
                cause = Cause("other", f"the supervisor ended with status {supervisor.returncode}")
                return msgspec.structs.replace(state, phase="failed", cause=cause, exit_code=LifeEnded.exit_code)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        supervisor.send_signal(signal.SIGTERM)
        progress.say("stopping the job")
        raise
