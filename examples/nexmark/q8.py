"""Query 8, new users: who has opened an auction in the same 10 s in which they registered.

The published query joins two windows. This one joins people and auctions that lie less than a window's size apart, and
keeps the pairs of one window: a result so comes with the second of the two, not when the window closes. One for a
person, however many auctions there are.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

import lowtide as lt
from nexmark.events import WAIT, Auction, Person, read_auctions, read_persons

SQL = """
SELECT DISTINCT person.id, person.name, time_bucket(INTERVAL 10 SECONDS, person.date_time)
FROM person JOIN auction ON auction.seller = person.id
    AND time_bucket(INTERVAL 10 SECONDS, auction.date_time) = time_bucket(INTERVAL 10 SECONDS, person.date_time)
"""

SIZE = lt.seconds(10)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Opened:
    id: int
    name: str
    registered_in: datetime
    opened_in: datetime


@dataclass(frozen=True)
class NewUser:
    id: int
    name: str
    window_start: datetime


def window_start(at: datetime) -> datetime:
    return at - (at - EPOCH) % SIZE


def opened(person: Person, auction: Auction) -> Opened:
    return Opened(person.id, person.name, window_start(person.date_time), window_start(auction.date_time))


def in_one_window(each: Opened) -> bool:
    return each.registered_in == each.opened_in


def new_user(each: Opened) -> NewUser:
    return NewUser(each.id, each.name, each.registered_in)


def new_users(persons: lt.Stream[Person], auctions: lt.Stream[Auction]) -> lt.Stream[NewUser]:
    registered, sellers = persons.key_by("id", name="registered"), auctions.key_by("seller", name="sellers")
    pairs = registered.join(
        "opened", sellers, opened, before=SIZE, after=SIZE, time=lt.event_time("date_time", wait=WAIT, late="drop")
    )
    users = pairs.filter(in_one_window).map(new_user)
    # A person registers once, so all pairs are of one window; they come within its size, and what an event may be late.
    return users.key_by("id", name="user").deduplicate("new-users", within=2 * SIZE + WAIT)


flow = lt.Flow("nexmark-q8")
new_users(read_persons(flow), read_auctions(flow)).write("q8", lt.kafka("q8", lt.json(NewUser), key="id"))

if __name__ == "__main__":
    lt.main(flow)
