"""Query 5, hot items: in the last 10 s, every 2 s, the auctions with the most bids.

All auctions that have the most come out, as in the published query. It corrects a window's result as long as bids come;
here a window gives its result once, when it closes, `WAIT` after its end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import lowtide as lt
from nexmark.events import WAIT, Bid, read_bids

SQL = """
WITH counts AS (
    SELECT auction, ends, COUNT(*) AS bids
    FROM bid, LATERAL (SELECT UNNEST(generate_series(
        time_bucket(INTERVAL 2 SECONDS, date_time) + INTERVAL 2 SECONDS,
        time_bucket(INTERVAL 2 SECONDS, date_time) + INTERVAL 10 SECONDS,
        INTERVAL 2 SECONDS
    )) AS ends)
    GROUP BY ALL
)
SELECT auction, ends, bids FROM counts QUALIFY bids = MAX(bids) OVER (PARTITION BY ends)
"""

MOMENT = lt.millis(10)


@dataclass(frozen=True)
class HotItem:
    auction: int
    window_end: datetime
    bids: int


def hottest(_: lt.Window, items: tuple[HotItem, ...]) -> Iterator[HotItem]:
    most = max(item.bids for item in items)
    return (item for item in items if item.bids == most)


def hot_items(bids: lt.Stream[Bid]) -> lt.Stream[HotItem]:
    sliding = lt.sliding(lt.seconds(10), every=lt.seconds(2))
    clock = lt.event_time("date_time", wait=WAIT, late="drop")
    windows = bids.key_by("auction", name="item").window("bids-of-items", sliding, time=clock)
    counts = windows.aggregate(HotItem, bids=lt.agg.count())
    # All counts of one window are dated at the moment it closed, so a window of log time brings them together.
    return counts.key_by("window_end").window("hottest", lt.tumbling(MOMENT)).apply(hottest)


flow = lt.Flow("nexmark-q5")
hot_items(read_bids(flow)).write("q5", lt.kafka("q5", lt.json(HotItem)))

if __name__ == "__main__":
    lt.main(flow)
