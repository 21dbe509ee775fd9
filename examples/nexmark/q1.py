"""Query 1, currency conversion: every bid with its price in euros.

The published query multiplies by 0.908 as a decimal; so does this, exactly, with three digits after the point.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import lowtide as lt
from nexmark.events import Bid, read_bids

SQL = "SELECT auction, bidder, CAST(price * 0.908 AS DECIMAL(23, 3)), date_time, extra FROM bid"

EUROS = Decimal("0.908")


@dataclass(frozen=True)
class BidInEuros:
    auction: int
    bidder: int
    price: Annotated[Decimal, lt.Precision(23, 3)]
    date_time: datetime
    extra: str


def in_euros(bid: Bid) -> BidInEuros:
    return BidInEuros(bid.auction, bid.bidder, bid.price * EUROS, bid.date_time, bid.extra)


def converted(bids: lt.Stream[Bid]) -> lt.Stream[BidInEuros]:
    return bids.map(in_euros)


flow = lt.Flow("nexmark-q1")
converted(read_bids(flow)).write("q1", lt.kafka("q1", lt.json(BidInEuros)))

if __name__ == "__main__":
    lt.main(flow)
