"""The Python, the JDK and the jars that a job needs."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from lowtide.doctor.check import Answer, Surroundings
from lowtide.driver.session import driver_archive
from lowtide.embedded.kafka import broker_archive
from lowtide.jars.java import find_java
from lowtide.jars.shim import shim_jar
from lowtide.jars.third_party import broker_jars, connector_jars, jars_folder, pyspark_folder

OLDEST_PYTHON = (3, 11)
PYSPARK = "4.3.0"
ASK_TIMEOUT_S = 20.0
VARIABLE = "PYSPARK_PYTHON"
WHO = "import sys; print(sys.prefix); print('.'.join(map(str, sys.version_info[:3])))"


def python(_: Surroundings) -> Answer:
    """This interpreter is new enough."""
    running = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Answer("fail", f"Python {running}: {sys.executable}", "use Python 3.11 or newer")
    return Answer("ok", f"Python {running}: {sys.executable}")


def pyspark_python(_: Surroundings) -> Answer:
    """Executors would run this environment's interpreter.

    Two environments may share one binary, so the interpreter is asked for its environment.
    """
    named = os.environ.get(VARIABLE)
    if named is None:
        return Answer("ok", "not set: Lowtide names this interpreter to Spark")
    way_out = f"unset {VARIABLE}, or set it to {sys.executable}"
    try:
        done = subprocess.run([named, "-c", WHO], check=False, capture_output=True, text=True, timeout=ASK_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer("fail", f"{named} does not run: {error}", way_out)
    if done.returncode:
        return Answer("fail", f"{named} does not run: {done.stderr.strip()[-200:]}", way_out)
    prefix, theirs = done.stdout.split("\n")[:2]
    if prefix != sys.prefix:
        return Answer("fail", f"{named} is Python {theirs} of {prefix}, not of {sys.prefix}", way_out)
    return Answer("ok", f"{named}, this environment's")


def pyspark(_: Surroundings) -> Answer:
    """The one pyspark that Lowtide works with is installed, whole, with nothing written over it."""
    folder = pyspark_folder()
    way_out = f"install pyspark=={PYSPARK} in {sys.prefix} (in a clone: make env)"
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        return Answer("fail", f"{folder} is not an installed distribution", way_out)
    if installed != PYSPARK:
        return Answer("fail", f"pyspark {installed}: {folder}", way_out)
    if not (folder / "jars" / f"spark-core_2.13-{PYSPARK}.jar").is_file():
        return Answer("fail", f"pyspark {installed} lacks Spark's jars: {folder / 'jars'}", way_out)
    try:
        client = version("pyspark-client")
    except PackageNotFoundError:
        return Answer("ok", f"pyspark {installed}: {folder}")
    return Answer(
        "fail",
        f"pyspark-client {client} is installed beside pyspark {installed} and overwrites its files",
        "uninstall pyspark-client and reinstall pyspark",
    )


def java(_: Surroundings) -> Answer:
    """Spark and the embedded services find a Java that is new enough."""
    found = find_java()
    return Answer("ok", f"Java {found.version}: {found.executable} (from {found.found_in})")


def third_party_jars(_: Surroundings) -> Answer:
    """Spark's Kafka connector and the Kafka server are there, as the list of jars has them."""
    folder = jars_folder()
    if not folder.is_dir():
        # They are fetched at the first start, which takes a minute; a look around should not.
        return Answer("warn", f"not fetched yet: {folder}", "fetch them: python -m lowtide.jars.third_party")
    return Answer("ok", f"connector {len(connector_jars())}, broker {len(broker_jars())}: {folder}")


def own_jar(_: Surroundings) -> Answer:
    """Lowtide's own jar is there, and as new as its source."""
    return Answer("ok", str(shim_jar()))


def class_archives(surroundings: Surroundings) -> Answer:
    """A job has run or been rehearsed, so that Spark and an embedded Kafka start in half the time."""
    conf = surroundings.conf
    if not conf.spark.class_archive:
        return Answer("ok", "none is used or made ([spark].class_archive is false)")
    if not jars_folder().is_dir():
        return Answer("warn", "the jars are not fetched yet", "fetch them: python -m lowtide.jars.third_party")
    wanted = [driver_archive()]
    if conf.embedded.enabled:
        wanted.append(broker_archive())
    missing = [archive.name for archive in wanted if not archive.there]
    if missing:
        way_out = "the first job has spark's made; or make them now: python -m lowtide.rehearsal (half a minute)"
        return Answer("warn", f"none of {', '.join(missing)}: JVMs take twice as long to start", way_out)
    return Answer("ok", ", ".join(str(archive.path) for archive in wanted))
