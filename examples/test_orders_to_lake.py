"""The flow here and now: no Spark, no services."""

from orders_to_lake import Counted, Order, Total, flow


def test_totals_are_those_of_each_customer_and_rows_have_them_so_far() -> None:
    orders = [Order(1, "ann", 500), Order(2, "bob", 250), Order(3, "ann", 100)]
    written = flow.run_locally(orders=orders)
    rows = [Counted(1, "ann", 500, 500), Counted(2, "bob", 250, 250), Counted(3, "ann", 100, 600)]
    assert written["to-files"] == written["to-table"] == rows
    assert written["to-database"] == [Total("ann", 1, 500), Total("bob", 1, 250), Total("ann", 2, 600)]
