"""A class archive: the classes that a JVM has loaded, in a file that the next JVM maps.

It is Java's class-data sharing (JEPs 310 and 350). A JVM that finds its archive made by another Java, or from other
jars, goes without it. Where there is none, all starts as ever, only later: a job's JVM then lists what it loads, and
`lowtide.jars.archiving` makes the archive of that list. `lowtide.rehearsal` makes archives before any job runs.

Hard links of the same jars, as uv makes them in all environments over one cache, are the same to the JVM, as long as
the links that the archive was made from are there. So one archive serves all clones of one version on a machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lowtide.cache import cache_folder
from lowtide.jars.java import java_executable

KEPT = 3
"""Of one name: Java, the jars and the environments that hold them come and go."""
MAGIC_BYTES = 4
DRAFT = ".new"
LIST = ".list"
LISTS_KEPT_S = 3_600.0
"""Time after its last class at which a list counts as left behind."""
LISTS = "-XX:DumpLoadedClassList="
MADE_FROM = "made-from"
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


class ClassArchive:
    """The archive of one kind of JVM, with one Java and one list of jars.

    Attributes:
        name: Whose it is.
        path: Its path, made or not, in its own folder.
    """

    def __init__(self, name: str, jars: Iterable[Path]) -> None:
        """Say what the JVM runs: the jars in the order of its class path, which have to be there."""
        java = java_executable()
        # Without Java, starting a JVM reports that.
        self._files = [] if java is None or not java.exists() else [java.resolve(), *jars]
        stats = [(path.name, path.stat()) for path in self._files]
        seen = "\n".join(f"{file} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats)
        key = hashlib.sha256(seen.encode()).hexdigest()[:12]
        self.name = name
        self.path = cache_folder() / "classes" / f"{name}-{key}" / "classes.jsa"

    @property
    def there(self) -> bool:
        """True if it was made from these very files, under whatever names: the JVM checks the files."""
        try:
            made_from = self.path.with_name(MADE_FROM).read_text().splitlines()
            return self.path.is_file() and all(map(Path.samefile, self._files, made_from))
        except OSError:
            return False

    def options(self, *, lists: bool = False) -> list[str]:
        """Return the JVM's options for using the archive, or making it; none where neither is due.

        Args:
            lists: Whether a JVM without an archive lists what it loads, for `lowtide.jars.archiving`.
        """
        draft = _making.get(self.path)
        if draft is not None:
            return [f"-XX:ArchiveClassesAtExit={draft}", *QUIET]
        if self.there:
            return [f"-XX:SharedArchiveFile={self.path}", *QUIET]
        return [f"{LISTS}{self._new_list()}"] if lists and self._may_be_made() else []

    @property
    def files(self) -> list[Path]:
        """Java and the jars; nothing where there is no Java."""
        return list(self._files)

    def _new_list(self) -> Path:
        return self.path.parent.with_name(f"{self.path.parent.name}-{uuid.uuid4().hex[:8]}{LIST}")

    def _may_be_made(self) -> bool:
        """Return whether the cache takes one; a cache that others have filled may be read-only."""
        folder = self.path.parent.parent
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        return bool(self._files) and os.access(folder, os.W_OK)

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make the archive of what the JVM loads that this process starts in the block, and ends in it."""
        folder = self.path.parent
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock() as makers:
            with tempfile.TemporaryDirectory(prefix=f"{self.name}-", suffix=DRAFT, dir=folder.parent) as scratch:
                draft = Path(scratch, folder.name, self.path.name)
                draft.parent.mkdir()
                _making[self.path] = draft
                try:
                    yield
                finally:
                    del _making[self.path]
                if _whole(draft):
                    _sync(draft)
                    draft.with_name(MADE_FROM).write_text("".join(f"{path}\n" for path in self._files))
                    self._put(draft.parent)
            _tidy(makers)

    def _put(self, draft: Path) -> None:
        """Put the archive in its place, unless another maker was sooner."""
        folder = self.path.parent
        if not self.there:
            _remove(folder)
        try:
            draft.rename(folder)
        except OSError:
            if not self.there:
                raise


def _whole(draft: Path) -> bool:
    """Return whether the archive is complete: the JVM writes its head last, and half an archive would crash others."""
    try:
        with draft.open("rb") as archive:
            return any(archive.read(MAGIC_BYTES))
    except FileNotFoundError:
        return False


def _sync(draft: Path) -> None:
    """Have the disk hold it before it gets its name: a JVM crashes on pages that a loss of power has left empty."""
    with draft.open("rb") as archive:
        os.fsync(archive.fileno())


@contextmanager
def _lock() -> Iterator[IO[str]]:
    """Share a lock with all makers of archives: it ends with the process, so a draft without it is abandoned."""
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / "classes").open("w") as makers:
        fcntl.flock(makers, fcntl.LOCK_SH)
        yield makers


def _tidy(makers: IO[str]) -> None:
    """Leave the newest of each name, and no draft of a maker that was killed, unless another one is at work now."""
    with suppress(BlockingIOError):
        fcntl.flock(makers, fcntl.LOCK_EX | fcntl.LOCK_NB)
        whole: dict[str, list[Path]] = {}
        for path in sorted((cache_folder() / "classes").iterdir(), key=lambda path: path.stat().st_mtime):
            if path.suffix == DRAFT or _is_left_list(path):
                _remove(path)
            elif path.suffix == LIST:
                continue
            else:
                whole.setdefault(path.name.rpartition("-")[0], []).append(path)
        for paths in whole.values():
            for path in paths[:-KEPT]:
                _remove(path)


def _is_left_list(path: Path) -> bool:
    return path.suffix == LIST and time.time() - path.stat().st_mtime > LISTS_KEPT_S


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


_making: dict[Path, Path] = {}
