"""Query 4, average price for a category: of the winning bids of all auctions that have expired.

The published query corrects its averages with every bid on an auction that is still open. Here a result comes when an
auction has expired and is never taken back: it says of how many auctions it is the average. A category's newest result
is the published one once all auctions have expired.
"""

from dataclasses import dataclass

import lowtide as lt
from nexmark import winning
from nexmark.events import read_auctions, read_bids
from nexmark.winning import Won

SQL = f"""
WITH {winning.SQL}
SELECT category, COUNT(*), AVG(price) FROM winning GROUP BY category
"""


@dataclass(frozen=True)
class CategoryPrice:
    category: int
    auctions: int
    price: float | None


def category_prices(won: lt.Stream[Won]) -> lt.Stream[CategoryPrice]:
    return won.key_by("category").aggregate(
        "category-prices", CategoryPrice, auctions=lt.agg.count(), price=lt.agg.mean("price")
    )


flow = lt.Flow("nexmark-q4")
category_prices(winning.winning(read_auctions(flow), read_bids(flow))).write(
    "q4", lt.kafka("q4", lt.json(CategoryPrice), key="category")
)

if __name__ == "__main__":
    lt.main(flow)
