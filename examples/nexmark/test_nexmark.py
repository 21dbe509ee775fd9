"""Every query here and now, held against DuckDB over the same events: no Spark, no services."""

import dataclasses
from collections import Counter
from datetime import UTC, datetime

import pytest

import lowtide as lt
from nexmark.events import LONGEST, WAIT
from nexmark.generator import AUCTIONS, BIDS, DELAY_MS, PERSONS, Generator, Log
from nexmark.generator import in_time as in_time_order
from nexmark.queries import QUERIES, Query, answers, flow_of

START = datetime(2026, 3, 1, 10, tzinfo=UTC)
COUNT, RATE = 6_000, 150.0


def made(seed: int) -> Log:
    return Generator(seed, RATE).log(COUNT, START)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_answers_what_duckdb_does(query: Query, seed: int) -> None:
    log = made(seed)
    sources = {call.name for call in query.flow.calls if call.name in log.topics}
    delivered = query.flow.run_locally({name: log.topics[name] for name in sorted(sources)})[query.name]
    answer = answers([log], [query])[query.name]
    assert query.rows(delivered) == answer
    assert answer.total() > 3, "an answer that is all but empty says nothing"


def test_bids_that_come_too_late_are_counted_by_no_window_and_join() -> None:
    """DuckDB knows no lateness: without the late bids it answers what the queries do with them."""
    log = made(1)
    in_time = [each for place, each in enumerate(log.bids) if place % 7]
    # After all windows that a bid is in, and all auctions that were open.
    late = [lt.Stamped(each.record, each.at + LONGEST + 5 * WAIT) for each in log.bids[::7]]
    whole = dataclasses.replace(log, bids=in_time_order([*in_time, *late]))
    flow = flow_of("nexmark", QUERIES.values(), {name: name for name in (*log.topics, *QUERIES)})
    delivered = flow.run_locally(dict(whole.topics))
    answer = answers([dataclasses.replace(log, bids=in_time)], QUERIES.values())
    every = answers([log], QUERIES.values())
    for name, query in QUERIES.items():
        passes_all = name in ("q0", "q1", "q2")
        assert query.rows(delivered[name]) == (every if passes_all else answer)[name], name
    assert all(answer[name] != every[name] for name in ("q4", "q5", "q6", "q7"))


def test_one_flow_answers_all_queries() -> None:
    log = made(3)
    flow = flow_of("nexmark", QUERIES.values(), {name: name for name in (*log.topics, *QUERIES)})
    delivered = flow.run_locally(dict(log.topics))
    assert {name: query.rows(delivered[name]) for name, query in QUERIES.items()} == answers([log], QUERIES.values())


def test_every_expired_auction_changes_its_categorys_average_once() -> None:
    log = made(4)
    delivered = QUERIES["q4"].flow.run_locally(auctions=log.auctions, bids=log.bids)["q4"]
    for category in {each.category for each in delivered}:
        counts = [each.auctions for each in delivered if each.category == category]
        assert counts == list(range(1, len(counts) + 1))


def test_one_seed_makes_one_log() -> None:
    assert made(5) == made(5)
    assert made(5) != made(6)


def test_events_stand_in_the_published_proportions_and_skew() -> None:
    log = Generator(7, 1_000).log(50_000, START)
    assert (len(log.persons), len(log.auctions), len(log.bids)) == (1_000 * PERSONS, 1_000 * AUCTIONS, 1_000 * BIDS)
    bids = [each.record for each in log.bids]
    hot = sum(bid.auction % 100 == 0 for bid in bids) / len(bids)
    assert 0.48 < hot < 0.53
    bidders = Counter(bid.bidder % 100 == 1 for bid in bids)
    assert 0.73 < bidders[True] / len(bids) < 0.78
    sellers = [each.record.seller for each in log.auctions]
    assert 0.72 < sum(seller % 100 == 0 for seller in sellers) / len(sellers) < 0.79
    assert 90 < sum(len(bid.extra) + 32 for bid in bids) / len(bids) < 110


def test_a_tenth_of_the_events_comes_late_and_topics_stand_in_time() -> None:
    log = made(8)
    late = [each.at - each.record.date_time for each in log.bids]
    assert 0.08 < sum(map(bool, late)) / len(late) < 0.12
    assert 0 < max(each.total_seconds() for each in late) <= DELAY_MS / 1_000
    for events in log.topics.values():
        assert [each.at for each in events] == sorted(each.at for each in events)


def test_auctions_that_would_be_open_for_too_long_are_refused() -> None:
    assert max(each.record.expires - each.record.date_time for each in made(9).auctions) < LONGEST
    with pytest.raises(ValueError, match="take more than 56 a second"):
        Generator(1, 50)
