"""A store in the memory of one process, bounded: for tests, and for small jobs whose snapshots need not outlive it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime

from lowtide_snapshots.format.parts import Data
from lowtide_snapshots.stores.contract import Entry, check_store, checked_name, checked_prefix
from lowtide_snapshots.stores.errors import AlreadyThere, NotThere, StoreFull

MIB = 1 << 20


class MemoryStore:
    """Objects in memory.

    Args:
        limit_bytes: of all objects together, without their names.

    Attributes:
        where: what it is, for people.
        limit_bytes: it may change; what is there stays.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.where = "the memory of the job's service"
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, datetime]] = {}
        self._used = 0

    def put(self, name: str, data: Data) -> None:
        """See `Store.put`; it is durable as long as the process is there."""
        checked_name(name)
        whole = bytes(data)
        with self._lock:
            there = self._objects.get(name)
            if there is None:
                self._see_room(name, len(whole))
                self._objects[name] = whole, datetime.now(UTC)
                self._used += len(whole)
            elif there[0] != whole:
                raise AlreadyThere(
                    "an object of this name exists with other bytes, and objects never change",
                    where=f"{self.where}, {name}",
                    way_out="find out who wrote it",
                )

    def get(self, name: str) -> bytes:
        """See `Store.get`."""
        there = self._objects.get(checked_name(name))
        if there is None:
            raise NotThere(
                "no such object",
                where=f"{self.where}, {name}",
                way_out="check whether it was deleted, or was of a program that has ended",
            )
        return there[0]

    def names(self, prefix: str) -> list[Entry]:
        """See `Store.names`."""
        checked_prefix(prefix)
        with self._lock:
            there = list(self._objects.items())
        return sorted(Entry(name, len(data), at) for name, (data, at) in there if name.startswith(prefix))

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`."""
        for name in [checked_name(name) for name in names]:
            with self._lock:
                data, _ = self._objects.pop(name, (b"", None))
                self._used -= len(data)

    def sweep(self, prefix: str) -> None:
        """See `Store.sweep`: nothing is ever half written."""
        checked_prefix(prefix)

    def check(self) -> None:
        """See `Store.check`."""
        check_store(self)

    def close(self) -> None:
        """See `Store.close`; the objects stay."""

    def _see_room(self, name: str, size: int) -> None:
        if self._used + size > self.limit_bytes:
            raise StoreFull(
                f"the memory for snapshots is full: {self._used / MIB:,.1f} of {self.limit_bytes / MIB:,.1f} MB are "
                f"taken, and {size / MIB:,.1f} more are to be put",
                where=f"{self.where}, {name}",
                way_out="raise [snapshots].memory_mb, lower [snapshots].keep, or keep them in a folder, S3 or Azure",
            )
