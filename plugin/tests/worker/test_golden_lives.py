"""Workers begin with the snapshot that is kept of each format, and go on as `run_locally` does from the beginning.

Its keys lie in hash units as the tests of snapshots put them, so records are fed by those. Three of its steps are of
no flow: two have a list of int32, which no type of a flow is, and one is a join that names no side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from stage_rig import deployment

from lowtide import Flow, Stamped, Window, hours, json, kafka, minutes, seconds, tumbling
from lowtide.assignment.birth import Birth
from lowtide.assignment.deployment import Deployment
from lowtide.core.effects import Effects, Frame
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.program import Captured
from lowtide.core.operators.questions import Answer, Answered
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.fields import encode_rows
from lowtide.worker.stage_parts import make_core
from lowtide.worker.state_loader import load_state
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.stores import StoreSetting, open_store
from lowtide_tracker import LocalTracker, Notice

DATA = Path(__file__).parents[3] / "snapshots" / "tests" / "data"
NAME = "shop/manifests/000000000425000-000003-0007.json"
FORMATS = sorted(int(each.name.removeprefix("format-")) for each in DATA.iterdir())
OF_NO_FLOW = {"index", "visits", "paid"}
SLACK_MS, UNITS = 25, 4
START, END = 17_000, 60_000
BEGAN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    customer: str
    amount: float | None
    at: datetime | None


@dataclass(frozen=True)
class Rate:
    currency: str
    rate: float


@dataclass(frozen=True)
class Told:
    customer: str
    what: str


def said(order: Order) -> Told:
    return Told(order.customer, f"{order.amount} at {order.at}")


def said_of_all(orders: tuple[Order, ...]) -> Told:
    return Told(orders[-1].customer, "; ".join(said(each).what for each in orders))


def of_window(window: Window, orders: tuple[Order, ...]) -> list[Told]:
    return [replace(said_of_all(orders), customer=f"{window.key[0]} from {window.start} to {window.end}")]


def with_row(order: Order, row: Order | None) -> Told:
    return Told(order.customer, f"{said(order).what}, {None if row is None else said(row).what}")


def rated(count: int, order: Order, rates: dict[str, float]) -> tuple[int, Told]:
    return count + 1, Told(order.customer, f"{count} {rates}")


def put(rates: dict[str, float], rate: Rate) -> dict[str, float]:
    return {**rates, rate.currency: rate.rate}


def a_flow() -> Flow:
    """The shop's steps, each with a source of its own."""
    flow = Flow("shop")

    def read(name: str, record: type = Order) -> Any:
        return flow.read(name, kafka(name, json(record)))

    def keyed(name: str) -> Any:
        return read(name).key_by("customer", name=f"by-{name}")

    def write(stream: Any, name: str) -> None:
        stream.write(f"to-{name}", kafka(name, json(Told)))

    write(keyed("of-last-orders").last(3, name="last-orders").map(said_of_all, name="of-three"), "last")
    write(
        keyed("of-rated").scan("rated", rated, 0, broadcast=read("of-rates", Rate).broadcast("rates", put, {})), "rated"
    )
    write(keyed("of-seen").deduplicate("seen", within=minutes(1)).map(said, name="of-one"), "seen")
    write(keyed("of-sessions").window("sessions", tumbling(minutes(1))).apply(of_window), "sessions")
    rows = keyed("of-customers").table("customer-rows", ttl=hours(1))
    write(keyed("of-enriched").join_table("customers", rows, with_row, how="left"), "customers")
    write(read("of-scored").call("scored", said, timeout=seconds(1), order="answer"), "scored")
    return flow


def a_plan(parallelism: int) -> Plan:
    plan = compile_flow(a_flow(), parallelism=parallelism, units=UNITS, lanes=UNITS, slack_ms=SLACK_MS)
    # A name has no blanks by now.
    named = (replace(each, name="last orders") if each.name == "last-orders" else each for each in plan.vertices)
    return replace(plan, vertices=tuple(named))


def at(second: float) -> datetime:
    return BEGAN + timedelta(seconds=second)


FIRST, SECOND = Order("Ebbe", 12.5, at(424.75)), Order("Ebbe", None, at(424.75))
BEFORE: dict[str, list[tuple[int, Any]]] = {
    "last orders": [(16_990, FIRST), (16_999, replace(SECOND, at=at(424.975)))],
    "rates": [(16_000, Rate("EUR", 1.0)), (16_001, Rate("SEK", 11.25))],
    "seen": [(16_990, Order("Ebbe", 3.0, None)), (16_999, Order("潮", 4.0, None))],
    "sessions": [(16_990, FIRST), (16_991, SECOND)],
    "customers": [(16_999, Order("Ebbe", 0.5, at(424.75)))],
    "scored": [(16_990, Order("Ebbe", 2.5, at(424.75))), (16_999, SECOND)],
}
"""By step what came of it to the state that the snapshots have, by tick."""
AFTER: dict[str, list[tuple[int, Any]]] = {
    "of-last-orders": [(17_000, Order("Ebbe", 7.0, None)), (17_020, Order("Ebbe", 8.0, at(426)))],
    "of-rated": [(17_000, Order("Ebbe", 1.0, None)), (17_010, Order("潮", 2.0, None))],
    # A minute is 2,400 ticks: until then each is known.
    "of-seen": [
        (tick, Order(who, 1.0, None)) for tick in (17_001, 19_389, 19_390, 19_398, 19_399) for who in ("Ebbe", "潮")
    ],
    "of-sessions": [(17_100, Order("Ebbe", 9.0, None)), (19_199, Order("Ebbe", 10.0, None)), (19_200, FIRST)],
    "of-enriched": [(17_000, FIRST), (17_001, Order("潮", 1.0, None)), (30_000, SECOND)],
}
"""By source what comes after it."""
STEP_OF = {"of-last-orders": "last orders", "of-seen": "seen", "of-sessions": "sessions", "of-enriched": "customers"}
GIVEN_BEFORE = {"to-last": 2, "to-seen": 2}
"""How much sinks had been given before, where they had."""


def answer(steps: set[str]) -> dict[str, list[object]]:
    """What `run_locally` gives after the snapshot's T of the whole log, of steps that there are."""
    log: dict[str, list[tuple[int, Any]]] = {
        f"of-{step.replace(' ', '-')}": BEFORE[step] if step in steps else [] for step in BEFORE
    }
    log |= {source: log.get(source, []) + records for source, records in AFTER.items()}
    given = {
        source: [Stamped(record, BEGAN + timedelta(milliseconds=tick * SLACK_MS)) for tick, record in records]
        for source, records in log.items()
    }
    out = a_flow().run_locally(given)
    before = {sink: number for sink, number in GIVEN_BEFORE.items() if sink != "to-seen" or "seen" in steps}
    return {sink: records[before.get(sink, 0) :] for sink, records in out.items()}


class Life:
    """The workers of a life that begins with the snapshot of a format."""

    def __init__(self, number: int, parallelism: int) -> None:
        self.plan = a_plan(parallelism)
        where = StoreSetting(str(DATA / f"format-{number}"))
        store = open_store(where)
        self.manifest = Manifest.from_json(store.get(NAME), NAME)
        store.close()
        made: Deployment = deployment(
            plan=self.plan, store=where, restored=self.manifest.parts, recovered=True, start=START
        )
        births = [Birth(f"1/{place}", 1, place + 1, 4, 1, "0", "", bytes(16)) for place in range(parallelism)]
        self.loaded = [load_state(made, birth) for birth in births]
        self.cores: list[WorkerCore] = [
            make_core(made, birth, None, LocalTracker(birth.number, 4, start=START)) for birth in births
        ]
        self._given: dict[str, list[tuple[bytes, object]]] = {vertex.name: [] for vertex in self.plan.sinks()}

    def begin(self) -> None:
        for core in self.cores:
            self._take(core, core.moved(()))

    def feed(self, source: str, unit: int, tick: int, record: Any, number: int) -> None:
        (exchange,) = (each for each in self.plan.exchanges() if each.name == f"by-{source}")
        core = self.cores[int(self.plan.worker_of_unit()[unit])]
        batch = Batch([OrderKey(tick, 1, number).packed()], [unit], [record])
        self._take(core, core.frame(Frame(exchange.id, core.place, number + 1, [tick], batch, b"")))

    def finish(self) -> None:
        for core in self.cores:
            ends = dict.fromkeys(core.program.segments.inbound, END)
            self._take(core, core.notice(Notice(4, 1, 0, ends, END, ())))
            while core.unfinished:
                self._take(core, core.moved(()))

    @property
    def given(self) -> dict[str, list[object]]:
        """The sinks' messages, in order."""
        return {
            sink: [row for _, row in sorted(given, key=lambda each: each[0])] for sink, given in self._given.items()
        }

    def _take(self, core: WorkerCore, effects: Effects) -> None:
        for ask, at, row in effects.questions:
            self._take(core, core.answered(ask, [Answered(at, Answer(encode_rows([said(row)])))]))
        for sink, bundle in effects.bundles:
            if self.plan.vertices[sink].name not in self._given:
                self._take(core, core.durable(sink, bundle.lane))
                continue
            for piece in bundle.pieces:
                self._given[self.plan.vertices[sink].name] += zip(piece.ats, piece.rows, strict=True)


def together(shares: list[Captured]) -> Captured:
    found = Captured()
    for share in shares:
        for step, units in share.items():
            found.setdefault(step, {}).update({unit: entries for unit, entries in units.items() if entries})
    return {step: units for step, units in found.items() if units}


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("number", FORMATS)
def test_workers_begin_with_each_format_and_go_on_like_run_locally(number: int, parallelism: int) -> None:
    life = Life(number, parallelism)
    parts = {part.vertex: part for part in life.manifest.parts}
    steps = set(parts) & set(saved_steps(life.plan))
    assert steps == set(parts) - OF_NO_FLOW
    assert {step for share in life.loaded for step in share} == steps
    captured = together([core.program.capture(START) for core in life.cores])
    assert captured == together(life.loaded), "what was loaded is what a snapshot would have now"
    life.begin()
    place = 0
    for source, records in AFTER.items():
        for tick, record in records:
            step = STEP_OF.get(source)
            unit = parts[step].unit if step is not None and step in steps else len(record.customer) % UNITS
            life.feed(source, unit, tick, record, place := place + 1)
    life.finish()
    assert life.given == answer(steps)
    assert all(given for sink, given in life.given.items() if sink != "to-scored" or "scored" in steps)
