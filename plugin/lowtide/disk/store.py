"""The cold store of a host process: an LMDB environment in its folder, scratch of one life.

Nothing in it outlives the life, so nothing is synced to the disk: what is written is in the page cache, and the kernel
writes it when it likes. It is not opened with `writemap`: with that a full disk is a SIGBUS, without it an error.

A page that is not in the page cache stops whoever touches it for as long as the disk takes. Several threads touch
several at once: they look the keys up before the host does, and throw away what they find, so that nothing has to be
kept coherent. As this costs more than it gives while pages are there, the kernel's count of the faults that went to the
disk decides.

An environment belongs to the process that opened it. A fork may not touch it: the process of `reading.py` reads it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage
from types import ModuleType
from typing import Any

from lowtide.core.operators.state.cold import Entry
from lowtide.errors import ConfError, LifeEnded

MOST_READERS = 126
"""So many transactions may read at once: two for each snapshot that is being written."""


READS_AT_ONCE = 8
"""So many threads look up cold keys."""
FEWEST = 2
"""So many keys are worth a thread."""
COLD_SHARE = 0.05
"""If more keys than this met a page that was not in the page cache, the next ones are read by threads."""
REMEMBERED = 0.9
"""The weight of what was before in that share, at every look."""


class DiskFull(LifeEnded):
    """Give the state more room, or let it have less to keep."""


def lmdb() -> ModuleType:
    """Return the library.

    Raises:
        ConfError: it is not installed.
    """
    try:
        import lmdb
    except ImportError:
        raise ConfError(
            'state on disk needs the library "lmdb"',
            where="[state] backend",
            way_out='pip install "lowtide[disk]" on every machine, or leave the backend "memory"',
        ) from None
    return lmdb


class DiskStore:
    """See `ColdStore`.

    Args:
        folder: A folder of its own, which exists.
        max_bytes: How large it may become; so much of the address space is reserved, and no disk.

    Attributes:
        cold_share: Lately, of the keys that were asked for or put, the share that met a page that was not in the page
            cache.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lmdb = lmdb()
        self._env: Any = self._lmdb.open(
            str(folder),
            map_size=max_bytes,
            sync=False,
            metasync=False,
            readahead=False,
            mode=0o600,
            max_readers=MOST_READERS,
        )
        self._readers = ThreadPoolExecutor(READS_AT_ONCE, "lowtide-disk")
        self.cold_share = 0.0

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `ColdStore`."""
        ordered = sorted(keys)
        faults = self._fetched(ordered)
        before = _faults()
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            found = dict(cursor.getmulti(ordered))
        self._met(faults + _faults() - before, len(ordered))
        return [found.get(key) for key in keys]

    def soon(self, keys: Sequence[bytes]) -> None:
        """See `ColdStore`."""
        if self.cold_share > COLD_SHARE:
            self._fetch(sorted(keys))

    def put(self, entries: Sequence[Entry]) -> None:
        """See `ColdStore`.

        Raises:
            DiskFull: there is no room for it.
        """
        values = [entry for entry in entries if entry[1] is not None]
        try:
            with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
                # What is put in order fills pages, and meets no other one.
                appends = bool(values) and not (cursor.last() and cursor.key() >= values[0][0])
                before = _faults()
                faults = 0 if appends else self._fetched([key for key, _ in entries])
                cursor.putmulti(values, append=appends)
                for key, value in entries:
                    if value is None:
                        transaction.delete(key)
                if not appends:
                    self._met(faults + _faults() - before, len(entries))
        except self._lmdb.MapFullError:
            raise self._full(f"it has come to its limit of {self._max_bytes / 1e9:,.1f} GB") from None
        except self._lmdb.Error as error:
            if _says(error, errno.ENOSPC) or _says(error, errno.EFBIG) or _says(error, errno.EDQUOT):
                raise self._full("the disk is full") from error
            if _says(error, errno.EIO):  # The library says so too where only a part of what it writes has room.
                raise self._full("the disk is full, or fails") from error
            raise

    def range(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """See `ColdStore`."""
        with self._env.begin() as transaction:
            return read_range(transaction, first, end, limit)

    @property
    def used_bytes(self) -> int:
        """The part of its limit that is in use; freed pages are used again, but the file never shrinks."""
        info, stat = self._env.info(), self._env.stat()
        used: int = (info["last_pgno"] + 1) * stat["psize"]
        return used

    @property
    def entries(self) -> int:
        """The number of keys."""
        number: int = self._env.stat()["entries"]
        return number

    def close(self) -> None:
        """Close it; it is not used any more."""
        self._readers.shutdown(cancel_futures=True)
        self._env.close()

    def _fetched(self, keys: Sequence[bytes]) -> int:
        """Have the pages of keys in the page cache, if they may not be; return how many were not."""
        if self.cold_share <= COLD_SHARE or len(keys) < 2 * FEWEST:
            return 0
        return sum([fetching.result() for fetching in self._fetch(keys)])

    def _fetch(self, keys: Sequence[bytes]) -> list[Future[int]]:
        """Look up keys, which are ascending, in threads."""
        size = max(FEWEST, -(-len(keys) // READS_AT_ONCE))
        return [self._readers.submit(self._touch, keys[at : at + size]) for at in range(0, len(keys), size)]

    def _touch(self, keys: Sequence[bytes]) -> int:
        before = _faults()
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            cursor.getmulti(keys)
        return _faults() - before

    def _met(self, faults: int, keys: int) -> None:
        if keys:
            self.cold_share = REMEMBERED * self.cold_share + (1 - REMEMBERED) * faults / keys

    def _full(self, what: str) -> DiskFull:
        return DiskFull(
            f"the state on disk needs more room: {what}",
            where=str(self._folder),
            way_out="raise state.disk_max_gb or free space on the disk, give keys a shorter ttl, or use more hosts; "
            "then start the job again: it goes on from its last commit",
        )


def read_keys(transaction: Any, keys: Sequence[bytes]) -> list[bytes | None]:
    """Return the values of keys as of a transaction, None where there is none; ascending keys are read soonest."""
    with transaction.cursor() as cursor:
        found = dict(cursor.getmulti(keys))
    return [found.get(key) for key in keys]


def read_range(transaction: Any, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
    """Return what `ColdStore.range` does, as of a transaction."""
    found: list[tuple[bytes, bytes]] = []
    with transaction.cursor() as cursor:
        if first >= end or not cursor.set_range(first):
            return found
        for key, value in cursor:
            if key >= end or len(found) == limit:
                break
            found.append((key, value))
    return found


def _faults() -> int:
    """The number of pages that this thread has had to wait for so far, as they were only on the disk."""
    return getrusage(RUSAGE_THREAD).ru_majflt


def _says(error: Exception, number: int) -> bool:
    """Return whether an error of the library is one of the system's; it has only its text."""
    return os.strerror(number) in str(error)
