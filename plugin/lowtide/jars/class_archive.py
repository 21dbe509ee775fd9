"""A class archive: the classes that a JVM has loaded, in a file that the next JVM maps.

It is Java's dynamic class-data sharing (JEP 350). A JVM that finds its archive made by another Java, or from other
jars, goes without it. `lowtide.rehearsal` makes the archives; where there is none, all starts as ever, only later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lowtide.cache import cache_folder
from lowtide.jars.java import java_executable

__all__ = ["ClassArchive"]

KEPT = 3
"""Of one name: environments come and go, and each has jars of its own."""
MAGIC_BYTES = 4
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


class ClassArchive:
    """The archive of one kind of JVM, with one Java and one list of jars.

    Attributes:
        name: Whose it is.
        path: Where it is, or would be.
    """

    def __init__(self, name: str, jars: Iterable[Path]) -> None:
        """Say what the JVM runs: the jars on its class path, which have to be there."""
        java = java_executable()
        # Where there is no Java, whoever starts a JVM says so.
        found = [] if java is None or not java.exists() else [java.resolve(), *sorted(jars)]
        stats = [(path, path.stat()) for path in found]
        seen = "\n".join(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats)
        key = hashlib.sha256(seen.encode()).hexdigest()[:12]
        self.name = name
        self.path = cache_folder() / "classes" / f"{name}-{key}.jsa"
        self._draft = self.path.with_suffix(".new")

    def options(self) -> list[str]:
        """What the JVM is started with to use the archive, or to make it; nothing where neither is due."""
        if self.path in _making:
            return [f"-XX:ArchiveClassesAtExit={self._draft}", *QUIET]
        return [f"-XX:SharedArchiveFile={self.path}", *QUIET] if self.path.is_file() else []

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make the archive of what the JVM loads that this process starts in the block, and ends in it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._draft.unlink(missing_ok=True)
        _making.add(self.path)
        try:
            yield
            if self._whole():
                self._draft.rename(self.path)
                self._prune()
        finally:
            _making.discard(self.path)
            self._draft.unlink(missing_ok=True)

    def _whole(self) -> bool:
        """Whether the JVM came to the end: it writes the archive's head last. Half an archive would crash others."""
        try:
            with self._draft.open("rb") as draft:
                return any(draft.read(MAGIC_BYTES))
        except FileNotFoundError:
            return False

    def _prune(self) -> None:
        """Leave the newest."""
        of_this_name = sorted(self.path.parent.glob(f"{self.name}-*.jsa"), key=lambda path: path.stat().st_mtime)
        for path in of_this_name[:-KEPT]:
            path.unlink(missing_ok=True)


_making: set[Path] = set()
