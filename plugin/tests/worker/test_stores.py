"""A host that delivers to several stores: each has its own records, marks and pace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ledger import BOOKS, Book, LedgerSink
from stage_rig import INCARNATION, Kept, Order, Rig, Served, deployment, kept_of, orders, packed

import lowtide as lt
from lowtide.conf import Conf
from lowtide.core.operators.order.order import OrderKey
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.sinks.contract import LaneName
from lowtide.sinks.stores import job_sinks


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    BOOKS.clear()
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)
    monkeypatch.setattr(Kept, "gauges", lambda _: {"transactions": 1, "records": 7, "commit": {0: 5, 3: 2}})
    monkeypatch.setattr("lowtide.worker.stage_parts.check_current", lambda *_: None)
    plan = plan_of()
    stores = job_sinks(plan, Conf(), "the job", 0)
    (kept,) = stores.values()
    BOOKS["main"] = Book(claims=dict.fromkeys(kept.lane_names, INCARNATION))
    with Served() as tracker:
        made = deployment(plan=plan, stores=stores)
        yield Rig.of(made, tracker.address, hosts=1)


def plan_of() -> Plan:
    flow = lt.Flow("stage", dead_letters=lt.kafka("letters", lt.raw()))
    taken = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("user")
    taken.write("kept", LedgerSink("main", Order, key="user"))
    taken.write("out", lt.kafka("out", lt.json(Order), key="user"))
    return compile_flow(flow, parallelism=2, lanes=2, slack_ms=1)


def numbers(rows: list[tuple[str, Any]]) -> list[int]:
    return sorted(row.number for _, row in rows)


def test_each_store_gets_its_own_records_with_marks_that_follow_each_other(rig: Rig) -> None:
    given = orders(40)
    for first in (0, 20):
        rig.read(packed(given[first : first + 20], first=first, tick=5 + first), 1)
        rig.grant(25 + first)
        rig.until(lambda first=first: len(BOOKS["main"].rows) == first + 20)  # type: ignore[misc]
    book = BOOKS["main"]
    assert numbers(book.rows) == [order["number"] for order in given]
    assert sorted(each["number"] for each in rig.delivered) == [order["number"] for order in given]
    assert {LaneName(0, "kept", 0, 64), LaneName(0, "kept", 64, 128)} == book.lasts.keys(), "a strand for each worker"
    assert {OrderKey.of(last).tick for last in book.lasts.values()} == {25}
    (host,) = rig.hosts
    assert host._shared is not None
    assert set(host._shared.deliveries) == {"kafka", "ledger:main"}
    counts, of_ledger = host._shared.gauges(), host._shared.deliveries["ledger:main"].gauges()
    assert counts["records"] == of_ledger["records"] + 7
    assert counts["deliveries"]["ledger:main"] == of_ledger["commit"]
    assert sum(counts["deliveries"]["kafka"].values()) == 7


def test_a_store_that_stands_still_holds_back_no_other(rig: Rig) -> None:
    rig.settling = False
    rig.read(packed(orders(10)), 1)
    rig.grant(25)
    rig.until(lambda: len(BOOKS["main"].rows) == 10)
    sink = kept_of(rig.hosts[0])
    assert sink is not None
    assert sink.in_flight, "Kafka has said nothing of its packets yet"
    rig.read(packed(orders(10, first=30), first=10, tick=40), 1)
    rig.grant(60)
    rig.until(lambda: len(BOOKS["main"].rows) == 20)
    assert sink.in_flight
