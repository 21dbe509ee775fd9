"""A job's own log: where it is, and its last lines if it is on this host and the job has died."""

from __future__ import annotations

import socket
from pathlib import Path

from lowtide_airflow.job.program import Log
from lowtide_airflow.job.status import JobStatus
from lowtide_snapshots.job.log_tail import last_lines

FILE = "job.log"
"""No file of another name is read, whatever is written in ZooKeeper."""
LINES = 40


def tell_log(status: JobStatus, info: Log, error: Log) -> None:
    """Log a line that ends with where the job's own log is, as `host:file`; for a dead job its last lines as well.

    A life of an older version has not reported where its log is; neither has one whose log is its program's output.

    Args:
        status: the job's.
        info: called with the line.
        error: called with each of the last lines, if the log is on this host.
    """
    life = status.current
    if life is None or not life.log:
        return
    info(f'job "{status.job}", life {life.incarnation}: its own log is {life.log}')
    host, _, name = life.log.partition(":")
    if status.state in ("failed", "gone") and host == socket.gethostname() and Path(name).name == FILE:
        for line in last_lines(Path(name), LINES):
            error(f"| {line}")
