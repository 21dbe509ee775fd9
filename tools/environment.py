"""Builds the Python environments of this clone, outside it, each from its lock file.

Run by make with any Python 3.11+ and nothing but the standard library:

    python3 tools/environment.py ensure     build what is missing (one quick look when nothing is)
    python3 tools/environment.py path       print where the environment lies, whether or not it is there
    python3 tools/environment.py uv         print where the pinned uv lies, fetching it if need be
    python3 tools/environment.py prune      delete environments whose clone or lock file is gone

`ensure` and `path` take the name of an environment other than everyone's: `oldest-airflow`.

Third-party files are shared through uv's cache (hard links), so one environment per (lock file, Python, clone) costs
seconds and little disk, and two clones never re-point each other's editable installs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, NoReturn

CLONE = Path(__file__).resolve().parent.parent
LOCK_FILE = CLONE / "requirements.lock"
OTHER_LOCK_FILES = {"oldest-airflow": CLONE / "dags" / "oldest" / "requirements.lock"}
"""By name the lock files of environments that only some tests need."""
UV_LOCK_FILE = CLONE / "tools" / "uv.lock.txt"
DISTRIBUTIONS = ("tracker", "snapshots", "plugin", "dags", "bench")
OLDEST_PYTHON = (3, 11)
OLDEST_JDK = 17


def fail(what: str, way_out: str) -> NoReturn:
    """Print an error with its way out and end with exit code 1."""
    sys.stderr.write("error: {}\n       {}\n".format(what, way_out))
    raise SystemExit(1)


def cache_folder() -> Path:
    """Return the folder of everything fetched or built outside the clone; lowtide.cache has the same rule."""
    named = os.environ.get("LOWTIDE_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "lowtide"


def digest(*parts: object) -> str:
    """Return twelve hex digits that stand for the parts, in order."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part if isinstance(part, bytes) else str(part).encode()).digest())
    return whole.hexdigest()[:12]


def environment_folder(lock_file: Path) -> Path:
    """Return the folder of the environment of this lock file, this Python and this clone."""
    python = "{}-{}".format(platform.python_version(), sys.base_prefix)
    return cache_folder() / "envs" / "{}-{}".format(digest(lock_file.read_bytes(), python), digest(CLONE)[:6])


def stamp(lock_file: Path) -> dict[str, str]:
    """Return the stamp of a finished environment: its owner, and the metadata it installed."""
    metadata = [(CLONE / name / "pyproject.toml").read_bytes() for name in DISTRIBUTIONS]
    version = (CLONE / "plugin" / "lowtide" / "version.py").read_bytes()
    return {"clone": str(CLONE), "lock": digest(lock_file.read_bytes()), "metadata": digest(version, *metadata)}


def read_stamp(folder: Path) -> dict[str, str]:
    """Return the stamp of an environment, or an empty dict if there is none or it cannot be read."""
    try:
        found = json.loads((folder / "lowtide-stamp.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def check_python() -> None:
    """End with an error unless this is Linux and a Python that is new enough."""
    if sys.platform != "linux":
        fail(
            "Lowtide runs on Linux, and this is {}".format(sys.platform),
            "use a Linux machine, virtual machine or container",
        )
    if sys.version_info < OLDEST_PYTHON:
        found, oldest = platform.python_version(), ".".join(map(str, OLDEST_PYTHON))
        fail(
            "Python {} or newer is needed, and {} is Python {}".format(oldest, sys.executable, found),
            "install a newer one and name it: make PYTHON=/path/to/python3 ...",
        )


def check_jdk() -> None:
    """End with an error unless `java` and `javac` (of JAVA_HOME if set, else of PATH) are new enough."""
    home = os.environ.get("JAVA_HOME")
    way_out = "install a newer one (Debian: openjdk-{}-jdk-headless), or set JAVA_HOME to it".format(OLDEST_JDK)
    for tool in ("java", "javac"):
        command = str(Path(home) / "bin" / tool) if home else tool
        where = "JAVA_HOME={}".format(home) if home else "PATH"
        try:
            answer = subprocess.run([command, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            fail("a JDK is needed, and `{}` of {} does not run: {}".format(tool, where, error), way_out)
        text = answer.stdout.decode(errors="replace")
        found = re.search(r'(?:version "|javac )(?:1\.)?(\d+)', text)
        if found is None or int(found.group(1)) < OLDEST_JDK:
            said = "`{}` of {} says: {}".format(tool, where, text.strip())
            fail("JDK {} or newer is needed, and {}".format(OLDEST_JDK, said), way_out)


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold the cache's lock of this name, so that two makes at once do the work one after the other."""
    locks = cache_folder() / "locks"
    try:
        locks.mkdir(parents=True, exist_ok=True)
        handle = (locks / name).open("w")
    except OSError as error:
        fail(
            "the cache folder {} cannot be written: {}".format(cache_folder(), error),
            "set LOWTIDE_CACHE to a folder you may write to",
        )
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run(step: str, *command: object, **more_environment: str) -> None:
    """Run a command, and show its output only if it fails; then exit with an error that names the step."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=str(CLONE),
        env=dict(os.environ, **more_environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout.decode(errors="replace"))
        fail(
            "{} failed (exit code {}): {}".format(step, done.returncode, " ".join(map(str, command))),
            "the output above says why; behind a mirror or proxy, set what pip and uv need for it",
        )


def uv() -> Path:
    """Return the path of the pinned uv, fetched with pip into the cache if it is not there yet."""
    folder = cache_folder() / "uv-{}".format(digest(UV_LOCK_FILE.read_bytes(), platform.machine()))
    program = folder / "bin" / "uv"
    if program.exists():
        return program
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        fail(
            "{} has no pip".format(sys.executable),
            "install it (Debian: python3-pip), or name another Python: make PYTHON=...",
        )
    with alone("uv"):
        if not program.exists():
            fresh = Path(tempfile.mkdtemp(prefix="uv-", dir=str(cache_folder())))
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            run("fetching uv", *pip, "--require-hashes", "--target", fresh, "-r", UV_LOCK_FILE)
            shutil.rmtree(str(folder), ignore_errors=True)
            fresh.rename(folder)
    return program


def install(folder: Path, lock_file: Path, third_party: bool) -> None:
    """Fill the environment: what the lock file names if asked, then the distributions as editable installs."""
    program, python = uv(), folder / "bin" / "python"
    settings = {"UV_CACHE_DIR": str(cache_folder() / "uv-cache"), "UV_PYTHON_DOWNLOADS": "never"}
    if third_party:
        sys.stderr.write("building the environment in {} (minutes the first time)\n".format(folder))
        run("making the environment", program, "venv", "--clear", "--python", sys.executable, folder, **settings)
        sync = [program, "pip", "sync", "--python", python, "--require-hashes"]
        step = "installing {}".format(lock_file.relative_to(CLONE))
        run(step, *sync, "--build-constraints", lock_file, lock_file, **settings)
    editable = [word for name in DISTRIBUTIONS for word in ("--editable", CLONE / name)]
    # Without isolation hatchling comes from the lock file, and nothing is fetched.
    flags = ["--no-deps", "--no-build-isolation", "--reinstall"]
    run("installing the workspace", program, "pip", "install", "--python", python, *flags, *editable, **settings)


def point_here(folder: Path) -> None:
    """Point `.venv` in the clone to the environment, for people and editors, unless something else is there."""
    link = CLONE / ".venv"
    if link.is_symlink() and os.readlink(str(link)) == str(folder):
        return
    if link.exists() and not link.is_symlink():
        return
    fresh = CLONE / ".venv.{}".format(os.getpid())
    fresh.symlink_to(folder)
    fresh.replace(link)


def ensure(lock_file: Path) -> None:
    """Build or mend the environment; a finished one costs two small reads."""
    folder, wanted = environment_folder(lock_file), stamp(lock_file)
    if read_stamp(folder) != wanted:
        check_jdk()
        with alone(folder.name):
            found = read_stamp(folder)
            if found != wanted:
                install(folder, lock_file, third_party=found.get("lock") != wanted["lock"])
                (folder / "lowtide-stamp.json").write_text(json.dumps(wanted))
    if lock_file == LOCK_FILE:
        point_here(folder)


def prune() -> None:
    """Delete environments whose clone is gone or has a different lock file now."""
    for folder in sorted((cache_folder() / "envs").glob("*-*")):
        with alone(folder.name):
            found = read_stamp(folder)
            clone = Path(found.get("clone", ""))
            locks = [clone / lock.relative_to(CLONE) for lock in (LOCK_FILE, *OTHER_LOCK_FILES.values())]
            if found and found["lock"] in [digest(lock.read_bytes()) for lock in locks if lock.exists()]:
                continue
            sys.stdout.write("deleting {}\n".format(folder))
            shutil.rmtree(str(folder))


def main(arguments: list[str]) -> None:
    """Run the command that the first argument names, on the environment that the second one does."""
    check_python()
    actions: dict[str, Callable[[Path], None]] = {
        "ensure": ensure,
        "path": lambda lock_file: print(environment_folder(lock_file)),
        "uv": lambda _: print(uv()),
        "prune": lambda _: prune(),
    }
    lock_files = {"": LOCK_FILE, **OTHER_LOCK_FILES}
    action, name = (*arguments, "", "")[:2]
    if len(arguments) > 2 or action not in actions or name not in lock_files:
        fail(
            "a command is needed, and at most the name of an environment",
            "one of: {}; of the names: {}".format(", ".join(actions), ", ".join(OTHER_LOCK_FILES)),
        )
    actions[action](lock_files[name])


if __name__ == "__main__":
    main(sys.argv[1:])
