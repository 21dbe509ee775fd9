"""The SparkSession that a job runs in."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowtide.conf import Conf
from lowtide.conf.store_access import store_setting
from lowtide.driver.spark_conf import submitted
from lowtide.errors import InterpreterMismatch, JarDamaged, JarMissing, LifeEnded, SessionTaken
from lowtide.jars.archiving import archive_later, lists_classes
from lowtide.jars.class_archive import ClassArchive
from lowtide.jars.java import find_java
from lowtide.jars.shim import shim_jar
from lowtide.jars.third_party import connector_jars, producer_jars, pyspark_folder
from lowtide.process.doors import DoorKind
from lowtide.process.pandas_later import leave_pandas_for_later
from lowtide_snapshots.redaction import PATTERN, RULE

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)
PLUGIN = "io.lowtide.LowtidePlugin"
LOOPBACK = "127.0.0.1"
FRAME_SLACK_BYTES = 32 << 10
"""For a frame's header, its Arrow metadata and Spark's row around it."""

LOCAL_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""On one machine the JVM's share is small and its own compiler threads are what costs most: the quick one will do."""


def settings(conf: Conf) -> dict[str, str]:
    """Return what a job sets in Spark, master and jars apart; `[spark.properties]` win."""
    return {
        "spark.plugins": PLUGIN,
        "spark.lowtide.python": sys.executable,
        "spark.lowtide.doors": str(doors_of(conf)),
        "spark.lowtide.store": store_setting(conf.snapshots).url,
        "spark.lowtide.startLimitMs": str(int(conf.worker.start_limit_s * 1000)),
        "spark.lowtide.attachLimitMs": str(int(conf.worker.attach_limit_s * 1000)),
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": str(conf.exchange.network_wait_ms),
        # Spark bounds what waits in a shuffle by the number of these buffers, so a frame must fit into one.
        "spark.shuffle.streaming.networkBufferSize": str(conf.exchange.frame_bytes + FRAME_SLACK_BYTES),
        # A query that is stopped while Kafka is down waits for its admin client's last calls, a minute and more.
        "spark.sql.streaming.stopTimeout": "5s",
        # Spark waits two minutes for an executor that is lost to drop a broadcast, and cannot be stopped meanwhile.
        "spark.cleaner.referenceTracking.blocking": "false",
        RULE: PATTERN,
        # An epoch's start plans the same small query again: without whole-stage code it takes half the time.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.enabled": str(conf.spark.web_ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        **conf.spark.properties,
    }


def launch_settings(conf: Conf, *, lists: bool = False) -> dict[str, str]:
    """Return what has to be known before the JVM starts, and so comes from spark-submit's arguments where that is used.

    Args:
        conf: The conf.
        lists: Whether a JVM without a class archive lists what it loads, for `keep_classes`.

    Raises:
        JarMissing: see `lowtide.jars.shim`, `lowtide.jars.third_party`.
    """
    settings = {
        "spark.master": conf.spark.master,
        "spark.jars": ",".join(map(str, jars())),
        "spark.driver.memory": conf.spark.driver_memory,
        "spark.executor.memory": conf.spark.executor_memory,
        "spark.log.level": conf.spark.log_level,
    }
    if conf.spark.master.startswith("local"):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        if not conf.spark.master.startswith("local-cluster"):
            settings["spark.authenticate"] = "true"  # Where the driver is all there is, Spark draws the secret itself.
        options = [*LOCAL_JAVA_OPTIONS]
        if conf.spark.class_archive:
            options += driver_archive().options(lists=lists)
        settings |= {"spark.driver.extraJavaOptions": shlex.join(options)}
    return settings


def driver_archive() -> ClassArchive:
    """Return what the JVM of a job on one machine has loaded."""
    # Spark's class path has the folder in the order in which it lists itself. The jars of `spark.jars` are not on it:
    # an archive knows their classes by their bytes alone.
    return ClassArchive("spark", (pyspark_folder() / "jars").glob("*.jar"))


def keep_classes(conf: Conf) -> None:
    """Have an archive made of what this program's JVM has loaded, in the background, if it has started without one."""
    jvm = jvm_process()
    if conf.spark.class_archive and jvm is not None and lists_classes(jvm.pid):
        archive_later(driver_archive(), jvm.pid)


def jvm_process() -> subprocess.Popen[bytes] | None:
    """Return the JVM that PySpark has started below this process; under spark-submit it has started none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    started = getattr(SparkContext._gateway, "proc", None)
    return started if isinstance(started, subprocess.Popen) else None


def jars() -> list[Path]:
    """Return all jars a job needs: Spark's Kafka connector and our shim."""
    return [*connector_jars(), shim_jar()]


def start_session(conf: Conf, name: str) -> SparkSession:
    """Start Spark with the plugin, or take the session that runs with it already.

    Raises:
        SessionTaken: a session without the plugin is running in this program.
        InterpreterMismatch: `PYSPARK_PYTHON` names an interpreter that is not there.
        JavaMissing, JarMissing: see there.
        LifeEnded: Spark or Lowtide's service did not start.
    """
    running = _running(conf)
    if running is not None:
        _bring_producer(running, conf)
        return running
    find_java()
    _check_interpreter()
    # It is what pyspark asks for numpy at its first call of the JVM, and it asks for pandas.
    leave_pandas_for_later("pyspark.testing.utils")
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName(name)
    if not submitted() and conf.spark.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    launch = {} if submitted() else launch_settings(conf, lists=True)
    for key, value in {**launch, **settings(conf)}.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise _start_failed(error) from error
    session.sparkContext.setLogLevel(conf.spark.log_level)
    _bring_producer(session, conf)
    return session


def _bring_producer(session: SparkSession, conf: Conf) -> None:
    """Have Spark bring Kafka's own producer to executors: as files, since their class path has an older one.

    Spark's files are the master's that runs, which spark-submit may have named; an executor has them before its first
    task, so before it starts a worker.

    Raises:
        JarMissing, JarDamaged: as `producer_jars`, where `[kafka] transactions` is "v2".
    """
    if conf.kafka.transactions == "v1" or not has_executors(master_of(conf)):
        return
    try:
        jars = producer_jars()
    except (JarMissing, JarDamaged) as missing:
        if conf.kafka.transactions == "v2":
            raise
        LOG.warning(
            "executors without the jars of Kafka's own producer take transactions of version 1: %s", missing.what
        )
        return
    context = session.sparkContext
    there = {Path(str(url)).name for url in context.listFiles}
    for jar in jars:
        if jar.name not in there:
            context.addFile(str(jar))


def under_tls(conf: Conf) -> bool:
    """Return whether the connections between a job's processes are under TLS."""
    tls = conf.exchange.tls
    return has_executors(master_of(conf)) if tls == "auto" else tls == "always"


def doors_of(conf: Conf) -> DoorKind:
    """Return what a job's processes listen at for each other."""
    if under_tls(conf):
        return DoorKind.TLS
    return DoorKind.TCP if has_executors(master_of(conf)) else DoorKind.UNIX


def session_runs() -> bool:
    """Return whether this program has a SparkSession already."""
    return _context() is not None


def has_executors(master: str) -> bool:
    """Return whether executors are processes of their own, and not the driver."""
    return master != "local" and not master.startswith("local[")


def executors_with_slots(session: SparkSession) -> int:
    """Count the executors of a cluster that take tasks; Spark knows others that are still starting, for seconds."""
    context: Any = session.sparkContext._jsc.sc()
    known = context.getExecutorIds()
    backend = context.schedulerBackend()
    # Spark offers nothing of an executor without free cores. Py4J cannot read the number, a decimal of Scala's.
    free = [backend.getExecutorAvailableCpus(known.apply(index)).iterator() for index in range(known.size())]
    return sum(float(cores.mkString() or 0) > 0 for cores in free)


def drop_executors(session: SparkSession, there: Collection[str]) -> list[str]:
    """Have Spark give no more tasks to executors that are lost, before it finds that out, and replace them if it can.

    Args:
        session: The SparkSession, of a cluster.
        there: The executors that are not lost, by Spark's number for them.

    Returns:
        Those that were dropped.
    """
    context: Any = session.sparkContext._jsc.sc()
    jvm: Any = session._jvm
    known = context.getExecutorIds()
    lost = sorted({str(known.apply(index)) for index in range(known.size())} - set(there))
    names = jvm.java.util.ArrayList()
    for name in lost:
        names.add(name)
    if lost:
        # Ask for as many as before; none counts as a failure of the application; tasks still run there.
        context.schedulerBackend().killExecutors(jvm.PythonUtils.toSeq(names), False, False, True)
    return lost


def master_of(conf: Conf) -> str:
    """Return the master that a job would run on: that of a running session, of spark-submit, or of the conf."""
    context = _context()
    if context is not None:
        return str(context.master)
    return "spark-submit's" if submitted() else conf.spark.master


def _context() -> SparkContext | None:
    """Return this program's SparkContext; PySpark has no public way to get it without making one."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def _running(conf: Conf) -> SparkSession | None:
    """Return the session of this program if it has the plugin, with those of our settings that can still be made."""
    context = _context()
    if context is None:
        return None
    from pyspark.sql import SparkSession

    has = context.getConf()
    if PLUGIN not in has.get("spark.plugins", ""):
        raise SessionTaken(
            "a SparkSession without Lowtide's plugin is already running in this program",
            where=f"application {context.appName} at {context.master}",
            way_out=f"stop it before you run the flow, or start it with spark.plugins={PLUGIN} and the jars that "
            "`lowtide submit-args` prints",
        )
    session = SparkSession.builder.getOrCreate()
    for key, value in settings(conf).items():
        if key.startswith("spark.sql."):
            session.conf.set(key, value)
        elif key.startswith("spark.shuffle.") and has.get(key, "") != value:
            LOG.warning("the running SparkSession has %s=%s; Lowtide would set %s", key, has.get(key, ""), value)
    return session


def _check_interpreter() -> None:
    """Let executors run this interpreter unless another is set (else they take any `python3`)."""
    chosen = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if os.sep in chosen and not os.access(chosen, os.X_OK):
        raise InterpreterMismatch(
            f"PYSPARK_PYTHON names {chosen}, which is not an executable",
            way_out=f"unset it, or set it to the interpreter that runs Lowtide: {sys.executable}",
        )


def _start_failed(error: Exception) -> Exception:
    text = str(error)
    if "ClassNotFoundException: io.lowtide" in text:
        return JarMissing(
            "Spark does not find Lowtide's plugin",
            where="the driver's class path",
            way_out="give spark-submit the jars: spark-submit $(lowtide submit-args) flow.py",
        )
    lines = [line.strip() for line in text.splitlines() if "Lowtide's service did not start" in line]
    return LifeEnded(
        lines[0] if lines else f"Spark did not start: {text.splitlines()[0] if text else type(error).__name__}",
        way_out="see the lines above; `lowtide doctor` checks everything a job needs",
    )
