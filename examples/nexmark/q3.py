"""Query 3, local item suggestion: who sells in category 10, of three states.

The published query joins people and auctions without any bound of time, and so does this: whichever of the two comes
first is kept until the other one is there. Its result comes with the later one and is final, as both are only ever
added. As in the published query the state grows with the people and the auctions; `ttl=` would bound it.
"""

from dataclasses import dataclass

import lowtide as lt
from nexmark.events import Auction, Person, read_auctions, read_persons

SQL = """
SELECT person.name, person.city, person.state, auction.id
FROM auction JOIN person ON auction.seller = person.id
WHERE auction.category = 10 AND person.state IN ('OR', 'ID', 'CA')
"""

CATEGORY, STATES = 10, ("OR", "ID", "CA")


@dataclass(frozen=True)
class LocalItem:
    name: str
    city: str
    state: str
    auction: int


@dataclass(frozen=True)
class Known:
    """State of one person: the record, once it is there, and the auctions that wait for it."""

    person: Person | None = None
    waiting: tuple[int, ...] = ()


def is_local(person: Person) -> bool:
    return person.state in STATES


def is_suggested(auction: Auction) -> bool:
    return auction.category == CATEGORY


def suggest(known: Known, event: Person | Auction) -> tuple[Known, list[LocalItem]]:
    match event:
        case Person():
            return Known(event), [item(event, auction) for auction in known.waiting]
        case Auction() if known.person is None:
            return Known(None, (*known.waiting, event.id)), []
        case Auction():
            return known, [item(known.person, event.id)]


def item(person: Person, auction: int) -> LocalItem:
    return LocalItem(person.name, person.city, person.state, auction)


def local_items(persons: lt.Stream[Person], auctions: lt.Stream[Auction]) -> lt.Stream[LocalItem]:
    local = persons.filter(is_local).key_by("id", name="local")
    suggested = auctions.filter(is_suggested).key_by("seller", name="suggested")
    return local.connect(suggested).flat_scan("local-items", suggest, Known())


flow = lt.Flow("nexmark-q3")
local_items(read_persons(flow), read_auctions(flow)).write("q3", lt.kafka("q3", lt.json(LocalItem)))

if __name__ == "__main__":
    lt.main(flow)
