"""Query 0, pass-through: the cost of reading and writing.

Lowtide delivers the bids of a partition in its order; the published query has no order to keep.
"""

import lowtide as lt
from nexmark.events import Bid, read_bids

SQL = "SELECT auction, bidder, price, date_time, extra FROM bid"


def passed(bids: lt.Stream[Bid]) -> lt.Stream[Bid]:
    return bids


flow = lt.Flow("nexmark-q0")
passed(read_bids(flow)).write("q0", lt.kafka("q0", lt.json(Bid)))

if __name__ == "__main__":
    lt.main(flow)
