"""The JVM that PySpark has started below this process."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from lowtide.driver.session import jvm_process
from lowtide.process.identity import Process

LOGGING = Path(__file__).with_name("log4j2.properties")
"""For spark-submit's JVM: its log goes to the console until a job leads it into a file."""


def child_jvm() -> Process | None:
    """Return the JVM; None if there is none, or if it is this program's parent, as under spark-submit."""
    started = jvm_process()
    return Process.of(started.pid) if started is not None and started.poll() is None else None


def end_jvm(limit_s: float) -> bool:
    """Have the JVM end as PySpark does, by closing its standard input, and wait; kill it after the limit.

    Returns:
        True if PySpark started one itself: not under spark-submit, nor when it was interrupted while starting one.
    """
    started = jvm_process()
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


def lead_output(file: Path) -> bool:
    """Lead what spark-submit's JVM and its Python children say into a file, if `LOGGING` is what it logs by.

    Returns:
        True if it is.
    """
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    if not str(jvm.System.getProperty("log4j2.configurationFile", "")).endswith(LOGGING.name):
        return False
    jvm.System.setErr(jvm.java.io.PrintStream(jvm.java.io.FileOutputStream(str(file), True), True))
    jvm.System.setProperty("lowtide.log", str(file))
    jvm.System.setProperty("lowtide.console", "off")
    jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure()
    return True


def said_of(error: BaseException) -> str:
    """An error in one text; py4j asks the JVM for an exception's, which may have gone."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - whatever asking a JVM that has gone may raise
        return f"{type(error).__name__}; its text is lost with Spark's JVM, see the log"
