"""Makes the archive that a JVM has started without, in the background, of the list of classes that it writes meanwhile.

A process of its own does it, at a niceness that leaves the job its cores: it waits until the JVM has met what a job
needs, copies the list, and has a second JVM load those classes and write them (`-Xshare:dump`). The job's JVM is not
asked for anything. It takes some 25 s of CPU, once for each Java and list of jars; where memory runs out meanwhile, the
kernel ends this process first. Whatever goes wrong, there is no archive, and the next start tries again.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lowtide.cache import cache_folder
from lowtide.jars.class_archive import DRAFT, LIST, LISTS, ClassArchive
from lowtide.process.mark import VARIABLE

SETTLES_S = 20.0
"""Time from a job's start until its JVM has loaded what an epoch and a commit need as well."""
LIMIT_S = 1_800.0
"""Limit on the second JVM; on a machine without a moment's rest it is given up."""
KEPT = re.compile(r"-Xmx|-XX:\+Use\w+GC$|--add-modules=")
"""Options of the first JVM that the archive depends on."""
BEGINS = (
    "import os, sys, time; os.nice(19); time.sleep(float(sys.argv[1])); "
    "from lowtide.jars.archiving import main; sys.exit(main(sys.argv[2:]))"
)
"""It waits before it imports anything."""


def archive_later(archive: ClassArchive, pid: int, after_s: float = SETTLES_S) -> subprocess.Popen[bytes] | None:
    """Have another process make an archive of what a JVM has loaded some time from now.

    Args:
        archive: The JVM's.
        pid: The JVM, which has started with `archive.options(lists=True)`.
        after_s: The time to wait.

    Returns:
        That process, which outlives this one; None if there is nothing to make.
    """
    if archive.there:
        return None
    command = command_of(pid)
    if list_of(command) is None:
        return None
    needs = [argument for argument in command if KEPT.match(argument)]
    task = [archive.name, str(list_of(command)), class_path_of(command), str(len(needs)), *needs]
    # Not the job's process: its end does not wait for it.
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with suppress(OSError):
        return subprocess.Popen(
            [sys.executable, "-c", BEGINS, str(after_s), *task, *map(str, archive.files[1:])],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return None


def lists_classes(pid: int) -> bool:
    """Return whether a JVM lists its classes, and no archive has been made of them yet."""
    loaded = list_of(command_of(pid))
    return loaded is not None and loaded.exists()


def command_of(pid: int) -> list[str]:
    """Return a process's command; nothing if it has ended."""
    with suppress(OSError):
        return Path("/proc", str(pid), "cmdline").read_text(errors="replace").split("\0")[:-1]
    return []


def list_of(command: Sequence[str]) -> Path | None:
    """Return the list that a JVM writes; None if it writes none."""
    found = [argument.removeprefix(LISTS) for argument in command if argument.startswith(LISTS)]
    return Path(found[-1]) if found else None


def class_path_of(command: Sequence[str]) -> str:
    """Return the class path of a JVM's command; empty if it has none."""
    return command[command.index("-cp") + 1] if "-cp" in command[:-1] else ""


def make(archive: ClassArchive, loaded: Path, class_path: str, needs: Sequence[str]) -> None:
    """Make an archive of a list of classes, which is removed then.

    Args:
        archive: The archive.
        loaded: The list; its last line may be half written.
        class_path: That of the JVM that wrote it.
        needs: Its options that the archive depends on.
    """
    try:
        with _alone(archive.path.parent.name) as alone, tempfile.TemporaryDirectory(suffix=LIST) as scratch:
            if not alone or archive.there:
                return
            lines = Path(scratch, "classes")
            lines.write_bytes(loaded.read_bytes().rpartition(b"\n")[0] + b"\n")
            with archive.made():
                draft = archive.options()[0].partition("=")[2]
                options = ["-Xshare:dump", f"-XX:SharedClassListFile={lines}", f"-XX:SharedArchiveFile={draft}"]
                command = [str(archive.files[0]), *options, "-Xlog:disable", *needs, "-cp", class_path]
                subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S)
    finally:
        loaded.unlink(missing_ok=True)


@contextmanager
def _alone(name: str) -> Iterator[bool]:
    """Give way to another process that makes the same archive: several jobs may have started at once."""
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"{name}{DRAFT}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _give_way() -> None:
    """Leave everybody else the cores, and the memory."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # This process's session is a group of its own to the scheduler, in which its niceness means nothing.
    for file, value in (("autogroup", "19"), ("oom_score_adj", "1000")):
        with suppress(OSError):
            Path("/proc/self", file).write_text(value)


def main(arguments: Sequence[str]) -> int:
    """Make the archive that `archive_later` has asked for."""
    _give_way()
    name, loaded, class_path, count, *rest = arguments
    needs, jars = rest[: int(count)], rest[int(count) :]
    make(ClassArchive(name, map(Path, jars)), Path(loaded), class_path, needs)
    return 0
