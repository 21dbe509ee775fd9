"""Tables as seen from outside: what their committer counts, and what doctor finds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowtide as lt
from lowtide.conf import Conf
from lowtide.doctor import Answer, Surroundings, stores
from lowtide.sinks.staged.contract import Carriage, StagedRow
from lowtide.sinks.tables import carrier as committing
from lowtide.sinks.tables.carrier import Conflict

FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Order:
    number: int


def conf_of(folder: Path) -> Conf:
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}"
    told = {"type": "sql", "uri": uri, "warehouse": warehouse}
    return Conf.load(None, {f"iceberg.default.{key}": value for key, value in told.items()})


@pytest.fixture(name="sink", params=["delta", "iceberg"])
def _sink(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "delta":
        return lt.delta(str(tmp_path / "orders"), Order)
    return lt.iceberg("lake.orders", Order)


def carrier_of(sink: Any, folder: Path, job: str = "shop") -> Any:
    carrier = sink.carrier(Carriage(job, "5f", 0, "table", 1, 1, sink.settings(conf_of(folder))))
    carrier.open({0: 0})
    return carrier


def commit(carrier: Any, offset: int) -> None:
    carrier.take(0, [StagedRow(offset, FIRST_MS, None, b'{"number":%d}' % offset)])
    carrier.settle(float("inf"))


def doctor(sink: Any, folder: Path) -> Answer:
    flow = lt.Flow("shop")
    flow.read("orders", lt.kafka("orders", lt.json(Order))).write("table", sink)
    return stores.tables(Surroundings(conf_of(folder), flow))


def test_commits_are_counted_by_what_came_of_them(sink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "RETRY_S", 0.01)
    carrier = carrier_of(sink, tmp_path)
    commit(carrier, 0)
    assert carrier.counts() == {"commits committed": 1}
    commit(carrier_of(sink, tmp_path, job="other"), 0)
    commit(carrier, 1)
    assert carrier.counts() == {"commits committed": 2, "commits refused": 1}
    append = carrier._table.append

    def unanswered(rows: pa.Table, position: dict[int, int]) -> None:
        append(rows, position)
        raise Conflict("the connection was reset")

    monkeypatch.setattr(carrier._table, "append", unanswered)
    commit(carrier, 2)
    assert carrier.counts() == {"commits committed": 2, "commits refused": 1, "commits found": 1}


def test_doctor_finds_a_table_with_many_versions(sink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = doctor(sink, tmp_path)
    assert (answer.verdict, "is made by the first start" in answer.found) == ("ok", True)
    assert list(tmp_path.glob("orders/*")) == [], "nothing is made"
    monkeypatch.setattr(stores, "MANY_VERSIONS", 4)
    carrier, verdicts = carrier_of(sink, tmp_path), []
    for offset in range(4):
        commit(carrier, offset)
        verdicts.append(doctor(sink, tmp_path).verdict)
    assert (verdicts[0], verdicts[-1], verdicts == sorted(verdicts)) == ("ok", "warn", True)
    assert "expire old ones" in doctor(sink, tmp_path).way_out


def test_doctor_finds_a_catalog_that_does_not_answer(tmp_path: Path) -> None:
    answer = doctor(lt.iceberg("lake.orders", Order), tmp_path / "nowhere")
    assert (answer.verdict, 'cannot open Iceberg table "lake.orders"' in answer.found) == ("fail", True)
