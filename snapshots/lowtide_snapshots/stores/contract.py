"""The contract of every store: objects that are written once, read whole, listed and deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lowtide_snapshots.format.parts import Data
from lowtide_snapshots.stores.errors import AlreadyThere, NameRefused, StoreDamaged, StoreRefused

UNFINISHED_LIMIT_S = 24 * 3600.0
"""The age from which on what is half written is of a writer that was killed."""


@dataclass(frozen=True, slots=True)
class StoreSetting:
    """The location of a store; credentials are never in it, but come in the standard ways of boto3 and of Azure.

    Attributes:
        url: `/path` or `file:path` of a folder, `s3://bucket/prefix`, `az://container/prefix`, or `memory:`.
        endpoint: the URL of an S3 server that is not Amazon's, or of an account in Azure or on another server.
        region: S3's region.
        profile: the name of a profile in the AWS configuration of the machine.
        account: Azure's storage account.
        memory_mb: the most that a store in memory takes.
        limit_s: how long one request to a server may take, tries and pauses together; what is large takes several.
    """

    url: str
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    account: str | None = None
    memory_mb: int = 256
    limit_s: float = 30.0


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """An object that is there; `modified` has a time zone."""

    name: str
    bytes: int
    modified: datetime


class Store(Protocol):
    """Objects below one root, to be used from any number of threads.

    Names are `/`-separated. Every method ends in: done, or one of these, which all of them raise: `StoreUnavailable`,
    `StoreRefused`, `NameRefused`.
    """

    @property
    def where(self) -> str:
        """The root, for people."""
        ...

    def put(self, name: str, data: Data) -> None:
        """Put an object if there is none of this name; when this returns it is durable and whole.

        If it is there with the same bytes, nothing is done: an earlier try's answer may have been lost.

        Raises:
            AlreadyThere: it is there with other bytes.
            StoreFull: there is no room.
            StoreDamaged: what was stored is not what was put.
        """
        ...

    def get(self, name: str) -> bytes:
        """An object's bytes.

        Raises:
            NotThere: there is none of this name.
            StoreDamaged: what came is not what was put.
        """
        ...

    def names(self, prefix: str) -> list[Entry]:
        """All objects whose names begin with a prefix, ascending by name; empty for all there are."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there are fine."""
        ...

    def sweep(self, prefix: str) -> None:
        """Remove what writers that were killed a day ago or earlier have left below a prefix; no object is touched."""
        ...

    def check(self) -> None:
        """See that the store can be written, read, listed and deleted in, and puts only what is not there.

        It does so with a small object, which it deletes afterwards.

        Raises:
            StoreDamaged: what came back is not what was put.
        """
        ...

    def close(self) -> None:
        """End connections; nothing may be called afterwards."""
        ...


def checked_name(name: str) -> str:
    """The name, if it is one.

    Raises:
        NameRefused: it is none. The last part of one must not begin with a dot: such are a store's own.
    """
    steps = name.split("/")
    if any(step in ("", ".", "..") or "\0" in step for step in steps) or steps[-1].startswith("."):
        raise NameRefused(
            f"{name!r} is not a valid object name", way_out="separate its parts with /, none empty, `.` or `..`"
        )
    return name


def checked_prefix(prefix: str) -> str:
    """The prefix, if names can begin with it; errors as of `checked_name`."""
    steps = prefix.split("/")
    if any(step in ("", ".", "..") for step in steps[:-1]) or "\0" in prefix:
        raise NameRefused(f"no object's name can begin with {prefix!r}", way_out="give the first part of a name")
    return prefix


def check_store(store: Store) -> None:
    """Carry out `Store.check` with the other methods."""
    name, data = f"check-{uuid.uuid4().hex}", b"lowtide"
    store.put(name, data)
    try:
        if store.get(name) != data or [entry.name for entry in store.names(name)] != [name]:
            raise StoreDamaged(
                "the store returns other bytes than were put", where=store.where, way_out="check the store"
            )
        try:
            store.put(name, b"changed")
        except AlreadyThere:
            return
        raise StoreRefused(
            "the store allows objects to change: it has no conditional put",
            where=store.where,
            way_out="use a store with conditional puts; on S3 servers that is If-None-Match",
        )
    finally:
        store.delete([name])
