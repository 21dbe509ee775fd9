"""Events by a seed, in the proportions and with the skew of Nexmark's published generator.

The facts are those of Apache Beam's (sdks/java/testing/nexmark, `NexmarkConfiguration` and `sources/generator`):

- of 50 events one is a person, 3 are auctions, 46 are bids, in this order; ids count from 1000, categories from 10;
- half of the bids go to a hot auction, the first of each hundred; three quarters come from a hot bidder, the second of
  each hundred people, and three quarters of the auctions are a hot seller's, the first of each hundred; all others are
  drawn from the last 1000 people or 100 auctions, and from 10 that are still to come;
- an auction is open for as long as 100 auctions take on average, at most for twice that;
- a price is 10 to the power of 0 to 6, uniformly, in units of 100 cents; a reserve is a price above the initial bid;
- one event in 10 comes to the log late, by up to 3 s;
- people, auctions and bids have 200, 500 and 100 bytes on average.
"""

import math
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import lowtide as lt
from nexmark.events import LONGEST, Auction, Bid, Person

T = TypeVar("T")

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EVENTS = PERSONS + AUCTIONS + BIDS
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
HOT_AUCTIONS, HOT_SELLERS, HOT_BIDDERS = 2, 4, 4
"""Of so many, all but one are hot."""
HOT_OF = 100
ACTIVE_PEOPLE, OPEN_AUCTIONS, LEAD = 1_000, 100, 10
DELAYED, DELAY_MS = 0.1, 3_000
BYTES = {Person: 200, Auction: 500, Bid: 100}
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
)  # fmt: skip
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")


@dataclass(frozen=True)
class Log:
    """Events of the three topics, each in the order of its timestamps, which are the events' times of arrival."""

    persons: list[lt.Stamped[Person]]
    auctions: list[lt.Stamped[Auction]]
    bids: list[lt.Stamped[Bid]]

    @property
    def topics(self) -> dict[str, list[lt.Stamped[Person]] | list[lt.Stamped[Auction]] | list[lt.Stamped[Bid]]]:
        return {"persons": self.persons, "auctions": self.auctions, "bids": self.bids}


class Generator:
    """Makes the same events for the same seed, one after another.

    Args:
        seed: Seed of all random choices.
        rate: Events per second, of event time.
        delay_ms: Largest delay of an event on its way to the log.
    """

    def __init__(self, seed: int, rate: float, *, delay_ms: int = DELAY_MS) -> None:
        self._dice = random.Random(seed)
        self._rate, self._delay_ms = rate, delay_ms
        self._number = 0
        self._horizon_ms = round(OPEN_AUCTIONS * EVENTS / AUCTIONS * 1_000 / rate)
        if 2 * self._horizon_ms >= LONGEST / timedelta(milliseconds=1):
            slowest = 2 * OPEN_AUCTIONS * EVENTS / AUCTIONS / LONGEST.total_seconds()
            raise ValueError(
                f"at {rate:g} events a second an auction is open for up to {2 * self._horizon_ms / 1_000:g} s, the "
                f"queries take {LONGEST.total_seconds():g} s at most: take more than {slowest:.0f} a second"
            )

    def log(self, count: int, start: datetime) -> Log:
        """Make a number of further events, the first of which happens at `start`, to the millisecond."""
        log = Log([], [], [])
        start = start.replace(microsecond=start.microsecond // 1_000 * 1_000)
        for place in range(count):
            at = start + timedelta(milliseconds=int(place * 1_000 / self._rate))
            late = self._dice.randint(1, self._delay_ms) if self._delay_ms and self._dice.random() < DELAYED else 0
            came = at + timedelta(milliseconds=late)
            event = self._event(at)
            if isinstance(event, Person):
                log.persons.append(lt.Stamped(event, came))
            elif isinstance(event, Auction):
                log.auctions.append(lt.Stamped(event, came))
            else:
                log.bids.append(lt.Stamped(event, came))
        return Log(in_time(log.persons), in_time(log.auctions), in_time(log.bids))

    def _event(self, at: datetime) -> Person | Auction | Bid:
        block, place = divmod(self._number, EVENTS)
        self._number += 1
        if place < PERSONS:
            return self._person(block, at)
        if place < PERSONS + AUCTIONS:
            return self._auction(block, block * AUCTIONS + place - PERSONS, at)
        return self._bid(block, block * AUCTIONS + AUCTIONS - 1, at)

    def _person(self, newest: int, at: datetime) -> Person:
        dice = self._dice
        name = f"{dice.choice(FIRST_NAMES)} {dice.choice(LAST_NAMES)}"
        card = " ".join(f"{dice.randrange(10_000):04}" for _ in range(4))
        email = f"{self._text(7)}@{self._text(5)}.com"
        city, state = dice.choice(CITIES), dice.choice(STATES)
        extra = self._rest(Person, 8 + sum(map(len, (name, email, card, city, state))))
        return Person(FIRST_ID + newest, name, email, card, city, state, at, extra)

    def _auction(self, newest_person: int, newest: int, at: datetime) -> Auction:
        hot = self._dice.randrange(HOT_SELLERS) > 0
        seller = newest_person // HOT_OF * HOT_OF if hot else self._someone(newest_person)
        category = FIRST_CATEGORY + self._dice.randrange(CATEGORIES)
        initial = self._price()
        expires = at + timedelta(milliseconds=1 + self._dice.randrange(2 * self._horizon_ms))
        item, description = self._text(20), self._text(100)
        reserve = initial + self._price()
        extra = self._rest(Auction, 48 + len(item) + len(description))
        identity, owner = FIRST_ID + newest, FIRST_ID + seller
        return Auction(identity, item, description, initial, reserve, at, expires, owner, category, extra)

    def _bid(self, newest_person: int, newest_auction: int, at: datetime) -> Bid:
        if self._dice.randrange(HOT_AUCTIONS) > 0:
            auction = newest_auction // HOT_OF * HOT_OF
        else:
            oldest = max(newest_auction - OPEN_AUCTIONS, 0)
            auction = self._dice.randrange(oldest, newest_auction + 1 + LEAD)
        hot = self._dice.randrange(HOT_BIDDERS) > 0
        bidder = newest_person // HOT_OF * HOT_OF + 1 if hot else self._someone(newest_person)
        return Bid(FIRST_ID + auction, FIRST_ID + bidder, self._price(), at, self._rest(Bid, 32))

    def _someone(self, newest: int) -> int:
        active = min(newest + 1, ACTIVE_PEOPLE)
        return newest + 1 - active + self._dice.randrange(active + LEAD)

    def _price(self) -> int:
        exponent: float = self._dice.random() * 6
        return round(math.pow(10, exponent) * 100)

    def _text(self, most: int) -> str:
        return "".join(self._dice.choices(string.ascii_lowercase, k=self._dice.randint(3, most)))

    def _rest(self, kind: type, size: int) -> str:
        """Return filler that brings an event to its average size, give or take a fifth."""
        missing = max(BYTES[kind] - size, 0)
        return "x" * self._dice.randint(missing * 4 // 5, missing * 6 // 5)


def in_time(stamped: Sequence[lt.Stamped[T]]) -> list[lt.Stamped[T]]:
    """Return events in order of arrival."""
    return sorted(stamped, key=lambda each: each.at)
