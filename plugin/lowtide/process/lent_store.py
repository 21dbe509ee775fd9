"""The store of snapshots in the memory of the job's service, as the job's other processes reach it.

A message of kind `STORE` is a question, `u8 question | u32 length | name | data`, or its answer, `u8 outcome | data`. A
connection carries one question at a time, after the handshake, in which both show that they know the job's secret.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from enum import IntEnum

import msgspec

from lowtide.process.wire import (
    CONNECT_TIMEOUT_S,
    MAX_MESSAGE_BYTES,
    ConnectionClosed,
    Kind,
    connect,
    head,
    receive,
)
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.format.parts import Data
from lowtide_snapshots.stores import Store, StoreSetting, lend
from lowtide_snapshots.stores.contract import Entry, check_store, checked_name, checked_prefix
from lowtide_snapshots.stores.errors import (
    AlreadyThere,
    NameRefused,
    NotThere,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from lowtide_tracker.handshake import HandshakeError
from lowtide_tracker.tls import Connection

MEMORY = "memory:"
"""The URL of these snapshots."""

_QUESTION = struct.Struct("<BI")
_REFUSALS = {kind.__name__: kind for kind in (AlreadyThere, NameRefused, NotThere, StoreFull)}


class _Ask(IntEnum):
    PUT = 1
    GET = 2
    NAMES = 3
    DELETE = 4


class _Refusal(msgspec.Struct, frozen=True):
    kind: str
    what: str
    where: str
    way_out: str


_DONE, _REFUSED = b"\0", b"\1"
_REFUSAL = msgspec.json.Decoder(_Refusal)
_ENTRIES = msgspec.json.Decoder(list[tuple[str, int, float]])
_NAMES = msgspec.json.Decoder(list[str])


class LentStore:
    """The service's store, from any process of the job; see `Store`.

    Forks make connections of their own: two processes on one would get each other's answers.

    Args:
        address: Of the service.
        secret: The job's.
        limit_s: The time that an answer may take.

    Attributes:
        where: What it is, for people.
    """

    def __init__(self, address: str, secret: bytes, limit_s: float) -> None:
        self.where = "the memory of the job's service"
        self._address, self._secret, self._limit_s = address, secret, limit_s
        self._idle: dict[int, deque[Connection]] = {}

    def put(self, name: str, data: Data) -> None:
        """See `Store.put`."""
        self._ask(_Ask.PUT, checked_name(name), data)

    def get(self, name: str) -> bytes:
        """See `Store.get`."""
        return self._ask(_Ask.GET, checked_name(name))

    def names(self, prefix: str) -> list[Entry]:
        """See `Store.names`."""
        found = _ENTRIES.decode(self._ask(_Ask.NAMES, checked_prefix(prefix)))
        return [Entry(name, size, datetime.fromtimestamp(at, UTC)) for name, size, at in found]

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`."""
        self._ask(_Ask.DELETE, "", msgspec.json.encode([checked_name(name) for name in names]))

    def sweep(self, prefix: str) -> None:
        """See `Store.sweep`: nothing is ever half written."""
        checked_prefix(prefix)

    def check(self) -> None:
        """See `Store.check`."""
        check_store(self)

    def close(self) -> None:
        """See `Store.close`."""
        for connection in self._idle.pop(os.getpid(), ()):
            connection.close()

    def _ask(self, question: _Ask, name: str, data: Data = b"") -> bytes:
        whole, said = memoryview(data).cast("B"), name.encode()
        asked = _QUESTION.pack(question, len(said)) + said
        size = len(asked) + len(whole)
        if size >= MAX_MESSAGE_BYTES:
            raise StoreRefused(
                f"an object of {len(whole)} bytes is too large for a store in memory",
                where=f"{self.where}, {name}",
                way_out="keep snapshots in a folder, S3 or Azure ([snapshots].url)",
            )
        idle = self._idle.setdefault(os.getpid(), deque())
        connection: Connection | None = None
        try:
            with suppress(IndexError):
                connection = idle.pop()
            if connection is None:
                connection = connect(self._address, self._secret, min(self._limit_s, CONNECT_TIMEOUT_S))
                connection.settimeout(self._limit_s)
            connection.sendall(head(Kind.STORE, size) + asked)
            connection.sendall(whole)
            _, answer = receive(connection)
        except (ConnectionClosed, HandshakeError, OSError) as error:
            if connection is not None:
                connection.close()
            raise StoreUnavailable(
                f"the job's service does not answer: {error or type(error).__name__}",
                where=f"{self.where} at {self._address}",
                way_out="see the job's log; snapshots in memory are gone with it",
            ) from error
        idle.append(connection)
        if answer[:1] == _DONE:
            return answer[1:]
        refusal = _REFUSAL.decode(answer[1:])
        raise _REFUSALS[refusal.kind](refusal.what, where=refusal.where, way_out=refusal.way_out)


def answered(store: Store, asked: bytes) -> bytes:
    """Return the answer to a question of `LentStore`, as the service gives it."""
    question, length = _QUESTION.unpack_from(asked)
    at = _QUESTION.size + length
    name = asked[_QUESTION.size : at].decode()
    done = b""
    try:
        match question:
            case _Ask.PUT:
                store.put(name, memoryview(asked)[at:])
            case _Ask.GET:
                done = store.get(name)
            case _Ask.NAMES:
                found = store.names(name)
                done = msgspec.json.encode([(each.name, each.bytes, each.modified.timestamp()) for each in found])
            case _Ask.DELETE:
                store.delete(_NAMES.decode(asked[at:]))
    except SnapshotsError as error:
        return _REFUSED + msgspec.json.encode(_Refusal(type(error).__name__, error.what, error.where, error.way_out))
    return _DONE + done


def lend_from(address: str, secret: bytes) -> None:
    """Have this process, and those that it forks, open `memory:` as the store of a job's service.

    Args:
        address: Of the service.
        secret: The job's.
    """

    def opened(setting: StoreSetting) -> Store:
        return LentStore(address, secret, setting.limit_s)

    lend(opened)
