"""Stores pass the contract of `lowtide.testing.sinks`, and those that break one of its rules do not."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlite_sink
from sqlite_sink import SqliteSink

from lowtide.sinks.contract import Direct, JobSinks, Life, Packet
from lowtide.sinks.transactional import CLAIM_BYTES, TransactionalWay
from lowtide.testing.sinks import Line, SinkContract


class TestSqlite(SinkContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def sink(self, name: str) -> Direct:
        return SqliteSink(str(self.folder / f"{name}.db"), "lines", Line)

    def rows(self, sink: Direct) -> Iterable[Line]:
        assert isinstance(sink, SqliteSink)
        if not Path(sink.file).exists():
            return []
        with closing(sqlite3.connect(sink.file, timeout=60)) as db:
            return [Line(*row) for row in db.execute("select * from lines")]


class Unchecked(TransactionalWay):
    """Begins to deliver without a look at the newest life."""

    def open(self) -> None:
        pass


class Unclaimed(sqlite_sink.Database):
    """The claimant of the lanes delivers."""

    def swap(self, part: str, name: str, before: bytes | None, value: bytes) -> bool:
        found = self.read(part).get(name)
        if found is not None and before is not None and found[CLAIM_BYTES:] == before[CLAIM_BYTES:]:
            return super().swap(part, name, found, found[:CLAIM_BYTES] + value[CLAIM_BYTES:])
        return super().swap(part, name, before, value)


class Unmarked(sqlite_sink.Database):
    """Delivers wherever the lanes are."""

    def swap(self, part: str, name: str, before: bytes | None, value: bytes) -> bool:
        return super().swap(part, name, None if before is None else self.read(part).get(name), value)


class Apart(TransactionalWay):
    """Writes records, and their marks a moment later."""

    def deliver(self, packets: Sequence[Packet]) -> None:
        for packet in packets:
            assert packet.mark is not None
            self._connection.write(self._job.sinks[packet.mark.lane.sink], packet.messages)
            time.sleep(0.05)
        super().deliver([replace(packet, messages=[]) for packet in packets])


class Unwhole(sqlite_sink.Database):
    """Has transactions only in name."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def write(self, sink: SqliteSink, records: Sequence[Any]) -> None:
        time.sleep(0.05)
        super().write(sink, records)


class Wrong(SqliteSink):
    """A sink whose way or connection breaks a rule."""

    def connect(self, settings: Mapping[str, Any], limit_s: float) -> sqlite_sink.Database:
        return CONNECTIONS.get(self._rule, sqlite_sink.Database)(self.file, limit_s)

    def way(self, job: JobSinks, life: Life) -> TransactionalWay:
        return WAYS.get(self._rule, TransactionalWay)(job, life)

    @property
    def _rule(self) -> str:
        return Path(self.file).name.split("-")[0]


CONNECTIONS = {each.__name__: each for each in (Unclaimed, Unmarked, Unwhole)}
WAYS = {each.__name__: each for each in (Unchecked, Apart)}


@pytest.mark.parametrize(
    ("rule", "test"),
    [
        ("Unchecked", "test_a_life_that_is_over_delivers_nothing"),
        ("Unclaimed", "test_a_claim_shuts_out_a_life_that_has_connected"),
        ("Unmarked", "test_what_was_delivered_is_not_delivered_again"),
        ("Unmarked", "test_a_packet_whose_lane_is_elsewhere_writes_nothing"),
        ("Apart", "test_a_host_that_is_killed_leaves_each_bundle_whole_or_not_at_all"),
        ("Unwhole", "test_a_host_that_is_killed_leaves_each_bundle_whole_or_not_at_all"),
    ],
)
def test_a_store_that_breaks_a_rule_fails_the_contract(rule: str, test: str, tmp_path: Path) -> None:
    class Contract(TestSqlite):
        folder = tmp_path

        def sink(self, name: str) -> Direct:
            return Wrong(str(tmp_path / f"{rule}-{name}.db"), "lines", Line)

    with pytest.raises(AssertionError, match="records and marks are apart" if test.endswith("at_all") else None):
        getattr(Contract(), test)()
