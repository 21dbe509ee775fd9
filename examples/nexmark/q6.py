"""Query 6, average selling price by seller: of each seller's last 10 auctions that found a bid.

A result comes with every auction that expires, in the order in which they do, of those that expire at the same
millisecond in the order of their ids. The published query corrects what it has said when a higher bid comes; here an
auction counts once its winning bid is certain.
"""

from dataclasses import dataclass
from datetime import datetime

import lowtide as lt
from nexmark import winning
from nexmark.events import read_auctions, read_bids
from nexmark.winning import MOMENT, Won

SQL = f"""
WITH {winning.SQL}
SELECT seller, auction, AVG(price) OVER (
    PARTITION BY seller ORDER BY expires, auction ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
) FROM winning
"""


@dataclass(frozen=True)
class SellerPrice:
    seller: int
    auction: int  # the last of those that the price is the average of
    price: float


def expiry(won: Won) -> tuple[datetime, int]:
    return won.expires, won.auction


def as_expired(_: lt.Window, won: tuple[Won, ...]) -> list[Won]:
    return sorted(won, key=expiry)


def average(won: tuple[Won, ...]) -> SellerPrice:
    return SellerPrice(won[-1].seller, won[-1].auction, sum(each.price for each in won) / len(won))


def seller_prices(won: lt.Stream[Won]) -> lt.Stream[SellerPrice]:
    # Auctions of one seller that close at one tick come by their own keys' hash: the window puts them in order.
    closed = won.key_by("seller").window("closed", lt.tumbling(MOMENT))
    return closed.apply(as_expired).key_by("seller", name="seller").last(10).map(average)


flow = lt.Flow("nexmark-q6")
seller_prices(winning.winning(read_auctions(flow), read_bids(flow))).write(
    "q6", lt.kafka("q6", lt.json(SellerPrice), key="seller")
)

if __name__ == "__main__":
    lt.main(flow)
