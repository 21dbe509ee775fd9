"""Decimals, times of day and UUIDs all the way of a job: a UUID as key, all in states, snapshots and sinks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import time
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import pytest
from tests.conftest import unique
from tests.judging import Judge
from tests.waiting import HANGS_S

import lowtide as lt
from lowtide.cli.snapshot import take
from lowtide.driver.job import Job

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]

COUNT = 200
Money = Annotated[Decimal, lt.Precision(18, 2)]


@dataclass(frozen=True)
class Sale:
    shop: UUID
    number: int
    opens: time
    amount: Money


@dataclass(frozen=True)
class Sales:
    total: Money = Decimal("0.00")
    earliest: time = time(23, 59)
    first_shop: UUID | None = None


@dataclass(frozen=True)
class Told:
    shop: UUID
    opens: time
    total: Money
    earliest: time
    first: UUID | None


def sell(sales: Sales, sale: Sale) -> tuple[Sales, Told]:
    first = sale.shop if sales.first_shop is None else sales.first_shop
    after = Sales(sales.total + sale.amount, min(sales.earliest, sale.opens), first)
    return after, Told(sale.shop, sale.opens, after.total, after.earliest, first)


def sales(numbers: range) -> list[Sale]:
    return [
        Sale(UUID(int=number % 5), number, time(number % 3, number % 60, 0, number), Decimal(number).scaleb(-2))
        for number in numbers
    ]


def test_all_kinds_of_columns_go_through_keys_states_snapshots_and_sinks(spark: Spark) -> None:
    source, sink = spark.kafka.topic("sales", 1), spark.kafka.topic("posted", 2)
    flow = lt.Flow(unique("kinds"))
    keyed = flow.read("sales", lt.kafka(source, lt.json(Sale))).key_by("shop", "number")
    once = keyed.deduplicate("once", within=lt.days(1)).key_by("shop")
    once.scan("sell", sell, Sales()).write("out", lt.kafka(sink, lt.json(Told), key="shop"))
    conf = spark.conf(job__parallelism=2, job__lanes=2)

    def write(numbers: range) -> None:
        values = lt.json(Sale).encode(sales(numbers))
        spark.kafka.produce(source, [value for value in values if value is not None])

    write(range(COUNT))
    with spark.job(flow, job__parallelism=2, job__lanes=2) as job:
        assert Judge(flow, conf).right() == COUNT
        saved = take(job.client(), flow.name, None, limit_s=60.0)
    assert saved.rows > COUNT, "the keys of deduplicate, and the states of the scan"
    said: list[str] = []
    job = Job.start(flow, conf, said.append)
    try:
        job.wait_for_workers(HANGS_S)
        write(range(COUNT - 50, 2 * COUNT))
        assert Judge(flow, conf).right() == 2 * COUNT, "50 of them came twice"
    finally:
        job.stop()
    assert any(f"beginning from commit {saved.id}" in each for each in said), said
    wanted = flow.run_locally(sales=[*sales(range(COUNT)), *sales(range(COUNT - 50, 2 * COUNT))])["out"]
    found = [each.value() for each in spark.kafka.messages(sink, 2 * COUNT)]
    assert sorted(found) == sorted(value or b"" for value in lt.json(Told).encode(wanted))
