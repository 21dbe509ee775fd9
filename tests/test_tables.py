"""Joins on real Kafka over a life that was killed: two streams, and a stream with a preloaded, compacted table."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import unique
from tests.judging import Judge, committed, produce
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.cli.snapshot import take
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.driver.job import Job
from lowtide.errors import FlowError, LifeEnded
from lowtide.local.oracle import read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.conftest import Spark

    from lowtide.conf import Conf

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]

LANES = 2
KEYS = 40
LAG_MS = 7_200_000


@dataclass(frozen=True)
class Product:
    id: str
    name: str
    gone: bool = False


@dataclass(frozen=True)
class Item:
    product: str
    number: int
    name: str = "?"


@dataclass(frozen=True)
class Order:
    id: str
    number: int
    at: datetime


@dataclass(frozen=True)
class Sale:
    id: str
    order: int | None
    payment: int | None


def named(item: Item, product: Product | None) -> Item:
    return Item(item.product, item.number, product.name if product else "none")


def sale(order: Order | None, payment: Order | None) -> Sale:
    either = order or payment
    assert either is not None
    return Sale(either.id, order.number if order else None, payment.number if payment else None)


@dataclass(frozen=True)
class Topics:
    products: str
    items: str
    orders: str
    payments: str
    named: str
    sales: str
    late: str

    @classmethod
    def make(cls, spark: Spark) -> Topics:
        products = spark.kafka.topic(
            "products", cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"
        )
        sources = [spark.kafka.topic(name) for name in ("items", "orders", "payments")]
        return cls(products, *sources, *(spark.kafka.topic(name, LANES) for name in ("named", "sales", "late")))

    def flow(self, name: str, **source: Any) -> lt.Flow:
        flow = lt.Flow(name)
        products = flow.read("products", lt.kafka(self.products, lt.json(Product), **source))
        items = flow.read("items", lt.kafka(self.items, lt.json(Item)))
        table = products.key_by("id").table("products", deleted="gone")
        items.key_by("product").join_table("named", table, named, how="left").write(
            "named", lt.kafka(self.named, lt.json(Item), key="product")
        )
        orders = flow.read("orders", lt.kafka(self.orders, lt.json(Order))).key_by("id")
        payments = flow.read("payments", lt.kafka(self.payments, lt.json(Order))).key_by("id")
        sales = orders.join(
            "sales", payments, sale, before=lt.seconds(1), after=lt.seconds(2), how="outer",
            time=lt.event_time("at", wait=lt.seconds(3)),
        )  # fmt: skip
        sales.write("sales", lt.kafka(self.sales, lt.json(Sale), key="id"))
        sales.late.merge(sales.late_other, name="late").write("late", lt.kafka(self.late, lt.json(Order)))
        return flow

    def sell(self, conf: Conf, dice: random.Random, numbers: Iterable[int]) -> None:
        """Orders and payments of now, of which some were long under way."""
        now, chosen = datetime.now(UTC), list(numbers)
        for topic in (self.orders, self.payments):
            stamped: list[tuple[bytes | lt.Message, int | None]] = []
            for number in chosen:
                came = now + timedelta(milliseconds=number % 100)
                at = came - timedelta(milliseconds=dice.choice([0, 1, 300, 20_000] if number % 7 == 0 else [0, 40]))
                (value,) = lt.json(Order).encode([Order(f"id-{dice.randrange(30)}", number, at)])
                assert value is not None
                stamped.append((value, int(came.timestamp() * 1000)))
            produce(conf, topic, {0: stamped})


def put(conf: Conf, topic: str, records: list[Any], at: datetime | None = None) -> None:
    values = lt.json(type(records[0])).encode(records)
    keys = [each.id.encode() if isinstance(each, Product) else None for each in records]
    stamp = None if at is None else int(at.timestamp() * 1000)
    messages = [(lt.Message(key, value), stamp) for key, value in zip(keys, values, strict=True)]
    produce(conf, topic, {0: messages})


def compacted(conf: Conf, topic: str) -> int:
    """Rows in some versions, of which compaction has really dropped some; returns how many were dropped."""
    written = 0
    for version in range(5):
        put(conf, topic, [Product(f"p{n}", f"p{n} v{version}", gone=n % 10 == version) for n in range(KEYS)])
        written += KEYS
        time.sleep(0.3)
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        left = len(read_log(conf.kafka, topic, {f"{topic}-0": 0})[0])
        if left < written - 2 * KEYS:
            return written - left
        put(conf, topic, [Product("filler", str(written))])
        written += 1
        time.sleep(0.5)
    raise AssertionError("nothing was compacted")


def keep_for(conf: Conf, topic: str, lag_ms: int) -> None:
    """Let compaction alone what is younger."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
    )

    entry = ConfigEntry("min.compaction.lag.ms", str(lag_ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient(dict(librdkafka_settings(conf.kafka)))
    for future in client.incremental_alter_configs([resource]).values():
        future.result(30)


def test_joins_over_a_kill_and_a_table_that_was_compacted(spark: Spark) -> None:
    """Items that are older than every row see the preloaded ones; what came after the kill is as the oracle has it."""
    topics, dice = Topics.make(spark), random.Random(5)
    conf = spark.conf(job__parallelism=2, job__lanes=LANES)
    name = unique("tables")
    assert compacted(conf, topics.products) > 2 * KEYS
    with pytest.raises(FlowError, match=r'topic "products.*" is compacted: reading it again'):
        Job.start(topics.flow(name), conf)
    with pytest.raises(FlowError, match=r"is compacted after 0 ms") as refused:
        Job.start(topics.flow(name, preload=True, compacted=True), conf)
    assert f"min.compaction.lag.ms to {LAG_MS}" in refused.value.way_out
    keep_for(conf, topics.products, LAG_MS)
    flow = topics.flow(name, preload=True, compacted=True)
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    put(conf, topics.items, [Item(f"p{n % 45}", n) for n in range(90)], at=long_ago)
    topics.sell(conf, dice, range(20))
    job = Job.start(flow, conf)
    try:
        job.wait_for_workers(HANGS_S)
        job.wait(lambda: committed(conf, topics.named) < 90)
        for turn in range(1, 4):
            topics.sell(conf, dice, range(100 * turn, 100 * turn + 40))
            put(conf, topics.products, [Product(f"p{dice.randrange(45)}", f"turn {turn}") for _ in range(9)])
            put(conf, topics.items, [Item(f"p{n % 45}", 100 * turn + n) for n in range(45)])
            job.wait(after(0.7))
        saved = take(job.client(), flow.name, None, limit_s=HANGS_S)
        for turn in range(10, 40):  # On a busy machine those that waited for partners may be gone by then.
            if saved.rows > KEYS + 45:
                break
            topics.sell(conf, dice, range(100 * turn, 100 * turn + 40))
            saved = take(job.client(), flow.name, None, limit_s=HANGS_S)
        topics.sell(conf, dice, range(600, 640))
        put(conf, topics.products, [Product("p1", "late"), Product("p2", "", gone=True)])
        put(conf, topics.items, [Item(f"p{n % 45}", 600 + n) for n in range(45)])
        os.kill(next(each["pid"] for each in job.status()["workers"] if each["worker"] == "1/0"), signal.SIGKILL)
        with pytest.raises(LifeEnded):
            job.wait(after(60.0))
    finally:
        job.stop()
    assert saved.rows > KEYS + 45, "the table's rows, and records that wait for partners"
    said: list[str] = []
    job = Job.start(flow, conf, said.append)
    try:
        assert any(f"beginning from commit {saved.id}" in each for each in said), said
        topics.sell(conf, dice, range(700, 720))
        assert Judge(flow, conf).right() > 300
        view = job.client().status()
        assert {"sales/left", "sales/right", "named"} <= set(view.kept)
        assert view.kept["named"].count >= KEYS - 8
        assert sum(each.late for each in view.totals.late.values()) > 0
    finally:
        job.stop()
    first = read_log(conf.kafka, topics.named, {f"{topics.named}-{lane}": lane for lane in range(LANES)})
    values = [message.value or b"" for lane in first.values() for message in lane]
    assert any(b'"name":"p11 v4"' in value for value in values), "a row that was written after the item"
    assert committed(conf, topics.late)


def after(seconds: float) -> Callable[[], Any]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until
