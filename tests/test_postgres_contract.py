"""PostgreSQL passes the contract of stores, with rows that are added and with rows that replace each other."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from tests.postgres_server import Pooler, PostgresServer

from lowtide.sinks.contract import Direct
from lowtide.sinks.postgres.columns import ddl_of
from lowtide.sinks.postgres.endpoint import Postgres
from lowtide.testing.sinks import Line, ServedSinkContract

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


class TestAppend(ServedSinkContract):
    key: str | None = None

    @pytest.fixture(autouse=True)
    def _postgres(self, postgres: PostgresServer) -> None:
        self.postgres = postgres

    def sink(self, name: str) -> Direct:
        sink = Postgres(name, Line, self.key)
        self.postgres.ask(ddl_of(sink.columns))
        return sink

    def rows(self, sink: Direct) -> Iterable[Line]:
        assert isinstance(sink, Postgres)
        return [Line(*row) for row in self.postgres.ask(f"select lane, number from {sink.table}")]

    def settings(self, sink: Direct, server: str | None = None) -> Mapping[str, Any]:
        host, port = (server or self.server()).split(":")
        return {**self.postgres.settings, "host": host, "port": port}

    def server(self) -> str:
        return f"127.0.0.1:{self.postgres.port}"


class TestUpsert(TestAppend):
    key = "number"


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="there is no PgBouncer here: apt install pgbouncer")
class TestPooled(TestAppend):
    """Behind PgBouncer in transaction mode no two statements of a connection need have the same session."""

    @pytest.fixture(autouse=True)
    def _pooler(self, postgres: PostgresServer) -> Iterator[None]:
        with Pooler(postgres) as self.pooler:
            yield

    def server(self) -> str:
        return f"127.0.0.1:{self.pooler.port}"
