"""All queries: their flows, their SQL, and the delivered results that make the two equal."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec

import lowtide as lt
from nexmark import q0, q1, q2, q3, q4, q5, q6, q7, q8, winning
from nexmark.events import Auction, Bid, Person
from nexmark.generator import Log

Rows = Counter[tuple[Any, ...]]

SCHEMA = """
CREATE TABLE person (
    id BIGINT, name TEXT, email TEXT, card TEXT, city TEXT, state TEXT, date_time TIMESTAMP, extra TEXT
);
CREATE TABLE auction (
    id BIGINT, item TEXT, description TEXT, initial BIGINT, reserve BIGINT, date_time TIMESTAMP, expires TIMESTAMP,
    seller BIGINT, category BIGINT, extra TEXT
);
CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP, extra TEXT);
"""


class Streams:
    """The streams of one flow that queries are made of, each of them read once.

    Args:
        flow: The flow.
        read: Reads a source, by its name and its type.
    """

    def __init__(self, flow: lt.Flow, read: Callable[[lt.Flow, str, type], lt.Stream[Any]]) -> None:
        self._flow, self._read = flow, read

    @cached_property
    def persons(self) -> lt.Stream[Person]:
        return self._read(self._flow, "persons", Person)

    @cached_property
    def auctions(self) -> lt.Stream[Auction]:
        return self._read(self._flow, "auctions", Auction)

    @cached_property
    def bids(self) -> lt.Stream[Bid]:
        return self._read(self._flow, "bids", Bid)

    @cached_property
    def won(self) -> lt.Stream[winning.Won]:
        return winning.winning(self.auctions, self.bids)


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        name: Also the name of its sink.
        flow: Makes its flow, from its file.
        result: The type of its results.
        make: Adds its steps to the streams of a flow.
        key: The column that is its messages' key; None for no key.
        sql: The query for DuckDB.
        newest_by: The column of which each value's newest result counts; None: all results do.
    """

    name: str
    flow: lt.Flow
    result: type
    make: Callable[[Streams], lt.Stream[Any]]
    key: str | None
    sql: str
    newest_by: str | None = None

    def read(self, messages: Iterable[bytes | None]) -> list[Any]:
        """Return results from the values of their messages."""
        return [msgspec.json.decode(each or b"", type=self.result) for each in messages]

    def rows(self, results: Iterable[Any]) -> Rows:
        """Return the delivered results, each key's in order, as rows of the SQL's answer."""
        if self.newest_by is not None:
            results = {getattr(each, self.newest_by): each for each in results}.values()
        return Counter(tuple(plain(value) for value in dataclasses.astuple(each)) for each in results)


QUERIES = {
    each.name: each
    for each in (
        Query("q0", q0.flow, Bid, lambda s: q0.passed(s.bids), None, q0.SQL),
        Query("q1", q1.flow, q1.BidInEuros, lambda s: q1.converted(s.bids), None, q1.SQL),
        Query("q2", q2.flow, q2.Offer, lambda s: q2.selected(s.bids), "auction", q2.SQL),
        Query("q3", q3.flow, q3.LocalItem, lambda s: q3.local_items(s.persons, s.auctions), None, q3.SQL),
        Query("q4", q4.flow, q4.CategoryPrice, lambda s: q4.category_prices(s.won), "category", q4.SQL, "category"),
        Query("q5", q5.flow, q5.HotItem, lambda s: q5.hot_items(s.bids), None, q5.SQL),
        Query("q6", q6.flow, q6.SellerPrice, lambda s: q6.seller_prices(s.won), "seller", q6.SQL),
        Query("q7", q7.flow, q7.HighestBid, lambda s: q7.highest_bids(s.bids), None, q7.SQL),
        Query("q8", q8.flow, q8.NewUser, lambda s: q8.new_users(s.persons, s.auctions), "id", q8.SQL),
    )
}


def flow_of(name: str, queries: Iterable[Query], topics: Mapping[str, str]) -> lt.Flow:
    """Return one flow that answers several queries; topics by the names of the sources and the queries."""
    flow = lt.Flow(name)
    streams = Streams(flow, lambda flow, source, record: flow.read(source, lt.kafka(topics[source], lt.json(record))))
    for query in queries:
        query.make(streams).write(query.name, lt.kafka(topics[query.name], lt.json(query.result), key=query.key))
    return flow


def plain(value: Any) -> Any:
    """Return a moment in UTC without its zone, as DuckDB has it; all else unchanged."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def answers(logs: Sequence[Log], queries: Iterable[Query]) -> dict[str, Rows]:
    """Return DuckDB's answers over the events of all logs together, by the queries' names."""
    import duckdb
    import pyarrow as pa

    with duckdb.connect() as base:
        base.execute(SCHEMA)
        for table in ("persons", "auctions", "bids"):
            records = [dataclasses.asdict(each.record) for log in logs for each in log.topics[table]]
            events = [{name: plain(value) for name, value in each.items()} for each in records]
            if events:
                base.register("events", pa.Table.from_pylist(events))
                base.execute(f"INSERT INTO {table[:-1]} BY NAME SELECT * FROM events")
                base.unregister("events")
        return {each.name: Counter(base.execute(each.sql).fetchall()) for each in queries}
