"""Compile the Java shim against pyspark and Kafka's producer: `python -m lowtide.jars.build` (`make jar`).

The same sources and compiler give the same bytes. The jar says which sources it was made from, so that a stale one is
noticed; a fresh one is not built again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from lowtide.errors import JavaMissing, LowtideError
from lowtide.jars.java import find_java
from lowtide.jars.shim import SHIM, manifest, shim_fault, shim_jar, source_files
from lowtide.jars.third_party import producer_jars, pyspark_folder

RELEASE = 17
COMPILE_LIMIT_S = 300.0
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LINT = "-Xlint:all,-classfile,-processing,-path"


class ShimRefused(LowtideError):
    """Correct the Java sources: the compiler does not take them."""


def build() -> Path:
    """Return the jar of the shim, compiled if it is missing or stale.

    Raises:
        JarMissing: it has to be built, but only a clone has the sources.
        JavaMissing: there is only a runtime instead of a JDK, or an old JDK.
        ShimRefused: the compiler found faults.
    """
    if shim_fault():
        if not source_files():
            return shim_jar()
        make_jar(source_files(), SHIM, manifest())
    return SHIM


def make_jar(sources: Iterable[Path], jar: Path, manifest_text: str) -> None:
    """Compile Java sources against pyspark and Kafka's producer into a jar, which is there as a whole or not at all.

    Raises:
        JavaMissing, ShimRefused: see `build`.
    """
    compiler = _compiler()
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent) as folder:
        classes, fresh = Path(folder, "classes"), Path(folder, jar.name)
        _compile(compiler, sources, classes)
        _pack(classes, fresh, manifest_text)
        fresh.replace(jar)


def _compiler() -> Path:
    java = find_java()
    beside = java.executable.resolve().with_name("javac")
    found = str(beside) if beside.exists() else shutil.which("javac")
    if found is None:
        raise JavaMissing(
            "there is a Java runtime but no compiler (javac)",
            where=str(java.executable),
            way_out="install a JDK of version 17 or newer (Debian: openjdk-17-jdk-headless), or point JAVA_HOME at one",
        )
    return Path(found)


def _compile(compiler: Path, sources: Iterable[Path], classes: Path) -> None:
    jars = [pyspark_folder() / "jars" / "*", *producer_jars()]
    command: list[str | Path] = [
        compiler,
        "-Werror",
        _LINT,
        "--release",
        str(RELEASE),
        "-cp",
        ":".join(map(str, jars)),
        "-d",
        classes,
        *sources,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMPILE_LIMIT_S)
    if done.returncode:
        raise ShimRefused(f"javac refused the Java sources:\n{(done.stderr or done.stdout).strip()}")


def _pack(classes: Path, jar: Path, manifest_text: str) -> None:
    """Write a jar whose bytes depend on its content alone."""
    entries = {"META-INF/MANIFEST.MF": manifest_text.encode()}
    entries |= {str(path.relative_to(classes)): path.read_bytes() for path in sorted(classes.rglob("*.class"))}
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)


def main() -> int:
    """Build, and say where the jar is."""
    try:
        sys.stdout.write(f"the Java shim: {build()}\n")
    except LowtideError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
