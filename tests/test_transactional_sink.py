"""`TransactionalSink` passes the contract on a server, where transactions are only "read committed"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from tests.postgres_server import PostgresServer

from lowtide.conf import Conf
from lowtide.sinks.contract import Direct
from lowtide.sinks.transactional import TransactionalSink
from lowtide.testing.sinks import Line, ServedSinkContract

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

KEPT = "create table if not exists kept (part text, name text, value bytea, primary key (part, name))"


@dataclass(frozen=True)
class LinesTable(TransactionalSink):
    """A table of lines, behind psycopg as anybody would use it."""

    table: str
    record: type = Line
    errors = (psycopg.Error,)

    @property
    def store(self) -> str:
        return "test:postgres"

    @property
    def place(self) -> str:
        return f"table {self.table}"

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        raise NotImplementedError

    def connect(self, settings: Mapping[str, Any], limit_s: float) -> Session:
        # A transaction whose client is gone holds its locks until the server ends it.
        options = "-c idle_in_transaction_session_timeout=300"
        return Session(psycopg.connect(**{**settings, "options": options, "connect_timeout": 10}, autocommit=True))


class Session:
    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self._db = db

    def make(self, sink: LinesTable) -> None:
        self._db.execute(f"create table if not exists {sink.table} (lane int, number int)")

    def transaction(self) -> AbstractContextManager[Any]:
        transaction: AbstractContextManager[Any] = self._db.transaction()
        return transaction

    def read(self, part: str) -> Mapping[str, bytes]:
        found = self._db.execute("select name, value from kept where part = %s", [part])
        return {name: bytes(value) for name, value in found}

    def swap(self, part: str, name: str, before: bytes | None, value: bytes) -> bool:
        if before is None:
            done = self._db.execute("insert into kept values (%s, %s, %s) on conflict do nothing", [part, name, value])
        else:
            changed = "update kept set value = %s where part = %s and name = %s and value = %s"
            done = self._db.execute(changed, [value, part, name, before])
        return bool(done.rowcount == 1)

    def write(self, sink: LinesTable, records: Sequence[Any]) -> None:
        # One statement: `executemany` sends several messages, and a server that waits for the rest is not idle.
        columns = [list(each) for each in zip(*records, strict=True)]
        self._db.execute(f"insert into {sink.table} select * from unnest(%s::int[], %s::int[])", columns)

    def close(self) -> None:
        self._db.close()


class TestOnAServer(ServedSinkContract):
    at_once = 6

    @pytest.fixture(autouse=True)
    def _postgres(self, postgres: PostgresServer) -> None:
        self.postgres = postgres
        postgres.ask(KEPT)

    def sink(self, name: str) -> Direct:
        return LinesTable(name)

    def rows(self, sink: Direct) -> Iterable[Line]:
        assert isinstance(sink, LinesTable)
        if self.postgres.ask(f"select to_regclass('{sink.table}') is null") == [(True,)]:
            return []
        return [Line(*row) for row in self.postgres.ask(f"select lane, number from {sink.table}")]

    def settings(self, sink: Direct, server: str | None = None) -> Mapping[str, Any]:
        host, port = (server or self.server()).split(":")
        return {**self.postgres.settings, "host": host, "port": port}

    def server(self) -> str:
        return f"127.0.0.1:{self.postgres.port}"

    # Each statement of a host is lost or held once.

    @pytest.mark.nightly
    def test_a_connection_that_breaks_at_any_message_loses_and_doubles_nothing(self) -> None:
        super().test_a_connection_that_breaks_at_any_message_loses_and_doubles_nothing()

    @pytest.mark.nightly
    def test_a_message_that_comes_late_writes_nothing(self) -> None:
        super().test_a_message_that_comes_late_writes_nothing()
