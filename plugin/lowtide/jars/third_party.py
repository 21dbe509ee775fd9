"""The third-party jars that pyspark does not bring along: their folder, and how they get there.

`ivy.xml` next to this file names them, `jars.lock` holds the SHA-256 of every file. The Ivy among pyspark's own jars
fetches them into the cache folder, once for all clones and environments:

    python -m lowtide.jars.third_party            fetch missing jars, check every byte of the others
    python -m lowtide.jars.third_party lock       fetch again and write jars.lock (after a change of ivy.xml)
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lowtide.cache import cache_folder
from lowtide.errors import InterpreterMismatch, JarDamaged, JarMissing, JavaMissing, LowtideError

FETCH_LIMIT_S = 900.0
LOG_LINES_SHOWN = 12

_IVY_FILE = Path(__file__).with_name("ivy.xml")
_LOCK_FILE = Path(__file__).with_name("jars.lock")
_SETTINGS_VARIABLE = "LOWTIDE_IVY_SETTINGS"
_GROUPS = ("connector", "broker")
_PRODUCER = ("kafka-clients-", "slf4j-api-", "lz4-java-", "snappy-java-", "zstd-jni-")
"""The jars among the broker's that Kafka's own producer needs; it is newer than the connector's."""


@dataclass(frozen=True, slots=True)
class LockedJar:
    """One line of jars.lock: the file's path below the jars folder, its SHA-256 (hex) and its size."""

    path: str
    sha256: str
    size_bytes: int


def connector_jars() -> list[Path]:
    """Return the jars Spark needs to read Kafka, fetched first if they are not there.

    Raises:
        JarMissing: they are not there and cannot be fetched.
        JarDamaged: one is gone or has another size than expected; `verify` looks at the content too.
    """
    return _jars("connector")


def broker_jars() -> list[Path]:
    """Return the jars of a Kafka server, fetched first if they are not there; errors as `connector_jars`."""
    return _jars("broker")


def producer_jars() -> list[Path]:
    """Return the jars of Kafka's own producer, fetched first if they are not there; errors as `connector_jars`."""
    return [jar for jar in broker_jars() if jar.name.startswith(_PRODUCER)]


def producer_jars_here(beside: Path) -> list[Path]:
    """Return the same on a host of workers, which fetches nothing.

    Args:
        beside: The folder into which Spark has put an executor's files.

    Raises:
        JarMissing: one is neither there nor in the cache.
        JarDamaged: one has another size than expected.
    """
    jars = []
    for jar in _locked_jars():
        name = Path(jar.path).name
        if not (jar.path.startswith("broker/") and name.startswith(_PRODUCER)):
            continue
        path = next((each for each in (jars_folder() / jar.path, beside / name) if each.is_file()), None)
        if path is None:
            raise JarMissing(
                f"{name}, of Kafka's own producer, is missing",
                where=f"neither in {jars_folder()} nor in {beside}",
                way_out=f"fetch it on this host: {sys.executable} -m lowtide.jars.third_party",
            )
        if path.stat().st_size != jar.size_bytes:
            raise _damaged(f"{name} has another size than expected ({jar.size_bytes} bytes)", path.parent)
        jars.append(path)
    return jars


def pyspark_folder() -> Path:
    """Return the folder of the installed pyspark, without importing it.

    Raises:
        InterpreterMismatch: this interpreter has no pyspark.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise InterpreterMismatch(
            "this Python has no pyspark",
            where=sys.executable,
            way_out="run the Python of Lowtide's environment (in a clone: .venv/bin/python), or install lowtide here",
        )
    return Path(found.submodule_search_locations[0])


def jars_folder() -> Path:
    """Return the folder of the jars that this version of Lowtide names, whether or not it is there."""
    key = hashlib.sha256(_IVY_FILE.read_bytes() + _LOCK_FILE.read_bytes()).hexdigest()[:12]
    return cache_folder() / "jars" / key


def fetch() -> Path:
    """Return the folder of the jars, which are fetched if it is not there; safe with several processes at once.

    Raises:
        JarMissing: they could not be fetched.
        JarDamaged: what was fetched is not what jars.lock says; nothing of it is kept.
    """
    folder = jars_folder()
    if folder.is_dir():
        return folder
    with _alone():
        if folder.is_dir():
            return folder
        with _retrieved() as fresh:
            try:
                verify(fresh)
            except JarDamaged:
                shutil.rmtree(cache_folder() / "ivy", ignore_errors=True)
                raise
            fresh.rename(folder)
    return folder


def verify(folder: Path) -> None:
    """Compare every file of a folder of jars with jars.lock, byte for byte by its SHA-256.

    Raises:
        JarDamaged: a file is missing, is one too many or differs; all such files are named.
    """
    expected = {jar.path: jar for jar in _locked_jars()}
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*.jar")}
    wrong = [f"{path} is missing" for path in sorted(expected.keys() - found.keys())]
    wrong += [f"{path} is not in jars.lock" for path in sorted(found.keys() - expected.keys())]
    for name in sorted(expected.keys() & found.keys()):
        digest = hashlib.sha256(found[name].read_bytes()).hexdigest()
        if digest != expected[name].sha256:
            wrong.append(f"{name} has SHA-256 {digest}, expected {expected[name].sha256}")
    if wrong:
        raise _damaged("; ".join(wrong), folder)


def _jars(group: str) -> list[Path]:
    folder = fetch()
    jars = []
    for jar in _locked_jars():
        if jar.path.startswith(f"{group}/"):
            path = folder / jar.path
            if not path.is_file() or path.stat().st_size != jar.size_bytes:
                raise _damaged(
                    f"{jar.path} is missing or has another size than expected ({jar.size_bytes} bytes)", folder
                )
            jars.append(path)
    return jars


def _damaged(what: str, folder: Path) -> JarDamaged:
    return JarDamaged(
        f"third-party jars are damaged: {what}",
        where=str(folder),
        way_out="delete the folder if it still exists, and fetch them again: "
        f"{sys.executable} -m lowtide.jars.third_party",
    )


def _locked_jars() -> list[LockedJar]:
    lines = (line.split() for line in _LOCK_FILE.read_text().splitlines() if line and not line.startswith("#"))
    return [LockedJar(path, sha256, int(size)) for sha256, size, path in lines]


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the cache's lock for jars: two downloads at once would share Ivy's files."""
    locks = cache_folder() / "locks"
    try:
        (cache_folder() / "jars").mkdir(parents=True, exist_ok=True)
        locks.mkdir(exist_ok=True)
        handle = (locks / "jars").open("w")
    except OSError as error:
        raise JarMissing(
            f"the third-party jars are missing, and the cache folder cannot be written: {error}",
            where=str(cache_folder()),
            way_out="set LOWTIDE_CACHE to a folder you may write to",
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _retrieved() -> Iterator[Path]:
    """Fetch the jars into a fresh folder next to their final one; the folder is removed after, unless renamed."""
    scratch = Path(tempfile.mkdtemp(prefix="fetch-", dir=cache_folder() / "jars"))
    try:
        fresh = scratch / "jars"
        sys.stderr.write(f"fetching third-party jars into {cache_folder() / 'jars'} (about a minute the first time)\n")
        _run_ivy(fresh)
        yield fresh
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def ivy_command(ivy_file: Path, home: Path) -> list[str]:
    """Return the command for the Ivy among pyspark's jars; the caller appends what to fetch, and in which form.

    Args:
        ivy_file: The jars that it may fetch.
        home: The folder for what it fetches.
    """
    command = [_java(), f"-Divy.default.ivy.user.dir={home}"]
    command += ["-cp", f"{pyspark_folder() / 'jars'}/*", "org.apache.ivy.Main", "-ivy", str(ivy_file)]
    settings = os.environ.get(_SETTINGS_VARIABLE)
    return [*command, "-settings", settings] if settings else command


def _run_ivy(target: Path) -> None:
    command = ivy_command(_IVY_FILE, cache_folder() / "ivy")
    command += ["-confs", *_GROUPS, "-types", "jar", "bundle"]
    command += ["-retrieve", f"{target}/[conf]/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise _not_fetched(f"Ivy did not finish within {FETCH_LIMIT_S:.0f} s") from error
    if done.returncode:
        # Ivy prints missing jars last, after many lines about where it looked for them.
        log = [line.strip(":\t ") for line in (done.stdout + done.stderr).splitlines()]
        raise _not_fetched("\n".join(line for line in log if line)[-1500:].split("\n", 1)[-1])


def _not_fetched(why: str) -> JarMissing:
    lines = "\n    ".join(why.splitlines()[-LOG_LINES_SHOWN:])
    return JarMissing(
        f"cannot fetch the third-party jars:\n    {lines}",
        where=str(jars_folder()),
        way_out="connect this machine to a Maven registry, or name a mirror in an Ivy settings file and set "
        f"{_SETTINGS_VARIABLE} to its path, or copy the folder above from a machine that has it",
    )


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        raise JavaMissing(
            "the third-party jars are missing, and fetching them needs Java, which is not installed",
            where=f"JAVA_HOME={home}" if home else "PATH",
            way_out="install a JDK 17 or newer, or set JAVA_HOME to one",
        )
    return found


def _write_lock() -> None:
    """Fetch the jars that ivy.xml names and write their digests, to be reviewed before they are committed."""
    with _alone(), _retrieved() as fresh:
        lines = ["# SHA-256, size in bytes and path of every jar that ivy.xml names; written by `make lock-jars`."]
        for path in sorted(fresh.rglob("*.jar")):
            content = path.read_bytes()
            lines.append(f"{hashlib.sha256(content).hexdigest()} {len(content)} {path.relative_to(fresh)}")
        _LOCK_FILE.write_text("\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    """Fetch and check the jars, or write jars.lock; return the exit code."""
    try:
        if arguments == ["lock"]:
            _write_lock()
        verify(fetch())
    except LowtideError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
