"""Archives for the hosts of infra/terraform/aws: `make environment-archive` packs and tries them, in `build/aws`.

`environment.tar.gz` is a Python with Lowtide, Spark and all jars, which runs wherever it is unpacked, and
`zookeeper.tar.gz` is ZooKeeper's server. The Python is the one that this environment was made with, so a portable one
makes a portable archive: `uv python install 3.11`, then `make PYTHON=$(uv python find 3.11) environment-archive`. Hosts
need this machine's processor, and a C library as new as what was packed asks for.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

import click
from software import install, wheels
from terraform_tools import BASE_PYTHON, ROOT

from lowtide.embedded.zookeeper import JARS, spark_jars
from lowtide.jars.java import find_java
from lowtide.jars.third_party import broker_jars, connector_jars, jars_folder

OUTPUT = ROOT / "build/aws"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
NEWEST_GLIBC = "2.34"
"""Amazon Linux 2023's."""
LEFT_OUT = ("__pycache__", "site-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip", "*.a", "config-*")
"""Left out of the Python's own library."""
FIRST_LINES = """\
#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
"""
"""The start of a script that is run by the Python beside it; Python takes the second and third line for a text."""
CUSTOM = '''\
"""Names the folder of Lowtide's jars, which came with this Python."""

import os
import sys

os.environ.setdefault("LOWTIDE_CACHE", os.path.join(sys.prefix, "cache"))
'''

FLOW = """\
import lowtide as lt
from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    word: str


flow = lt.Flow("tried")
flow.read("words", lt.kafka("in", lt.json(Word))).write("out", lt.kafka("out", lt.json(Word)))
"""

TRIED = dedent(
    """
    import json, os, sys
    from pathlib import Path
    import bz2, ctypes, lzma, sqlite3, ssl, zlib
    import confluent_kafka, kazoo, lowtide, msgspec, numpy, pyarrow
    from pyspark.sql import SparkSession
    from lowtide.jars.third_party import broker_jars, connector_jars

    jars = [*connector_jars(), *broker_jars()]
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    told = spark.sparkContext.parallelize([1, 2, 3], 1).map(lambda n: (n * n, sys.prefix)).collect()
    spark.stop()
    files = {module.__file__ for module in sys.modules.values() if getattr(module, "__file__", None)}
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    print(json.dumps({
        "prefix": sys.prefix, "squares": [square for square, _ in told], "worker": told[0][1],
        "files": sorted(files), "jars": sorted(map(str, jars)), "mapped": sorted(so for so in mapped if ".so" in so),
    }))
    """
)


class NotPortable(click.ClickException):
    """An archive runs on this machine alone."""


@click.command(help=__doc__)
@click.option(
    "--glibc", default=NEWEST_GLIBC, show_default=True, metavar="VERSION",
    help="The hosts' C library; what needs a newer one is refused.",
)  # fmt: skip
def main(glibc: str) -> None:
    """Pack both archives; try the environment out where it was not made.

    Raises:
        NotPortable: it needs what hosts do not have.
    """
    OUTPUT.mkdir(parents=True, exist_ok=True)
    archive = OUTPUT / "environment.tar.gz"
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        environment = Path(folder) / "made"
        make(environment)
        needed = newest_glibc(environment)
        if parts(needed) > parts(glibc):
            raise NotPortable(
                f"{BASE_PYTHON} and what was installed need glibc {needed}, but the hosts have {glibc}\n"
                "       pack on Amazon Linux 2023, or with a portable Python: make PYTHON=$(uv python find 3.11) "
                "environment-archive;\n       for newer hosts: ARGS='--glibc VERSION'"
            )
        write(archive, environment)
        shutil.rmtree(environment)
        libraries = try_out(archive, Path(folder) / "elsewhere")
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        for file in (*spark_jars(JARS), ROOT / "infra/terraform/local/modules/zookeeper/log4j2.properties"):
            shutil.copy2(file, folder)
        write(OUTPUT / "zookeeper.tar.gz", Path(folder))
    for made in (archive, OUTPUT / "zookeeper.tar.gz"):
        click.echo(f"{made.relative_to(ROOT)}: {made.stat().st_size / 2**20:.0f} MiB")
    also = f", {', '.join(libraries)}" if libraries else ""
    click.echo(
        f"tried out where it was not made; hosts need: {platform.machine()}, glibc {needed} or newer, Java 17{also}"
    )


def make(folder: Path) -> None:
    """Make the environment: a copy of the Python, what is installed into it, and the jars."""
    base = Path(sys.base_prefix)
    (folder / "bin").mkdir(parents=True)
    shutil.copy2(BASE_PYTHON, folder / "bin" / VERSION)
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(VERSION)
    shutil.copytree(base / "lib" / VERSION, folder / "lib" / VERSION, ignore=shutil.ignore_patterns(*LEFT_OUT))
    packages = folder / "lib" / VERSION / "site-packages"
    packages.mkdir()
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy2(library, folder / "lib", follow_symlinks=False)
    wheels()
    install(folder / "bin" / VERSION, "lowtide[s3]")
    (packages / "sitecustomize.py").write_text(CUSTOM)
    for jar in [*connector_jars(), *broker_jars()]:
        copy = folder / "cache/jars" / jars_folder().name / jar.parent.relative_to(jars_folder()) / jar.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(jar, copy)
    for script in (folder / "bin").iterdir():
        relocate(script)


def relocate(script: Path) -> None:
    """Have a script of Python's run by the Python beside it, wherever that is; leave other files as they are."""
    if script.is_symlink() or not script.is_file():
        return
    first, _, rest = script.read_bytes().partition(b"\n")
    if first.startswith(b"#!") and b"python" in first:
        script.write_bytes(FIRST_LINES.encode() + rest)
    elif rest.startswith(b"'''exec' "):
        script.write_bytes(FIRST_LINES.encode() + rest.split(b"' '''\n", 1)[1])


def newest_glibc(folder: Path) -> str:
    """Return the newest version of glibc that a program or library in a folder asks for."""
    found = {"2.17"}
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink() and (".so" in file.name or file.parent.name == "bin"):
            content = file.read_bytes()
            if content.startswith(b"\x7fELF"):
                found.update(version.decode() for version in re.findall(rb"\0GLIBC_(2\.\d+)(?:\.\d+)?(?=\0)", content))
    return max(found, key=parts)


def parts(version: str) -> tuple[int, ...]:
    """Return a version's numbers."""
    return tuple(int(part) for part in version.split("."))


def write(archive: Path, folder: Path) -> None:
    """Write a folder's content as an archive, nobody's and without times that change."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        return entry

    draft = archive.with_suffix(".draft")
    with tarfile.open(draft, "w:gz", compresslevel=1) as written:
        for path in sorted(folder.iterdir()):
            written.add(path, path.name, filter=plain)
    draft.rename(archive)


def try_out(archive: Path, folder: Path) -> list[str]:
    """Unpack the environment and have it run Lowtide, Spark and a Python worker of Spark's.

    Returns:
        The libraries of this machine that it used, beside those of glibc.

    Raises:
        NotPortable: something did not run, or came from elsewhere.
    """
    folder.mkdir()
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="tar")
    known = {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "JAVA_HOME": str(find_java().executable.resolve().parents[1]),
    }
    (folder / "tried.py").write_text(TRIED)
    (folder / "flow.py").write_text(FLOW)
    _said(known, folder / "bin/lowtide", "check", folder / "flow.py")
    told = json.loads(_said(known, folder / "bin/python", folder / "tried.py").splitlines()[-1])
    strange = [
        name
        for name in (told["prefix"], told["worker"], *told["files"], *told["jars"])
        if not Path(name).is_relative_to(folder)
    ]
    if strange or told["squares"] != [1, 4, 9]:
        raise NotPortable(f"the unpacked environment used what lies elsewhere: {strange[:5]}, {told['squares']}")
    outside = {Path(name).name for name in told["mapped"] if not Path(name).is_relative_to(folder)}
    if any(name.startswith("libpython") for name in outside):
        raise NotPortable(
            f"{BASE_PYTHON} takes its libpython from where it was installed, which no host has\n"
            "       pack with a portable Python: make PYTHON=$(uv python find 3.11) environment-archive"
        )
    return sorted(outside_glibc(outside))


def outside_glibc(names: Iterable[str]) -> set[str]:
    """Return those names of libraries that are not glibc's."""
    own = re.compile(r"(ld-linux|lib(c|m|dl|pthread|rt|util|resolv|nss_\w+))\b.*\.so")
    return {name for name in names if not own.match(name)}


def _said(known: dict[str, str], *command: object) -> str:
    done = subprocess.run(
        list(map(str, command)), env=known, cwd=known["HOME"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotPortable(f"the unpacked environment does not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    os.umask(0o022)
    main()
