"""Connection to ZooKeeper: synced reads, and writes that are one conditional transaction each.

Built on kazoo. It adds a limit on everything, errors that advise the caller, and a clear answer to "was it done?". If
the connection is lost during a write, the outcome is *unknown*; `write` therefore takes a function that returns the
operations still to do, and calls it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.recipe.watchers import DataWatch
from kazoo.security import ACL, CREATOR_ALL_ACL, make_acl, make_digest_acl_credential

from lowtide_snapshots.errors import (
    RecordDamaged,
    RecordRefused,
    WriteUnknown,
    ZooKeeperRefused,
    ZooKeeperUnavailable,
)
from lowtide_snapshots.zookeeper.kazoo_log import quiet_logger
from lowtide_snapshots.zookeeper.nodes import Check, Create, Delete, Node, Operation, Set
from lowtide_snapshots.zookeeper.tls import TlsHandler, ZooKeeperTls

# ZooKeeper drops the connection of a client that sends more than 1 MiB at once (jute.maxbuffer).
MAX_TRANSACTION_BYTES = 900_000
OPERATION_BYTES = 128
# kazoo waits up to a minute between two attempts to connect; a lease does not last as long.
RECONNECT_FIRST_S = 0.05
RECONNECT_MOST_S = 0.5
# Between two attempts.
PAUSE_S = 0.02

_LOST = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.ThrottledOpError,
    kazoo_errors.CancelledError,
    KazooTimeoutError,
)
_DENIED = (kazoo_errors.NoAuthError, kazoo_errors.AuthFailedError, kazoo_errors.SessionClosedRequireSaslError)
_CONDITIONS = (kazoo_errors.BadVersionError, kazoo_errors.NodeExistsError, kazoo_errors.NoNodeError)
_NOT_TRIED = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


class Connection:
    """One session after the other with a ZooKeeper; to be used from one thread.

    Attributes:
        hosts: "host:port" with commas between.
        session: the id of the current session, or of the last one while there is none; 0 before the first.
        user: as whom ZooKeeper knows it, `user:hash`; None without a password.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_s: float,
        limit_s: float,
        auth: str | None = None,
        tls: ZooKeeperTls | None = None,
    ) -> None:
        self.hosts = hosts
        self._tls = None if tls is None else TlsHandler(tls)
        self.session = 0
        self._limit_s = limit_s
        self._answer_limit_s = session_timeout_s
        user, _, password = (auth or "").partition(":")
        self.user = make_digest_acl_credential(user, password) if auth else None
        self._deadline: float | None = None
        self._connected = threading.Event()
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_s,
            auth_data=[("digest", auth)] if auth else None,
            connection_retry={
                "max_tries": -1,
                "delay": RECONNECT_FIRST_S,
                "max_delay": RECONNECT_MOST_S,
            },
            logger=quiet_logger(),
            handler=self._tls,
            use_ssl=tls is not None,
        )
        self._client.add_listener(self._state_changed)

    @property
    def connected(self) -> bool:
        """True while there is a session whose server answers, as far as known."""
        return self._connected.is_set()

    def open(self) -> None:
        """Connect.

        Raises:
            ZooKeeperUnavailable: ZooKeeper did not answer within the limit.
        """
        try:
            self._client.start(timeout=self._limit_s)
        except KazooTimeoutError as error:
            raise self._unavailable() from error

    def close(self) -> None:
        """End the session, and with it its ephemeral nodes; unheard, it ends by its time-out."""
        self._client.stop()
        self._client.close()

    @contextmanager
    def within(self, limit_s: float | None = None) -> Iterator[None]:
        """Let all that is done in the block share one limit: the outermost block's."""
        if self._deadline is not None:
            yield
            return
        self._deadline = time.monotonic() + (self._limit_s if limit_s is None else limit_s)
        try:
            yield
        finally:
            self._deadline = None

    def get(self, path: str) -> Node | None:
        """The node as it is now (synced); None if it is not there."""
        return self.get_all([path])[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Several nodes, asked for at once."""
        if not paths:
            return []
        answers = self._read(lambda client: [client.sync_async(paths[0]), *map(client.get_async, paths)])[1:]
        return [a and Node(a[0], a[1].version, a[1].owner_session_id or 0) for a in answers]

    def children(self, path: str) -> list[str] | None:
        """The names of the nodes below, sorted; None if the node is not there."""
        names = self._read(lambda client: [client.sync_async(path), client.get_children_async(path)])[1]
        return None if names is None else sorted(names)

    def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The names of the nodes below each, asked for at once; None for a node that is not there."""
        if not paths:
            return []
        return self._read(lambda client: [client.sync_async(paths[0]), *map(client.get_children_async, paths)])[1:]

    def acls(self, paths: Sequence[str]) -> list[list[ACL] | None]:
        """Read the access rights of all these nodes at once; None for a node that does not exist."""
        if not paths:
            return []
        answers = self._read(lambda client: [client.sync_async(paths[0]), *map(client.get_acls_async, paths)])[1:]
        return [answer and answer[0] for answer in answers]

    def ensure(self, path: str, *, shared: bool) -> None:
        """Make the node if it is not there; its parent must be.

        Args:
            path: the node's.
            shared: with a password, whether others may read it and make nodes below it.
        """
        acl = None
        if self.user:
            acl = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True)] if shared else CREATOR_ALL_ACL
        self._read(lambda client: [client.create_async(path, b"", acl=acl)])

    def watch(self, path: str, on_change: Callable[[bytes | None], None]) -> None:
        """Tell a node's content (None: it is not there) now and after its changes, until this is closed.

        On a thread of kazoo's, which the callee must neither hold nor raise in; over outages, and without waiting.
        """
        self._client.handler.spawn(DataWatch, self._client, path, lambda data, *_: on_change(data))

    def write(self, plan: Callable[[], Sequence[Operation]]) -> None:
        """Carry out what the plan says is still to be done, in one transaction.

        Args:
            plan: reads what is there and says what is missing; asked again when a condition did not hold and when the
                outcome is unknown. It raises what is to be raised, and returns nothing if all is done.

        Raises:
            ZooKeeperUnavailable: there was no answer within the limit; nothing was written.
            WriteUnknown: the same, and it may have been written.
        """
        unknown = False
        with self.within():
            while True:
                try:
                    operations = plan()
                    if not operations or self._commit(operations):
                        return
                    time.sleep(PAUSE_S)
                    self._remaining_s()
                except WriteUnknown:
                    unknown = True
                    time.sleep(PAUSE_S)
                except ZooKeeperUnavailable as error:
                    if unknown:
                        raise self._unknown() from error
                    raise

    def _commit(self, operations: Sequence[Operation]) -> bool:
        """Return whether the transaction was done; if not, a condition did not hold. `WriteUnknown` if unknown."""
        _check_size(operations)
        self._wait_for_connection()
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Check(path, version):
                    transaction.check(path, version)
                case Create(path, data, ephemeral):
                    transaction.create(path, data, acl=CREATOR_ALL_ACL if self.user else None, ephemeral=ephemeral)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
        limit_s = self._answer_within_s()
        try:
            results = transaction.commit_async().get(timeout=limit_s)
        except _LOST as error:
            raise self._unknown() from error
        except _DENIED as error:
            raise self._refused(self.hosts, error) from error
        return self._was_done(operations, results)

    def _was_done(self, operations: Sequence[Operation], results: Sequence[Any]) -> bool:
        failed = [(o, r) for o, r in zip(operations, results, strict=True) if isinstance(r, Exception)]
        for operation, result in failed:
            if isinstance(result, _NOT_TRIED):
                continue
            if isinstance(operation, Create) and isinstance(result, kazoo_errors.NoNodeError):
                raise RecordDamaged(
                    "the parent node is missing", where=operation.path, way_out="start the job again: it makes the node"
                )
            if not isinstance(result, _CONDITIONS):
                raise self._refused(operation.path, result) from result
        return not failed

    def _read(self, ask: Callable[[KazooClient], Sequence[Any]]) -> list[Any]:
        """Ask for something that may be asked twice, until it is answered; None for a node that is not there."""
        with self.within():
            while True:
                self._wait_for_connection()
                try:
                    return [self._answer(pending) for pending in ask(self._client)]
                except _LOST:
                    time.sleep(PAUSE_S)
                except _DENIED as error:
                    raise self._refused(self.hosts, error) from error

    def _answer(self, pending: Any) -> Any:
        try:
            return pending.get(timeout=self._answer_within_s())
        except (kazoo_errors.NoNodeError, kazoo_errors.NodeExistsError):
            return None

    def _wait_for_connection(self) -> None:
        # kazoo would keep the request and send it once ZooKeeper is back, long after the caller got an error.
        if not self._connected.wait(self._remaining_s()):
            raise self._unavailable()

    def _answer_within_s(self) -> float:
        # A request that falls between two sessions is never answered.
        return min(self._remaining_s(), self._answer_limit_s)

    def _remaining_s(self) -> float:
        assert self._deadline is not None
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise self._unavailable()
        return remaining

    def _state_changed(self, state: str) -> None:
        """Called by kazoo's own thread."""
        identity = self._client.client_id
        if state == KazooState.CONNECTED and identity is not None:
            self.session = identity[0]
            self._connected.set()
        else:
            self._connected.clear()

    def _unavailable(self) -> ZooKeeperUnavailable:
        why = "" if self._tls is None or not self._tls.why else f": {self._tls.why}"
        return ZooKeeperUnavailable(
            f"ZooKeeper did not answer within {self._limit_s:g} s{why}",
            where=self.hosts if self._tls is None else f"{self.hosts}, under TLS",
            way_out="start or repair ZooKeeper, or correct its address, and try again"
            if not why
            else "correct its address, which is that of its secure port, or the files for TLS, and try again",
        )

    def _unknown(self) -> WriteUnknown:
        return WriteUnknown(
            "lost the connection to ZooKeeper during a write, which may or may not have been applied",
            where=self.hosts,
            way_out="try again once ZooKeeper answers: the retry finds out",
        )

    def _refused(self, where: str, error: Exception) -> ZooKeeperRefused:
        return ZooKeeperRefused(
            f"ZooKeeper refuses: {type(error).__name__}",
            where=where,
            way_out="give the user and password with which the job's nodes were made",
        )


def _check_size(operations: Sequence[Operation]) -> None:
    size = sum(len(o.path) + len(getattr(o, "data", b"")) + OPERATION_BYTES for o in operations)
    if size > MAX_TRANSACTION_BYTES:
        raise RecordRefused(
            f"a transaction of {size} bytes is too large; the most is {MAX_TRANSACTION_BYTES}",
            where=operations[-1].path,
            way_out="write less at once",
        )
