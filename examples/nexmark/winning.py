"""Winning bids: the highest price that was bid for an auction while it was open; queries 4 and 6 begin with these.

A bid counts from the auction's beginning until it expires, both included, as in the SQL of queries 4 and 6. What the
published queries go on correcting with every bid comes once here, when the auction has expired: the pairs of an auction
and its bids lie in a window at the auction's end, which closes when no bid from before it can come any more.
"""

from dataclasses import dataclass
from datetime import datetime

import lowtide as lt
from nexmark.events import LONGEST, WAIT, Auction, Bid

SQL = """
winning AS (
    SELECT auction.id AS auction, seller, category, expires, MAX(bid.price) AS price
    FROM auction JOIN bid ON auction.id = bid.auction AND bid.date_time BETWEEN auction.date_time AND auction.expires
    GROUP BY ALL
)
"""

MOMENT = lt.millis(10)


@dataclass(frozen=True)
class AuctionBid:
    auction: int
    seller: int
    category: int
    expires: datetime
    price: int
    date_time: datetime  # of the bid


@dataclass(frozen=True)
class Won:
    auction: int
    seller: int
    category: int
    expires: datetime
    price: int


def bid_for(auction: Auction, bid: Bid) -> AuctionBid:
    return AuctionBid(auction.id, auction.seller, auction.category, auction.expires, bid.price, bid.date_time)


def in_time(bid: AuctionBid) -> bool:
    return bid.date_time <= bid.expires


def winning(auctions: lt.Stream[Auction], bids: lt.Stream[Bid]) -> lt.Stream[Won]:
    opened, offered = auctions.key_by("id", name="auction"), bids.key_by("auction", name="auction-of-offer")
    offers = opened.join(
        "offers", offered, bid_for, after=LONGEST, time=lt.event_time("date_time", wait=WAIT, late="drop")
    ).filter(in_time)
    closing = offers.key_by("auction", "seller", "category", "expires").window(
        "winning", lt.tumbling(MOMENT), time=lt.event_time("expires", wait=WAIT, late="drop")
    )
    return closing.aggregate(Won, price=lt.agg.max("price"))
