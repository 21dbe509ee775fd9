"""A sink in SQLite: everything that a store of one's own needs, for jobs whose hosts share a file.

    orders.write("orders", SqliteSink("/srv/orders.db", "orders", Order))

Each record becomes a row of its fields.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from lowtide.sinks.transactional import TransactionalSink


@dataclass(frozen=True)
class SqliteSink(TransactionalSink):
    """A table of a SQLite file; its columns are the fields of the records."""

    file: str
    table: str
    record: type
    errors = (sqlite3.Error,)

    @property
    def store(self) -> str:
        """The file: sinks of one file share their transactions."""
        return f"sqlite:{self.file}"

    @property
    def place(self) -> str:
        """The table."""
        return f"table {self.table}"

    def connect(self, settings: Mapping[str, Any], limit_s: float) -> Database:
        """Open the file."""
        return Database(self.file, limit_s)


class Database:
    """The file; `lowtide` is the table of what the jobs keep there."""

    def __init__(self, file: str, limit_s: float) -> None:
        self._db = sqlite3.connect(file, timeout=limit_s, isolation_level=None, check_same_thread=False)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.execute("create table if not exists lowtide (part, name, value, primary key (part, name))")
        self.close = self._db.close

    def make(self, sink: SqliteSink) -> None:
        """Make the table of a sink."""
        columns = ", ".join(field.name for field in fields(sink.record))
        self._db.execute(f"create table if not exists {sink.table} ({columns})")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Have the file for oneself."""
        self._db.execute("begin immediate")
        try:
            yield
            self._db.execute("commit")
        except BaseException:
            self._db.execute("rollback")
            raise

    def read(self, part: str) -> Mapping[str, bytes]:
        """Return what is kept of a job."""
        return dict(self._db.execute("select name, value from lowtide where part = ?", [part]).fetchall())

    def swap(self, part: str, name: str, before: bytes | None, value: bytes) -> bool:
        """Set a value if it is `before`."""
        if before is None:
            done = self._db.execute("insert or ignore into lowtide values (?, ?, ?)", [part, name, value])
        else:
            where = "(part, name, value) = (?, ?, ?)"
            done = self._db.execute(f"update lowtide set value = ? where {where}", [value, part, name, before])
        return done.rowcount == 1

    def write(self, sink: SqliteSink, records: Sequence[Any]) -> None:
        """Insert rows."""
        places = ", ".join("?" * len(fields(sink.record)))
        self._db.executemany(f"insert into {sink.table} values ({places})", records)
