"""Query 7, highest bid: of every 10 s, the bids with the highest price.

The highest bids of each auction's window are found first, where the auction's bids are, and the highest of these after
that: a single key for all bids would be one worker's. A window gives its result once, `WAIT` after its end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import lowtide as lt
from nexmark.events import WAIT, Bid, read_bids

SQL = """
SELECT auction, bidder, price, date_time, time_bucket(INTERVAL 10 SECONDS, date_time) + INTERVAL 10 SECONDS AS ends
FROM bid QUALIFY price = MAX(price) OVER (PARTITION BY ends)
"""

MOMENT = lt.millis(10)


@dataclass(frozen=True)
class HighestBid:
    auction: int
    bidder: int
    price: int
    date_time: datetime
    window_end: datetime


@dataclass(frozen=True)
class Highest:
    price: int = -1
    bids: tuple[Bid, ...] = ()


def higher(highest: Highest, bid: Bid) -> Highest:
    if bid.price < highest.price:
        return highest
    return Highest(bid.price, (*highest.bids, bid) if bid.price == highest.price else (bid,))


@dataclass(frozen=True)
class HighestBids:
    window_end: datetime
    bids: tuple[Bid, ...]


def of_auction(window: lt.Window, highest: Highest) -> HighestBids:
    return HighestBids(window.end, highest.bids)


def of_all(_: lt.Window, auctions: tuple[HighestBids, ...]) -> Iterator[HighestBid]:
    most = max(each.bids[0].price for each in auctions)
    for each in auctions:
        if each.bids[0].price == most:
            for bid in each.bids:
                yield HighestBid(bid.auction, bid.bidder, bid.price, bid.date_time, each.window_end)


def highest_bids(bids: lt.Stream[Bid]) -> lt.Stream[HighestBid]:
    tumbling = lt.tumbling(lt.seconds(10))
    windows = bids.key_by("auction", name="auction-of-bid").window(
        "highest-of-auctions", tumbling, time=lt.event_time("date_time", wait=WAIT, late="drop")
    )
    # The results of auctions in one window are dated at the moment it closed.
    of_auctions = windows.fold(higher, Highest(), of_auction)
    return of_auctions.key_by("window_end").window("highest", lt.tumbling(MOMENT)).apply(of_all)


flow = lt.Flow("nexmark-q7")
highest_bids(read_bids(flow)).write("q7", lt.kafka("q7", lt.json(HighestBid)))

if __name__ == "__main__":
    lt.main(flow)
