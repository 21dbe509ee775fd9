"""Query 2, selection: the bids on every 123rd auction.

The published query, as it is.
"""

from dataclasses import dataclass

import lowtide as lt
from nexmark.events import Bid, read_bids

SQL = "SELECT auction, price FROM bid WHERE auction % 123 = 0"


@dataclass(frozen=True)
class Offer:
    auction: int
    price: int


def is_selected(bid: Bid) -> bool:
    return bid.auction % 123 == 0


def offer(bid: Bid) -> Offer:
    return Offer(bid.auction, bid.price)


def selected(bids: lt.Stream[Bid]) -> lt.Stream[Offer]:
    return bids.filter(is_selected).map(offer)


flow = lt.Flow("nexmark-q2")
selected(read_bids(flow)).write("q2", lt.kafka("q2", lt.json(Offer), key="auction"))

if __name__ == "__main__":
    lt.main(flow)
