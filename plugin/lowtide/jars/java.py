"""The Java runtime that the servers, and Spark, run on."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lowtide.errors import JavaMissing

OLDEST_JAVA = 17
VERSION_TIMEOUT_S = 20.0
WAY_OUT = f"install a JDK of version {OLDEST_JAVA} or newer, or point JAVA_HOME at one"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its executable, where it was found, its feature version (17, 21, …)."""

    executable: Path
    found_in: str
    version: int


def find_java() -> Java:
    """The runtime that Spark would take: `JAVA_HOME` if set, else `java` on the `PATH`.

    Raises:
        JavaMissing: there is none, what is there does not run, or it is older than `OLDEST_JAVA`.
    """
    found = java_executable()
    if found is None:
        raise JavaMissing("no Java runtime found", where="JAVA_HOME is not set, PATH has no `java`", way_out=WAY_OUT)
    found_in = "JAVA_HOME" if os.environ.get("JAVA_HOME") else "PATH"
    if not os.access(found, os.X_OK):
        raise JavaMissing(f"{found} is not an executable", where=found_in, way_out=WAY_OUT)
    version = java_version(found)
    if version < OLDEST_JAVA:
        raise JavaMissing(
            f"{found} is Java {version}; Spark and the embedded servers need {OLDEST_JAVA} or newer",
            where=found_in,
            way_out=WAY_OUT,
        )
    return Java(found, found_in, version)


def java_executable() -> Path | None:
    """Return the Java that `find_java` looks at, without running it."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return None if found is None else Path(found)


def java_version(executable: Path) -> int:
    """The feature version that the executable reports.

    Raises:
        JavaMissing: it does not run, or says something that is not a version.
    """
    try:
        done = subprocess.run(
            [executable, "-version"], check=False, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing("Java does not run", where=f"{executable}: {error}", way_out=WAY_OUT) from error
    said = done.stderr or done.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match is None:
        raise JavaMissing(f"`{executable} -version` prints no version: {said.strip()[:200]!r}", way_out=WAY_OUT)
    return int(match.group(1))
