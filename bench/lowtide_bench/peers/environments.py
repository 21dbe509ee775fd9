"""Environments of peers: a Python environment for each, and jars, both in the cache outside the repository."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lowtide.cache import cache_folder
from lowtide.errors import LowtideError
from lowtide.jars.java import find_java
from lowtide.jars.third_party import pyspark_folder

REQUIREMENTS = Path(__file__).with_name("requirements")
INSTALL_LIMIT_S = 900.0
LINES_SHOWN = 8
UV_VARIABLE = "LOWTIDE_UV"
IVY_SETTINGS_VARIABLE = "LOWTIDE_IVY_SETTINGS"


class NotInstalled(LowtideError):
    """A peer could not be installed on this machine; look at the installer's output."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar of a Maven registry, by its coordinates, and the SHA-256 (hex) that it must have."""

    organisation: str
    name: str
    revision: str
    sha256: str


def python(name: str) -> Path:
    """Return the interpreter of a peer's environment; build it from `requirements/NAME.txt` if it is missing.

    Raises:
        NotInstalled: it cannot be built here.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    made_of = (requirements.read_bytes(), platform.python_version().encode(), sys.base_prefix.encode())
    folder = _peers_folder() / f"{name}-{hashlib.sha256(b' '.join(made_of)).hexdigest()[:12]}"
    interpreter, stamp = folder / "bin" / "python", folder / "installed"
    with _alone(folder.name):
        if not stamp.exists():
            uv = os.environ.get(UV_VARIABLE)
            if not uv:
                raise NotInstalled(f"{UV_VARIABLE} does not name a uv", way_out="run it as `make peers`")
            settings = {"UV_CACHE_DIR": str(cache_folder() / "uv-cache"), "UV_PYTHON_DOWNLOADS": "never"}
            _run(name, [uv, "venv", "--clear", "--python", sys.executable, str(folder)], settings)
            sync = [uv, "pip", "sync", "--python", str(interpreter), str(requirements)]
            _run(name, sync, settings)
            stamp.touch()
    return interpreter


def jar(wanted: Jar) -> Path:
    """Return a jar's path; if it is missing, fetch it with the Ivy among pyspark's jars.

    Raises:
        NotInstalled: it cannot be fetched, or has another checksum.
    """
    file = _peers_folder() / f"{wanted.name}-{wanted.revision}.jar"
    with _alone(file.name):
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
                fetched = Path(scratch) / f"{wanted.name}.jar"
                _run(wanted.name, _ivy(wanted, fetched.parent), {})
                found = hashlib.sha256(fetched.read_bytes()).hexdigest() if fetched.exists() else "nothing"
                if found != wanted.sha256:
                    raise NotInstalled(f"{wanted.name} {wanted.revision}: SHA-256 {found}, expected {wanted.sha256}")
                shutil.move(fetched, file)
    return file


def _ivy(wanted: Jar, folder: Path) -> list[str]:
    command = [str(find_java().executable), f"-Divy.default.ivy.user.dir={cache_folder() / 'ivy'}"]
    command += ["-cp", f"{pyspark_folder() / 'jars'}/*", "org.apache.ivy.Main"]
    if settings := os.environ.get(IVY_SETTINGS_VARIABLE):
        command += ["-settings", settings]
    command += ["-dependency", wanted.organisation, wanted.name, wanted.revision, "-notransitive"]
    return [*command, "-types", "jar", "-retrieve", f"{folder}/[artifact].[ext]"]


def _run(name: str, command: Sequence[str], settings: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"{name}: `{command[0]}` was not done after {INSTALL_LIMIT_S:g} s") from error
    if done.returncode:
        said = " / ".join(line.strip() for line in done.stdout.splitlines()[-LINES_SHOWN:] if line.strip())
        raise NotInstalled(
            f"{name} could not be installed: {said}",
            way_out="behind a mirror, set what uv needs for it; or leave this system out with --systems",
        )


def _peers_folder() -> Path:
    folder = cache_folder() / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Hold the cache's lock of this name, so that two runs at once install one after the other."""
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"peers-{name}").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
