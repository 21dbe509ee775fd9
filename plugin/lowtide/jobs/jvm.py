"""The JVM that PySpark has started below this process."""

from __future__ import annotations

import subprocess
import sys

from lowtide.jobs.process import Process


def child_jvm() -> Process | None:
    """Return the JVM; None if there is none, or if it is this program's parent, as under spark-submit."""
    started = _started()
    return Process.of(started.pid) if started is not None and started.poll() is None else None


def end_jvm(limit_s: float) -> bool:
    """Have the JVM end as PySpark does, by closing its standard input, and wait; kill it after the limit.

    Returns:
        Whether PySpark has one of its own: not under spark-submit, nor when it was interrupted while starting one.
    """
    started = _started()
    if started is None:
        return False
    if started.stdin is not None:
        started.stdin.close()
    try:
        started.wait(limit_s)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()
    return True


def _started() -> subprocess.Popen[bytes] | None:
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    started = getattr(SparkContext._gateway, "proc", None)
    return started if isinstance(started, subprocess.Popen) else None
