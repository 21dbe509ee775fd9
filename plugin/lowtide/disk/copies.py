"""Copies of parts on the machine's own disk, packed as the cold store takes them: the next life here begins with them.

A part's copy is a file below `FOLDER/.copies` under the part's name. It is of use only if it says that it is of this
part (name and SHA-256, as the manifest has them) and packed as the step packs now, and if its own checksum holds. Else
the part comes from the store of snapshots: a copy that is missing, damaged or of something else costs time alone.

    magic 16 B | whose 32 B | SHA-256 of the entries 32 B | their length 8 B | entries
    an entry: length of the key 2 B | of the value 4 B, all ones for a deletion | key | value
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock

from lowtide.core.operators.state.cold import Entry
from lowtide_snapshots.format.names import ObjectName, parse_name

MAGIC = b"lowtide copy 001"
FOLDER = ".copies"
"""No job's name: a name has no dot at its beginning in paths."""
SUFFIX = ".copy"
LEFT_S = 3_600.0
"""Who writes a copy for so long has died."""
_HEAD = struct.Struct(">16s32s32sQ")
_LENGTHS = struct.Struct(">HI")
_DELETED = (1 << 32) - 1


class LocalCopies:
    """The copies that a machine has of parts; several processes, of several jobs, may use them at once.

    Args:
        folder: `state.folder`.
        max_bytes: How much all copies on this machine may take, about.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._root = folder.absolute() / FOLDER
        self._max_bytes = max_bytes
        self._left: int | None = None
        """How many bytes may still be written; None if nobody has looked."""
        self._lock = Lock()

    def write(self, name: str, whose: bytes, entries: Sequence[Entry]) -> bool:
        """Write the copy of a part; return whether there was room: without, the part has none.

        Args:
            name: The part's.
            whose: See `whose`.
            entries: What the store takes for it, ascending; None deletes.
        """
        body = b"".join(_packed(entries))
        if not self._takes(len(body) + _HEAD.size):
            return False
        path = self._path(name)
        temporary = path.with_name(f".{path.name}-{os.getpid()}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(_HEAD.pack(MAGIC, whose, sha256(body).digest(), len(body)))
                file.write(body)
            temporary.replace(path)
        except OSError:  # The disk is full, or fails: the store of snapshots has the part anyway.
            with suppress(OSError):
                temporary.unlink()
            self._left = 0
            return False
        return True

    def read(self, name: str, whose: bytes) -> list[Entry] | None:
        """Return the entries of a part; None if there is no whole copy of it."""
        try:
            data = self._path(name).read_bytes()
        except OSError:
            return None
        if len(data) < _HEAD.size:
            return None
        magic, its, digest, length = _HEAD.unpack_from(data)
        body = memoryview(data)[_HEAD.size :]
        if (magic, its, length) != (MAGIC, whose, len(body)) or sha256(body).digest() != digest:
            return None
        return _unpacked(data)

    def has(self, name: str) -> bool:
        """Return whether there is a copy of a part, whole or not."""
        return self._path(name).exists()

    def sweep(self, keep: Collection[str], own: Callable[[ObjectName], bool]) -> None:
        """Delete the copies of parts that are not to be kept, of those that are one's own, and what writers left."""
        for path, name in self._files():
            parsed = parse_name(name)
            with suppress(OSError):  # Another host was faster.
                if own(parsed) and name not in keep if parsed else time.time() - path.stat().st_mtime > LEFT_S:
                    path.unlink()

    @property
    def bytes(self) -> int:
        """The bytes that all copies take."""
        found = 0
        for path, _ in self._files():
            with suppress(OSError):
                found += path.stat().st_size
        return found

    def _takes(self, size: int) -> bool:
        with self._lock:
            if self._left is None:
                self._left = self._max_bytes - self.bytes
            if size > self._left:
                return False
            self._left -= size
            return True

    def _files(self) -> Iterator[tuple[Path, str]]:
        """Yield the files with the names of their parts; what a writer left that died has no part's name."""
        for folder, _, files in os.walk(self._root):
            for file in files:
                path = Path(folder, file)
                yield path, str(path.relative_to(self._root)).removesuffix(SUFFIX)

    def _path(self, name: str) -> Path:
        return self._root / f"{name}{SUFFIX}"


def whose(name: str, digest: str, packing: str) -> bytes:
    """Return what a copy has to say of itself.

    Args:
        name: The part's.
        digest: Its SHA-256, as its manifest has it.
        packing: A text that is the same as long as the step packs alike.
    """
    return sha256("\n".join((name, digest, packing)).encode()).digest()


def _packed(entries: Sequence[Entry]) -> Iterator[bytes]:
    lengths = _LENGTHS.pack
    for key, value in entries:
        yield lengths(len(key), _DELETED if value is None else len(value))
        yield key
        if value is not None:
            yield value


def _unpacked(data: bytes) -> list[Entry]:
    found: list[Entry] = []
    at, end, lengths, size = _HEAD.size, len(data), _LENGTHS.unpack_from, _LENGTHS.size
    while at < end:
        key_bytes, value_bytes = lengths(data, at)
        at += size
        middle = at + key_bytes
        if value_bytes == _DELETED:
            found.append((data[at:middle], None))
            at = middle
        else:
            found.append((data[at:middle], data[middle : middle + value_bytes]))
            at = middle + value_bytes
    return found
