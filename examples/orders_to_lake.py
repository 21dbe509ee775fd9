"""Takes orders to three places, each exactly once: totals to PostgreSQL, rows to Parquet files, rows to a table.

The topic "orders" is read. PostgreSQL keeps one row per customer, as it is now; files and table keep every order, with
the customer's total so far.
"""

from dataclasses import dataclass

import lowtide as lt

LAKE = "s3://lake/orders/dt={tick:%Y-%m-%d}/hour={tick:%H}/"


@dataclass(frozen=True)
class Order:
    number: int
    customer: str
    cents: int


@dataclass(frozen=True)
class Counted:
    number: int
    customer: str
    cents: int
    total_cents: int


@dataclass(frozen=True)
class Total:
    customer: str
    orders: int
    cents: int


def count(so_far: Total, order: Order) -> tuple[Total, Counted]:
    total = Total(order.customer, so_far.orders + 1, so_far.cents + order.cents)
    return total, Counted(order.number, order.customer, order.cents, total.cents)


def add(so_far: Total, order: Order) -> tuple[Total, Total]:
    total = Total(order.customer, so_far.orders + 1, so_far.cents + order.cents)
    return total, total


flow = lt.Flow("orders-to-lake")
orders = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("customer")
counted = orders.scan("counted", count, Total("", 0, 0))

orders.scan("totals", add, Total("", 0, 0)).write("to-database", lt.postgres("totals", Total, key="customer"))
counted.write("to-files", lt.files(LAKE, lt.parquet(Counted), roll=lt.seconds(10)))
counted.write("to-table", lt.iceberg("lake.orders", Counted, commit_every=lt.seconds(2)))

if __name__ == "__main__":
    lt.main(flow)
