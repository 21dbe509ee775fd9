"""A connection to PostgreSQL whose every answer has a deadline."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lowtide.errors import ConfError

SLICE_S = 0.2
CONNECT_S = 5
"""Limit on one of several attempts to connect."""
KEEPALIVE = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
PASSING = ("08", "40", "53", "55", "57", "58", "25006")
"""States, or how they begin, after which the same statement may succeed: a lost connection, a deadlock, too many
connections, a lock, an administrator, a disk, a standby."""


class Unavailable(Exception):
    """Ask again later: PostgreSQL has done nothing, or nobody knows."""

    def __init__(self, what: str, state: str = "") -> None:
        super().__init__(what)
        self.state = state


class Lost(Unavailable):
    """Connect again: the connection is gone, perhaps with an answer."""


class Refused(Exception):
    """Change the statement or its values: PostgreSQL will never take them.

    Attributes:
        state: The SQLSTATE; empty for a value that cannot be sent at all.
    """

    def __init__(self, what: str, state: str) -> None:
        super().__init__(what)
        self.state = state

    @property
    def of_data(self) -> bool:
        """True if a row is at fault: its values, a constraint, a size."""
        return self.state[:2] in ("", "21", "22", "23", "54")


def psycopg_of() -> Any:
    """Return psycopg (errors: ConfError if it is not installed)."""
    try:
        import psycopg
    except ImportError as error:
        raise ConfError(
            f"the flow writes to PostgreSQL, and psycopg cannot be imported: {error}",
            way_out="pip install 'lowtide[postgres]', on the driver's machine and on the executors'",
        ) from error
    return psycopg


def address_of(settings: Mapping[str, Any]) -> str:
    """Return where the server is, for errors; no secret is in it."""
    parts = psycopg_of().conninfo.conninfo_to_dict(**settings)
    return f"PostgreSQL at {parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


class Line:
    """A connection in autocommit mode that keeps no state between transactions, as a pooler asks.

    Args:
        connection: Psycopg's.
        end_by: Asked again and again while an answer is awaited; the time (monotonic, in s) at which to give up.
    """

    def __init__(self, connection: Any, end_by: Callable[[], float]) -> None:
        from psycopg.adapt import PyFormat, Transformer

        self._connection, self._pgconn, self._end_by = connection, connection.pgconn, end_by
        self._transformer, self._binary = Transformer, PyFormat.BINARY

    def ask(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows that a statement with parameters $1, $2 and so on returns.

        Raises:
            Unavailable: it has done nothing, and may the next time.
            Lost: the connection is gone, or took too long; it may have been done, or still be.
            Refused: PostgreSQL does not take it.
        """
        values = self._transformer(self._connection)
        try:
            sent = values.dump_sequence(parameters, [self._binary] * len(parameters))
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}", "") from error
        try:
            self._pgconn.send_query_params(
                statement.encode(), sent, param_types=values.types, param_formats=values.formats, result_format=1
            )
            result = self._result()
        except psycopg_of().Error as error:
            raise Lost(str(error).strip()) from error
        if result.status not in (1, 2):
            raise _error_of(result, ended=self._pgconn.status != 0)
        values.set_pgresult(result)
        return list(values.load_rows(0, result.ntuples, tuple))

    def close(self, *, cancel: bool = False) -> None:
        """Close the connection, after having asked the server to end what it may still be doing."""
        if cancel:
            # The server may be gone, and statements that come late do no harm.
            with suppress(Exception):
                self._connection.cancel_safe(timeout=1.0)
        self._connection.close()

    def _result(self) -> Any:
        """Return the last result of what was sent; O(1) system calls unless it takes long."""
        pgconn, result = self._pgconn, None
        while pgconn.flush():
            self._wait(writes=True)
        while True:
            while pgconn.is_busy():
                self._wait()
                pgconn.consume_input()
            found = pgconn.get_result()
            if found is None:
                assert result is not None, "a statement has a result"
                return result
            result = found

    def _wait(self, *, writes: bool = False) -> None:
        socket = self._pgconn.socket
        poll = select.poll()
        poll.register(socket, select.POLLIN | (select.POLLOUT if writes else 0))
        while not poll.poll(SLICE_S * 1000):
            if time.monotonic() > self._end_by():
                self.close(cancel=True)
                raise Lost("the answer takes too long")
        if writes:
            self._pgconn.consume_input()


def connected(settings: Mapping[str, Any], name: str, limit_s: float, end_by: Callable[[], float]) -> Line:
    """Connect to a server that takes writes.

    Args:
        settings: Of libpq.
        name: The application's.
        limit_s: How long sent bytes may stay without an answer of the network.
        end_by: As of `Line`.

    Raises:
        Lost: it cannot be reached now.
    """
    psycopg = psycopg_of()
    left_s = end_by() - time.monotonic()
    own = {
        **KEEPALIVE,
        "tcp_user_timeout": str(int(min(limit_s, 3600) * 1000)),
        "connect_timeout": max(2, min(CONNECT_S, math.ceil(min(left_s, CONNECT_S)))),
        "target_session_attrs": "read-write",
        "application_name": name,
    }
    try:
        # No statement is prepared: a pooler may give the next one to another server's connection.
        connection = psycopg.connect(**settings, **own, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise Lost(str(error).strip()) from error
    return Line(connection, end_by)


def _error_of(result: Any, *, ended: bool) -> Exception:
    state = (result.error_field(ord("C")) or b"").decode()
    text = (result.error_field(ord("M")) or result.error_message or b"").decode(errors="replace").strip()
    detail = (result.error_field(ord("D")) or b"").decode(errors="replace")
    what = f"{text} ({detail})" if detail else text
    if ended or not state:
        return Lost(what, state)
    return Unavailable(what, state) if state.startswith(PASSING) else Refused(what, state)
