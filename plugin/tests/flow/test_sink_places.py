"""Two sinks of a flow have different places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import lowtide as lt
from lowtide.flow.types.inference import Inference
from lowtide.sinks.transactional import TransactionalSink


@dataclass(frozen=True)
class Order:
    user: str
    at: int


ORDERS = lt.kafka("orders", lt.json(Order))
DEAD = lt.kafka("dead", lt.raw())
FOLDER = "s3://lake/orders/dt={tick:%Y-%m-%d}/"
LOCAL = "/lake/orders/dt={tick:%Y-%m-%d}/"


@dataclass(frozen=True)
class Plain(TransactionalSink):
    """A sink of somebody's own."""

    name: str
    record: type = Order
    store = "lines"

    @property
    def place(self) -> str:
        return f"lines {self.name}"

    def connect(self, settings: Any, limit_s: float) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Prefix(Plain):
    def meets(self, other: Any) -> bool:
        return isinstance(other, Prefix) and bool(other.name.startswith(self.name))


def puts(name: str, store: Any = None) -> Any:
    return lt.puts(name, Order, key="user", put=store or lt.redis())


def faults(*sinks: Any) -> list[str]:
    flow = lt.Flow("test", dead_letters=DEAD)
    keyed = flow.read("orders", ORDERS).key_by("user")
    for number, sink in enumerate(sinks):
        keyed.write(f"sink-{number}", sink)
    return [finding.message.split(": their order")[0] for finding in Inference(flow).findings]


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        (ORDERS, lt.kafka("orders", lt.json(Order), key="user"), 'topic "orders"'),
        (lt.postgres("shop.orders", Order), lt.postgres("shop.orders", Order, key="user"), 'table "shop.orders"'),
        (lt.files(FOLDER, lt.parquet(Order)), lt.files(FOLDER[:-1], lt.json_lines(Order)), f'files "{FOLDER}"'),
        (lt.delta("/lake/orders", Order), lt.delta("/lake/orders/", Order), 'Delta table "/lake/orders"'),
        (lt.iceberg("lake.orders", Order), lt.iceberg("lake.orders", Order), 'Iceberg table "lake.orders"'),
        (puts("orders"), puts("orders"), '"orders" in redis'),
        (
            lt.puts("orders", Order, key="user", put=lt.http(), eventual=True),
            puts("orders", lt.http(compares=True)),
            '"orders" in http',
        ),
    ],
)
def test_a_place_takes_one_sink(one: Any, other: Any, place: str) -> None:
    assert faults(one) == faults(other) == []
    assert faults(one, other) == [f'sink "sink-0" is written to {place}, too']


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lt.postgres("orders", Order), lt.postgres("public.orders", Order)),
        (lt.files(LOCAL, lt.parquet(Order)), lt.files(f"file://{LOCAL}", lt.parquet(Order))),
        (lt.files(LOCAL, lt.parquet(Order)), lt.files(LOCAL, lt.parquet(Order), connection="archive")),
        (
            lt.files(FOLDER, lt.parquet(Order)),
            lt.files("s3://lake/orders/dt={tick:%Y-%m}-{tick:%d}/", lt.parquet(Order)),
        ),
        (lt.delta("/lake/orders", Order), lt.delta("file:///lake//orders", Order, connection="archive")),
        (lt.delta("/lake/orders", Order), lt.delta("/lake/orders/old", Order)),
        (lt.delta("s3://lake/orders", Order), lt.files(FOLDER, lt.parquet(Order))),
        (lt.delta("s3://lake/orders/table", Order), lt.files(FOLDER, lt.parquet(Order))),
        (puts("shop"), puts("shop:orders")),
        (puts("orders", lt.http(compares=True)), puts("orders/", lt.http(compares=True))),
        (Prefix("a"), Prefix("ab")),
    ],
)
def test_another_spelling_and_a_place_within_are_found_either_way(one: Any, other: Any) -> None:
    assert faults(one) == faults(other) == []
    for first, second in ((one, other), (other, one)):
        common = f"{first.place}, which has places in common with {second.place}"
        assert faults(first, second) == [f'sink "sink-0" is written to {common}']


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lt.postgres("orders", Order), lt.postgres("orders", Order, connection="archive")),
        (lt.postgres("orders", Order), lt.postgres("shop.orders", Order)),
        (lt.postgres("orders", Order), lt.postgres("Orders", Order)),
        (lt.delta("/lake/orders", Order), lt.delta("/lake/orders-open", Order)),
        (lt.delta("/lake/orders", Order), lt.delta("s3://lake/orders", Order)),
        (lt.delta("/lake/orders", Order), lt.iceberg("lake.orders", Order)),
        (lt.files(FOLDER, lt.parquet(Order)), lt.files(FOLDER.replace("dt=", "day="), lt.parquet(Order))),
        (lt.files("/a/%Y/{tick:%Y}", lt.parquet(Order)), lt.files("/a/{tick:%Y}/{tick:%Y}", lt.parquet(Order))),
        (Prefix("a"), Prefix("b")),
        (Plain("a"), Plain("ab")),
        (lt.iceberg("lake.orders", Order), lt.iceberg("lake.orders", Order, catalog="archive")),
        (lt.delta("s3://lake/orders", Order), lt.delta("s3://lake/orders", Order, connection="archive")),
        (lt.files(FOLDER, lt.parquet(Order)), lt.files(FOLDER, lt.parquet(Order), connection="archive")),
        (puts("orders"), puts("orders", lt.redis("archive"))),
        (puts("orders"), puts("orders-open")),
        (puts("shop", lt.elasticsearch()), puts("shop:orders", lt.elasticsearch())),
        (lt.kafka("copies", lt.json(Order)), lt.postgres("copies", Order)),
    ],
)
def test_other_servers_and_names_are_other_places(one: Any, other: Any) -> None:
    assert faults(one, other) == []


def test_dead_letters_have_a_place_of_their_own() -> None:
    assert faults(lt.kafka("dead", lt.json(Order))) == ['the dead letters are written to topic "dead", too']


def test_a_third_sink_is_told_of_the_first() -> None:
    assert faults(ORDERS, ORDERS, ORDERS) == ['sink "sink-0" is written to topic "orders", too'] * 2
