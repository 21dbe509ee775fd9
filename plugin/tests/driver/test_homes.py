"""The start of a life at several stores: what is claimed, read and refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from ledger import BOOKS, Book, LedgerSink
from staged_to import StagedTo

import lowtide as lt
from lowtide.conf import Conf
from lowtide.core.operators.order.order import OrderKey
from lowtide.driver.homes import Homes, read_elsewhere
from lowtide.driver.placement import refuse_forgotten
from lowtide.errors import FlowError, LifeEnded
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.sinks.contract import LaneName, Mark, Packet
from lowtide.sinks.kafka.lasts import Durable
from lowtide_snapshots.job.store import JobStore
from lowtide_tracker import Floor


@dataclass(frozen=True)
class Order:
    user: str
    number: int = 0


class Place:
    """A job's place in ZooKeeper."""

    def __init__(self) -> None:
        self.newest = 1
        self.kept: tuple[str | None, int] = (None, 0)
        self.ids: dict[str, str] = {}

    def identity(self, _incarnation: int) -> str:
        return "the job"

    def incarnation(self) -> int:
        return self.newest

    def check(self, incarnation: int) -> None:
        if incarnation < self.newest:
            raise LifeEnded(f"incarnation {incarnation} is over")

    def lasts(self) -> tuple[str | None, int]:
        return self.kept

    def set_lasts(self, _incarnation: int, topic_id: str, generation: int = 0) -> None:
        self.kept = topic_id, generation

    def stores(self) -> dict[str, str]:
        return self.ids

    def set_stores(self, _incarnation: int, ids: dict[str, str]) -> None:
        self.ids = ids


@pytest.fixture(autouse=True)
def _ledgers() -> None:
    BOOKS.clear()


def plan_to(*books: str, key: str | None = None, lanes: int = 2, workers: int = 1) -> Plan:
    flow = lt.Flow("shop")
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("user")
    for book in books:
        orders.write(f"to-{book}", LedgerSink(book, Order, key))
    return compile_flow(flow, parallelism=workers, lanes=lanes)


def homes(place: Place, plan: Plan, incarnation: int = 1, delivery: str = "exactly_once") -> Homes:
    conf = Conf.load(None, {"job.delivery": delivery})
    return Homes(cast("JobStore", place), plan, conf, incarnation, lambda _: None)


def deliver(life: Homes, book: str, before: OrderKey | None, last: OrderKey, incarnation: int = 1) -> None:
    sink: Any = life.stores[f"ledger:{book}"].sinks[f"to-{book}"]
    way = sink.way(life.stores[f"ledger:{book}"], life._life)
    mark = Mark(
        LaneName(0, f"to-{book}", 0, 128), last.packed(), before.packed() if before else b"", [Floor(0, 5, last.tick)]
    )
    way.deliver([Packet(1, 0, [(f"tick {last.tick}",)], mark)])


def test_marks_and_floors_of_all_stores_are_read_together() -> None:
    place, plan = Place(), plan_to("a", "b")
    first = homes(place, plan)
    assert first.claim(set()).last == {}
    assert (place.kept, place.ids) == (("", 0), {"ledger:a": "a@lanes=2", "ledger:b": "b@lanes=2"})
    assert first.lasts_topic == "", "a job without a sink in Kafka has no lasts topic"
    deliver(first, "a", None, OrderKey(7, 0, 1))
    deliver(first, "b", None, OrderKey(9, 0, 2))
    place.newest = 2
    durable = homes(place, plan, 2).claim(set())
    assert durable.last == {
        LaneName(0, "to-a", 0, 128): OrderKey(7, 0, 1),
        LaneName(0, "to-b", 0, 128): OrderKey(9, 0, 2),
    }
    assert set(durable.floors) == {Floor(0, 5, 9)}, "of two floors at one offset, the higher one counts"
    assert read_elsewhere(cast("JobStore", place), plan, Conf()) == durable.last
    with pytest.raises(LifeEnded):
        deliver(first, "a", OrderKey(7, 0, 1), OrderKey(8, 0, 3))


def test_a_lane_of_an_earlier_version_is_known_by_its_hash_units_and_stays_so() -> None:
    """Its number will mean others; and of a strand, what the store has under its very name is compared (R19)."""
    place, book = Place(), BOOKS.setdefault("a", Book())
    book.lasts = {LaneName(0, "to-a", lane): OrderKey(7 + lane, 0, 1).packed() for lane in (0, 1)}
    place.ids = {"ledger:a": "a"}
    early = {LaneName(0, "to-a", 0, 64): OrderKey(7, 0, 1), LaneName(0, "to-a", 64, 128): OrderKey(8, 0, 1)}
    first = homes(place, plan_to("a"))
    assert first.claim(set()).last == early
    assert first.strands == {}
    assert place.ids == {"ledger:a": "a@lanes=2"}
    deliver(first, "a", None, OrderKey(9, 0, 1))
    place.newest = 2
    grown = homes(place, plan_to("a", lanes=8), 2)
    assert grown.claim(set()).last == early | {LaneName(0, "to-a", 0, 128): OrderKey(9, 0, 1)}
    assert grown.strands == {LaneName(0, "to-a", 0, 128): OrderKey(9, 0, 1)}
    assert place.ids == {"ledger:a": "a@lanes=2"}


def test_a_claim_takes_the_strands_of_lives_with_other_workers() -> None:
    """W10."""
    place = Place()
    first = homes(place, plan_to("a", workers=2))
    first.claim(set())
    homes(place, plan_to("a"), 1).claim(set())
    place.newest = 2
    homes(place, plan_to("a"), 2).claim(set())
    assert set(BOOKS["a"].claims.values()) == {2}
    assert len(BOOKS["a"].claims) == 3


def test_a_life_that_is_over_claims_nothing_for_good() -> None:
    place, plan = Place(), plan_to("a")
    place.newest = 3
    assert homes(place, plan, 3).claim(set()).last == {}
    with pytest.raises(LifeEnded):
        homes(place, plan, 2).claim(set())
    assert set(BOOKS["a"].claims.values()) == {3}


def test_a_life_that_is_over_is_found_out_after_its_claim() -> None:
    """W10: the claim comes first, then the look at the newest life."""
    place, plan = Place(), plan_to("a")
    place.newest = 2
    with pytest.raises(LifeEnded, match="incarnation 1 is over"):
        homes(place, plan, 1).claim(set())
    assert BOOKS["a"] == Book(claims={LaneName(0, "to-a", 0, 128): 1})
    assert place.ids == {}


def test_a_new_generation_has_no_marks_and_all_floors() -> None:
    place, plan = Place(), plan_to("a", key="user")
    life = homes(place, plan)
    life.claim(set())
    deliver(life, "a", None, OrderKey(7, 0, 1))
    known = life.claim(set())
    BOOKS["a"].lasts.clear()  # A store keeps those of each generation apart; this one has only one.
    again = life.deliver_again(known)
    assert (again.last, again.floors) == ({}, known.floors)
    assert place.kept == ("", 1)
    assert life.stores["ledger:a"].generation == 1


def test_what_is_only_added_to_is_not_delivered_to_again() -> None:
    place = Place()
    life = homes(place, plan_to("a"))
    known = life.claim(set())
    with pytest.raises(FlowError, match='sink "to-a" only adds to ledger a: what is there already'):
        life.deliver_again(known)
    assert place.kept == ("", 0)


def test_a_flow_that_no_longer_writes_a_store_is_refused() -> None:
    place = Place()
    homes(place, plan_to("a", "b")).claim(set())
    with pytest.raises(FlowError, match="the job has delivered to ledger:b, which the flow no longer writes"):
        homes(place, plan_to("a"))


def test_staged_records_are_neither_doubled_nor_delivered_at_least_once() -> None:
    flow = lt.Flow("shop")
    flow.read("orders", lt.kafka("orders", lt.json(Order))).write("shelf", StagedTo("shelf a", Order))
    plan = compile_flow(flow, parallelism=1, lanes=2)
    with pytest.raises(FlowError, match=r"a job that writes shelf a delivers exactly once there"):
        homes(Place(), plan, delivery="at_least_once")
    life = homes(Place(), plan)
    assert life.lasts_topic, "staged records are Kafka's"
    with pytest.raises(FlowError, match='sink "shelf" only adds to shelf a: what is there already'):
        life.deliver_again(Durable({}, ()))


def price(order: Order) -> Order:
    return order


def asking(*, repeatable: bool) -> Plan:
    flow = lt.Flow("shop")
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("user")
    asked = orders.call("price", price, timeout=lt.seconds(1), repeatable=repeatable)
    asked.write("to-a", LedgerSink("a", Order, None))
    return compile_flow(flow, parallelism=1, lanes=2)


def test_answers_of_calls_are_kafkas_unless_none_are_kept() -> None:
    assert homes(Place(), asking(repeatable=False)).lasts_topic
    assert not homes(Place(), asking(repeatable=True)).lasts_topic


def test_a_call_that_keeps_its_answers_delivers_exactly_once() -> None:
    with pytest.raises(FlowError, match='call "price" keeps its answers by what is delivered exactly once'):
        homes(Place(), asking(repeatable=False), delivery="at_least_once")


def test_the_topic_of_a_call_that_has_gone_is_no_store() -> None:
    place = Place()
    place.ids = {"answers:price": "an id", "ledger:a": "a"}
    homes(place, plan_to("a"))
    refuse_forgotten(plan_to("a"), [LaneName(0, "to-a", 0), LaneName(0, "price/answers", 0)])


def test_a_store_is_not_mixed_with_at_least_once() -> None:
    with pytest.raises(FlowError, match=r"a job that writes ledger a delivers exactly once there"):
        homes(Place(), plan_to("a"), delivery="at_least_once")
