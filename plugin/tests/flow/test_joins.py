"""Joins in a flow: what is refused and why, and what the plan says of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lowtide as lt
from lowtide.errors import FlowError
from lowtide.flow.plan.check import check_flow
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.plan_pickle import dump_plan, load_plan
from lowtide.flow.steps.steps import Connect
from lowtide.local.run import run_plan


@dataclass(frozen=True)
class Item:
    product: str
    number: int = 0
    name: str = "?"
    at: datetime = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Product:
    id: str
    name: str
    gone: bool = False
    number: int = 0
    maker: str | None = None
    made: datetime = datetime(2026, 3, 1, tzinfo=UTC)
    maybe: datetime | None = None


def named(item: Item, product: Product) -> Item:
    return replace(item, name=product.name)


def named_or_not(item: Item, product: Product | None) -> Item:
    return item if product is None else named(item, product)


def counted(count: int, record: Item | Product) -> tuple[int, Item]:
    match record:
        case Item():
            return count + record.number, Item(record.product, count + record.number)
        case Product():
            return 0, Item(record.id, -1)


class Streams:
    """A flow of two sources, keyed alike."""

    def __init__(self) -> None:
        self.flow = lt.Flow("joins")
        # Of any type, as much of what is written here is not typed as it should be.
        self.items: Any = self.flow.read("items", lt.kafka("items", lt.json(Item)))
        self.products: Any = self.flow.read("products", lt.kafka("products", lt.json(Product)))
        self.by_product: Any = self.items.key_by("product")
        self.by_id: Any = self.products.key_by("id")

    def out(self, stream: Any, name: str = "out", record: type = Item) -> Any:
        return stream.write(name, lt.kafka(name, lt.json(record)))


def tabled(table: Callable[[Streams], Any], function: Any = named, **rest: Any) -> Callable[[Streams], None]:
    return lambda s: s.out(s.by_product.join_table("named", table(s), function, **rest))


def number_of(item: Item, product: Product) -> int:
    return product.number


def swapped(item: Product, product: Item) -> Item:
    return product


def unsaid(item, product):  # type: ignore[no-untyped-def]
    return item


REFUSED: list[tuple[Callable[[Streams], Any], str]] = [
    (tabled(lambda s: s.by_id.table("t", deleted="lost")), "Product has no column 'lost'"),
    (tabled(lambda s: s.by_id.table("t", deleted="name")), "deleted='name' is str, but must be bool"),
    (tabled(lambda s: s.products.key_by("number").table("t")), "keys by product are str, and keys by number are int"),
    (tabled(lambda s: s.products.key_by("id", "name").table("t")), "keyed by product and by id, name"),
    (tabled(lambda s: s.by_id.table("t"), how="left"), "named takes Product, but Product | None arrives"),
    (tabled(lambda s: s.by_id.table("t"), swapped), "swapped takes Product, but Item arrives"),
    (tabled(lambda s: s.by_id.table("t"), number_of), "int"),
    (tabled(lambda s: s.by_id.table("t"), unsaid), "unsaid does not say what it returns"),
    (tabled(lambda s: s.by_id.table("t"), returns=Product), "named returns Item, but returns= says Product"),
    (tabled(lambda s: s.by_id.table("t", ttl=timedelta(microseconds=1))), "ttl=1 us is shorter than a tick"),
    (lambda s: (s.by_id.table("t"), s.out(s.items)), "nothing joins this table"),
    (lambda s: (s.by_product.connect(s.by_id), s.out(s.items)), "nothing takes the connected records"),
    (lambda s: s.out(s.by_product.connect(s.by_id)), "not for write; map each, then merge them"),
    (lambda s: s.out(s.by_product.connect(s.by_id).map(named)), "not for map"),
    (lambda s: s.out(s.by_product.connect(s.by_id).reduce("r", max)), "not for reduce"),
    (lambda s: s.out(s.by_product.connect(s.by_product).scan("s", counted, 0)), "connected with itself"),
    (
        lambda s: s.out(s.by_product.connect(s.items.key_by("name")).scan("s", counted, 0)),
        "two streams of Item are keyed by product and by name",
    ),
    (
        lambda s: s.out(s.by_product.connect(s.products.key_by("number")).scan("s", counted, 0)),
        "they would never match; map one before key_by",
    ),
]


def clocks(at: str = "at", made: str = "made", **rest: Any) -> Any:
    """The event time of items and that of products."""
    one = lt.event_time(at, **{"wait": lt.minutes(1), "late": "drop", **rest})
    return one, replace(one, column=made)


def near(*, left: str = "product", right: str = "id", function: Any = named, **rest: Any) -> Callable[[Streams], Any]:
    """A join that would do, but for what is said; its late records go to nowhere unless it is."""
    rest = {"after": lt.hours(1), "time": clocks()} | rest
    return lambda s: s.out(
        s.items.key_by(left, name="near-left").join(
            "near", s.products.key_by(right, name="near-right"), function, **rest
        )
    )


def taken(**rest: Any) -> Callable[[Streams], Any]:
    """A join whose late records are taken."""

    def write(streams: Streams) -> None:
        joined = streams.by_product.join("near", streams.by_id, named, after=lt.hours(1), **rest)
        streams.out(joined)
        streams.out(joined.late, "late")

    return write


REFUSED += [
    (near(right="number"), "keys by product are str, and keys by number are int: they would never match"),
    (near(time=clocks("att")), "Item has no column 'att'"),
    (near(time=clocks(made="number")), "event time 'number' is int, but must be a datetime that is never None"),
    (near(time=clocks(made="maybe")), "event time 'maybe' is datetime with a time zone | None"),
    (near(time=clocks(late=None)), 'use .late and .late_other, or give its event time late="drop"'),
    (near(how="left"), "named takes Product, but Product | None arrives"),
    (near(how="right", function=named_or_not), "named_or_not takes Item, but Item | None arrives"),
    (near(time=None, after=timedelta()), "it has no bound, so it could never forget a record"),
    (taken(time=None), "it uses log time, for which nothing is late; leave out .late and .late_other"),
    (taken(time=clocks()), 'late="drop" drops the records that .late and .late_other take'),
]


@pytest.mark.parametrize(("write", "message"), REFUSED)
def test_what_does_not_fit_is_refused_with_a_way_out(write: Callable[[Streams], Any], message: str) -> None:
    streams = Streams()
    write(streams)
    found = check_flow(streams.flow)
    assert found, "nothing was found"
    assert message in "\n".join(map(str, found))


def test_late_records_are_all_taken_or_all_dropped() -> None:
    streams = Streams()
    joined = streams.by_product.join("near", streams.by_id, named, after=lt.hours(1), time=clocks(late=None))
    streams.out(joined)
    streams.out(joined.late, "late")
    assert "nothing takes its late records; use .late_other, or" in "\n".join(map(str, check_flow(streams.flow)))
    assert joined.late is joined.late
    streams.out(joined.late_other, "late-other", Product)
    assert check_flow(streams.flow) == []


def asof(*, function: Any = named_or_not, other: Any = lambda s: s.by_id, **rest: Any) -> Callable[[Streams], Any]:
    """A join with the newest that would do, but for what is said."""
    rest = {"time": clocks(), "back": lt.hours(1)} | rest
    return lambda s: s.out(s.by_product.join_asof("newest", other(s), function, **rest))


ASOF: list[tuple[Callable[[Streams], Any], str]] = [
    (asof(other=lambda s: s.products.key_by("number")), "keys by product are str, and keys by number are int"),
    (asof(time=clocks("att")), "Item has no column 'att'"),
    (asof(time=clocks(made="maybe")), "event time 'maybe' is datetime with a time zone | None"),
    (asof(time=clocks(late=None)), "nothing takes its late records; use .late and .late_other, or"),
    (asof(function=named), "named takes Product, but Product | None arrives"),
]


@pytest.mark.parametrize(("write", "message"), ASOF)
def test_a_join_with_the_newest_that_does_not_fit_is_refused(write: Callable[[Streams], Any], message: str) -> None:
    streams = Streams()
    write(streams)
    assert message in "\n".join(map(str, check_flow(streams.flow)))


def test_a_join_with_the_newest_says_what_it_does() -> None:
    streams = Streams()
    asof(how="inner", function=named)(streams)
    plan = load_plan(dump_plan(compile_flow(streams.flow, parallelism=1)))
    said = "inner, the newest of up to 1 h before by at and made, waiting 1 min -> Item"
    assert f"join_asof: Item of items/by-product with products/by-id, {said}" in explain(plan)
    assert [plan.vertices[each].name for each in plan.clocked] == ["newest"]


LOOPED: dict[str, Callable[[Streams, Any], Any]] = {
    "join_table": lambda s, inside: inside.join_table("j", s.by_id.table("t"), named),
    "join": lambda s, inside: inside.join("j", s.by_id, named, after=lt.hours(1)),
    "join_asof": lambda s, inside: inside.join_asof("j", s.by_id, named_or_not, time=clocks(), back=lt.hours(1)),
    "connect": lambda s, inside: inside.connect(s.by_id).scan("s", counted, 0),
}


def big(item: Item) -> bool:
    return item.number > 3


@pytest.mark.parametrize("word", LOOPED)
def test_a_loop_has_no_joins_in_it(word: str) -> None:
    streams = Streams()
    streams.out(streams.by_product.loop("l", lambda inside: LOOPED[word](streams, inside), big, limit_turns=2))
    assert f"{word} cannot be in the loop 'l'" in "\n".join(map(str, check_flow(streams.flow)))


AT_ONCE: list[tuple[Callable[[Streams], Any], str]] = [
    (lambda s: s.by_product.join_table("j", s.by_id, named), "join_table takes a table of the flow 'joins'"),
    (lambda s: s.by_product.join_table("j", s.by_id.table("t"), named, how="outer"), 'how= takes "inner" or "left"'),
    (lambda s: s.by_id.table("t", deleted=True), "deleted= takes the name of a column"),
    (lambda s: s.by_id.table("t", ttl=3), "table takes ttl=, a duration"),
    (lambda s: s.products.table("t"), "table works per key"),
    (lambda s: s.by_product.connect(s.products), "connect takes keyed streams"),
    (lambda s: s.by_product.connect(Streams().by_id), "connect takes streams of its own flow"),
    (lambda s: s.by_product.connect(), "connect takes one or more other streams"),
    (lambda s: s.by_product.join("j", s.products, named), "join takes keyed streams"),
    (
        near(time="at"),
        "join \"near\": time= takes an event time, or one for each stream, found 'at'",
    ),
    (near(time=("at", "made")), "time= takes an event time, or one for each stream, found ('at', 'made')"),
    (near(time=clocks()[:1]), "time= takes an event time, or one for each stream, found (EventTime("),
    (near(time=(*clocks(), *clocks())), "time= takes an event time, or one for each stream"),
    (
        near(time=(clocks()[0], clocks(ahead=lt.hours(1))[1])),
        "its event times differ in ahead=, which must be the same for both",
    ),
    (near(time=(clocks()[0], clocks(late=None)[1])), "differ in late=, which must be the same for both streams"),
    (near(wait=lt.hours(1)), "join got an unexpected keyword argument 'wait'"),
    (near(before=lt.hours(-1)), "before= takes a duration of 0 to 100 years"),
    (near(how="both"), 'how= takes "inner", "left", "right" or "outer"'),
    (lambda s: s.items.join("j", s.by_id, named), "join works per key"),
    (lambda s: s.items.join_asof("j", s.by_id, named), "join_asof works per key"),
    (asof(other=lambda s: s.products), "join_asof takes keyed streams"),
    (asof(back=3), 'join_asof "newest": back= takes a duration of 0 to 100 years, found 3'),
    (asof(time=(clocks()[0], clocks(wait=lt.hours(1))[1])), 'join_asof "newest": its event times differ in wait='),
    (asof(late="drop"), "join_asof got an unexpected keyword argument 'late'"),
    (asof(how="outer"), 'how= takes "left" or "inner", found'),
    (asof(time=None), "time= takes an event time, or one for each stream, found None"),
    (lambda s: s.by_product.join_asof("j", s.by_id, named), "join_asof missing a required"),
]


@pytest.mark.parametrize(("write", "message"), AT_ONCE)
def test_what_no_flow_can_mean_is_refused_at_once(write: Callable[[Streams], Any], message: str) -> None:
    with pytest.raises(FlowError, match=re.escape(message)):
        write(Streams())


def joined_and_connected() -> lt.Flow:
    streams = Streams()
    table = streams.by_id.table("products", deleted="gone", ttl=lt.days(1))
    named_items = streams.by_product.join_table("named", table, named_or_not, how="left")
    streams.out(named_items)
    other = streams.items.key_by("product", name="other")
    near_items = other.join("near", streams.by_id, named_or_not, before=lt.minutes(90), how="left")
    streams.out(near_items, "near")
    streams.out(named_items.key_by("name").connect(streams.by_id).scan("counted", counted, 0), "counts")
    return streams.flow


def test_a_plan_goes_to_workers_and_says_what_its_joins_do() -> None:
    plan = load_plan(dump_plan(compile_flow(joined_and_connected(), parallelism=1)))
    out = run_plan(plan, {"items": [Item("1", 3), Item("2", 4)], "products": [Product("1", "tea")]})
    assert out["out"] == [Item("1", 3), Item("2", 4)]  # Sources come one after the other: the table is last.
    assert out["near"] == [Item("1", 3, "tea"), Item("2", 4)]  # Without stamps all is at one time.
    text = explain(plan)
    assert "join: Item of other with products/by-id, left, from 90 min before to 0 s after in log time -> Item" in text
    assert "table: Product of products/by-id, gone where gone is True, forgotten after 1 day" in text
    assert "join_table: Item of items/by-product with products/table, left -> Item" in text
    assert re.search(r"connect: Item of named/by-name, Product of .*relay", text)


def counted_beside(count: int, record: Item | Product, seen: int) -> tuple[int, Item]:
    return count + 1, Item("beside", seen * 10 + count)


def newest(seen: int, item: Item) -> int:
    return item.number


def test_streams_are_connected_where_the_broadcast_beside_them_is() -> None:
    """No exchange carries records of two types, so each stream is relayed to the broadcast's level by itself."""
    streams = Streams()
    seen = streams.items.key_by("name").last(1).map(last_of, returns=Item).broadcast("newest", newest, 0)
    streams.out(streams.by_product.connect(streams.by_id).flat_scan("all", listed, 0, broadcast=seen))
    plan = load_plan(dump_plan(compile_flow(streams.flow, parallelism=1)))
    (connect,) = (vertex for vertex in plan.vertices if isinstance(vertex.step, Connect))
    (scan,) = (vertex for vertex in plan.vertices if vertex.name == "all")
    assert connect.level == scan.level == 2
    assert [vertex.id for vertex in plan.vertices] == list(range(len(plan.vertices)))
    out = run_plan(plan, {"items": [Item("1", 3), Item("1", 4)], "products": [Product("1", "tea")]})
    assert [each.number for each in out["out"] if isinstance(each, Item)] == [0, 31, 42]


def last_of(window: tuple[Item, ...]) -> Item:
    return window[-1]


def listed(count: int, record: Item | Product, seen: int) -> tuple[int, list[Item]]:
    after, item = counted_beside(count, record, seen)
    return after, [item]


def test_keys_may_be_none_on_one_side() -> None:
    streams = Streams()
    streams.out(streams.by_product.join_table("j", streams.products.key_by("maker").table("t"), named))
    assert not [finding for finding in check_flow(streams.flow) if finding.step == "j"]
