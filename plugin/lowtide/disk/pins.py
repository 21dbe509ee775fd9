"""The host's side of the process that reads its state on disk for snapshots (`reading.py`)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lowtide.core.operators.state.cold import Entry
from lowtide.disk.reading import PIN, PINNED, Keys, Range, encode, receive_message, send_message

STDERR = 2
READERS = 2
"""A snapshot is read by two processes, one after the other: one that only runs when nothing else does, and the rest."""

_decode_entries = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]]).decode
_decode_values = msgspec.msgpack.Decoder(list[bytes | None]).decode


class ReaderDied(Exception):
    """The process that reads the state on disk has ended."""


class PinnedStore:
    """A `ColdStore` as it was when it was pinned; to be read only.

    Args:
        line: A socket to the process that reads it.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `ColdStore`.

        Raises:
            ReaderDied: the process that reads has ended.
        """
        return _decode_values(self._asked(encode(Keys(list(keys)))))

    def put(self, entries: Sequence[Entry]) -> None:
        """Not possible."""
        raise NotImplementedError

    def soon(self, keys: Sequence[bytes]) -> None:
        """Nothing: who writes a snapshot reads at once."""

    def range(self, first: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """See `ColdStore`.

        Raises:
            ReaderDied: the process that reads has ended.
        """
        return _decode_entries(self._asked(encode(Range(first, end, limit))))

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._line.fileno()

    def close(self) -> None:
        """Let go of what is pinned, once every process that has the socket has closed it."""
        self._line.close()

    def _asked(self, request: bytes) -> bytes:
        """Return the answer to a request."""
        try:
            send_message(self._line, request)
            answer = receive_message(self._line)
        except OSError as error:
            raise ReaderDied(f"it does not answer: {error.strerror}") from None
        if not answer:
            raise ReaderDied("it has ended")
        return answer


class Pins:
    """Pins of one store on disk.

    Args:
        folder: The store's folder.
        max_bytes: How large the store may become.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._greeted = False
        self._asked: list[PinnedStore] = []
        self._begin()

    @property
    def waits(self) -> bool:
        """Return whether a pin has been asked for that `pinned` has not given yet."""
        return bool(self._asked)

    def fileno(self) -> int:
        """Return what becomes readable when `pinned` has something to give; -1 if nothing will."""
        return -1 if self._control is None else self._control.fileno()

    def ask(self) -> None:
        """Ask for the store to be pinned; until `pinned` gives it, nothing may be written to it.

        Raises:
            ReaderDied: the process that reads has ended; the next call begins another one.
        """
        assert not self._asked, "one pin after the other"
        if self._control is None:
            self._begin()
        assert self._control is not None
        pairs = [socket.socketpair() for _ in range(READERS)]
        try:
            socket.send_fds(self._control, [PIN], [theirs.fileno() for _, theirs in pairs])
        except OSError:
            for ours, _ in pairs:
                ours.close()
            raise self._died() from None
        finally:
            for _, theirs in pairs:
                theirs.close()
        self._asked = [PinnedStore(ours) for ours, _ in pairs]

    def pinned(self) -> list[PinnedStore] | None:
        """Return the pinned store, once for each process that may read it; None if it is not pinned yet.

        Raises:
            ReaderDied: the process that reads has ended; the next `ask` begins another one.
        """
        if self._control is None:
            return None
        try:
            words = self._control.recv(16)
        except BlockingIOError:
            return None
        except OSError:
            raise self._died() from None
        if not words:
            raise self._died()
        assert set(words) == set(PINNED)
        count = len(words)
        if not self._greeted:
            self._greeted = True
            count -= 1
        if not count:
            return None
        stores, self._asked = self._asked, []
        return stores

    def close(self) -> None:
        """End the process: what it was asked for is given up. The next `ask` begins another one."""
        self._died()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            given = self._folder, self._max_bytes, theirs.fileno(), os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lowtide.disk.reading", *map(str, given)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=STDERR,
            )
        self._control, self._greeted = ours, False

    def _died(self) -> ReaderDied:
        """Let go of the process, and return how it ended."""
        for store in self._asked:
            store.close()
        self._asked = []
        if self._control is not None:
            self._control.close()
            self._control = None
        code = None
        if self._process is not None:
            self._process.kill()
            code = self._process.wait()
            self._process = None
        return ReaderDied(f"it ended with status {code}")
