"""A store in a folder: an object is in its file, whole and on the disk, before the file has its name."""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.format.parts import Data
from lowtide_snapshots.stores.contract import UNFINISHED_LIMIT_S, Entry, check_store, checked_name, checked_prefix
from lowtide_snapshots.stores.errors import (
    AlreadyThere,
    NotThere,
    StoreDamaged,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)

# A file that is being written begins with a dot and ends so.
UNFINISHED = ".unfinished"

_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_AWAY = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN, errno.EAGAIN, errno.EINTR}


class FolderStore:
    """Objects as files below a folder, which is made when the first is put.

    The folder must be on a file system that has hard links; every machine of the job must see the same one. A call
    takes as long as the file system does: nothing can interrupt one that hangs.

    Attributes:
        where: the folder's absolute path.
    """

    def __init__(self, path: str) -> None:
        self._root = Path(path).absolute()
        self.where = str(self._root)

    def put(self, name: str, data: Data) -> None:
        """See `Store.put`."""
        path = self._path(name)
        with self._errors(name):
            _make_folder(path.parent)
            unfinished = path.with_name(f".{uuid.uuid4().hex}{UNFINISHED}")
            try:
                _write(unfinished, data)
                # A link, unlike a rename, replaces nothing.
                os.link(unfinished, path)
            except FileExistsError:
                if path.read_bytes() != bytes(data):
                    raise self._already(name) from None
            finally:
                unfinished.unlink(missing_ok=True)
            _sync(path.parent)
            size = path.stat().st_size
        if size != memoryview(data).nbytes:
            raise StoreDamaged(
                f"wrote {memoryview(data).nbytes} bytes, found {size}",
                where=f"{self.where}, {name}",
                way_out="check the file system",
            )

    def get(self, name: str) -> bytes:
        """See `Store.get`; a folder knows no checksums."""
        path = self._path(name)
        with self._errors(name):
            try:
                return path.read_bytes()
            except _NO_FILE:
                self._see_root()
                raise NotThere(
                    "no such object",
                    where=f"{self.where}, {name}",
                    way_out="check whether it was deleted, and that this is the right folder",
                ) from None

    def names(self, prefix: str) -> list[Entry]:
        """See `Store.names`."""
        top = checked_prefix(prefix).rpartition("/")[0]
        with self._errors(prefix):
            return sorted(entry for entry in self._below(self._root / top, top) if entry.name.startswith(prefix))

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`; also removes the leftovers of killed writers."""
        folders = set()
        for name in names:
            path = self._path(name)
            with self._errors(name), suppress(*_NO_FILE):
                path.unlink()
                folders.add(path.parent)
        for folder in folders:
            with self._errors(str(folder)):
                _remove_unfinished(folder)
                _sync(folder)

    def sweep(self, prefix: str) -> None:
        """See `Store.sweep`; only whole folders have a prefix here."""
        with self._errors(prefix):
            for folder, _, _ in os.walk(self._root / checked_prefix(prefix).rpartition("/")[0]):
                with suppress(FileNotFoundError):
                    _remove_unfinished(Path(folder))

    def check(self) -> None:
        """See `Store.check`."""
        check_store(self)

    def close(self) -> None:
        """See `Store.close`."""

    def _path(self, name: str) -> Path:
        return self._root / checked_name(name)

    def _see_root(self) -> None:
        """Tell an object that is gone from a disk that is not mounted."""
        if not self._root.is_dir():
            raise StoreUnavailable(
                "the store's folder is missing", where=self.where, way_out="mount it, or correct the store's URL"
            )

    def _below(self, folder: Path, name: str) -> Iterator[Entry]:
        try:
            found = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for item in found:
            below = f"{name}/{item.name}" if name else item.name
            if item.is_dir(follow_symlinks=False):
                yield from self._below(folder / item.name, below)
            elif not item.name.startswith("."):
                with suppress(FileNotFoundError):
                    about = item.stat()
                    yield Entry(below, about.st_size, datetime.fromtimestamp(about.st_mtime, UTC))

    def _already(self, name: str) -> AlreadyThere:
        return AlreadyThere(
            "an object of this name exists with other bytes, and objects never change",
            where=f"{self.where}, {name}",
            way_out="find out who wrote it; two jobs of one name must not share a store",
        )

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Name what the file system says for what the caller can do about it."""
        try:
            yield
        except OSError as error:
            kind: type[SnapshotsError] = StoreRefused
            way_out = "correct the store's URL or the permissions; the folder must be on a file system with hard links"
            if error.errno in _FULL:
                kind, way_out = StoreFull, "make room, or give the store another place"
            elif error.errno in _AWAY:
                kind, way_out = StoreUnavailable, "check the disk or the server that the folder is on, and try again"
            said = error.strerror or str(error)
            raise kind(f"the folder fails: {said}", where=f"{self.where}, {name}", way_out=way_out) from error


def _write(path: Path, data: Data) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(folder: Path) -> None:
    """Make a folder and all above it, each of them on the disk before anything is in it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir()
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_unfinished(folder: Path) -> None:
    oldest = time.time() - UNFINISHED_LIMIT_S
    for item in os.scandir(folder):
        if item.name.startswith(".") and item.name.endswith(UNFINISHED):
            with suppress(FileNotFoundError):
                about = item.stat()
                if stat.S_ISREG(about.st_mode) and about.st_mtime < oldest:
                    os.unlink(item.path)
