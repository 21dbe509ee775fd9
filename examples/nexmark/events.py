"""The events of Nexmark's auction house: people who register, auctions that they open, bids on these."""

from dataclasses import dataclass
from datetime import datetime

import lowtide as lt

WAIT = lt.seconds(5)
"""Lead of log time over an event: the generator delays some events by up to 3 s."""

LONGEST = lt.minutes(1)
"""No auction is open for longer."""


@dataclass(frozen=True)
class Person:
    id: int
    name: str
    email: str
    card: str
    city: str
    state: str
    date_time: datetime
    extra: str


@dataclass(frozen=True)
class Auction:
    id: int
    item: str
    description: str
    initial: int
    reserve: int
    date_time: datetime
    expires: datetime
    seller: int
    category: int
    extra: str


@dataclass(frozen=True)
class Bid:
    auction: int
    bidder: int
    price: int  # cents
    date_time: datetime
    extra: str


def read_persons(flow: lt.Flow) -> lt.Stream[Person]:
    return flow.read("persons", lt.kafka("persons", lt.json(Person)))


def read_auctions(flow: lt.Flow) -> lt.Stream[Auction]:
    return flow.read("auctions", lt.kafka("auctions", lt.json(Auction)))


def read_bids(flow: lt.Flow) -> lt.Stream[Bid]:
    return flow.read("bids", lt.kafka("bids", lt.json(Bid)))
