"""Kills a job's driver and its supervisor, so that only Airflow can bring the job back.

PYTHONPATH=examples .venv/bin/python -m airflow_demo.killing    # that of `make airflow`
"""

from __future__ import annotations

import signal
import time

from lowtide.jobs.folder import JobFolder
from lowtide.process.mark import marked

GONE_LIMIT_S = 30.0
POLL_S = 0.05


def kill_driver(folder: JobFolder) -> tuple[int, float]:
    """Send SIGKILL to the job's program and to its supervisor, and wait until Spark's JVM has ended after them.

    Without the program nothing restarts the job; without the supervisor nothing is left to record the death.

    Returns:
        The driver's process id, and the time of its death, in ms since 1970.
    """
    state = folder.state()
    assert state is not None, f"there is no job in {folder.path}"
    assert state.runner is not None, f"nobody runs the job in {folder.path}"
    assert state.supervisor is not None, f"nobody watches the job in {folder.path}"
    killed_ms = time.time() * 1e3
    # The driver first: one that loses its supervisor stops cleanly.
    state.runner.send(signal.SIGKILL)
    state.supervisor.send(signal.SIGKILL)
    deadline = time.monotonic() + GONE_LIMIT_S
    while left := marked(state.life):
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in left)
            raise SystemExit(f"airflow-demo: processes {pids} are still running after {GONE_LIMIT_S:.0f} s")
        time.sleep(POLL_S)
    return state.runner.pid, killed_ms


if __name__ == "__main__":
    from inverted_index import flow

    from airflow_demo.scene import FOLDER

    print(f"driver {kill_driver(JobFolder(FOLDER / 'jobs', flow.name))[0]} is dead")
