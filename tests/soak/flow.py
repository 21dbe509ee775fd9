"""The flow of a soak: a step of each kind whose memory could grow with the log instead of with what is alive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from tests.shop import BIG_PRIME, Shop

import lowtide as lt

SOURCES = {"clicks": 2, "rates": 1}
"""The topics, each with how many partitions it has."""
GAP, WAIT, PAUSE, IDLE = (timedelta(seconds=each) for each in (2, 10, 6.3, 3_600))
PRICED = 10
"""One click in so many is given out with what it costs."""


@dataclass(frozen=True)
class Click:
    user: str
    number: int
    at: Annotated[datetime, lt.Epoch("ms")]


@dataclass(frozen=True)
class Rate:
    number: int
    factor: int


@dataclass(frozen=True)
class Said:
    what: str
    user: str
    number: int
    history: int


@dataclass(frozen=True)
class Priced:
    clicks: int = 0
    history: int = 0


@dataclass(frozen=True)
class Seen:
    """A user who is to be called when no click has come for a while."""

    user: str = ""
    clicks: int = 0
    last: datetime | None = None


@dataclass(frozen=True)
class Visit:
    user: str
    clicks: int
    numbers: int


def newest(_: Rate, rate: Rate) -> Rate:
    return rate


def price(before: Priced, click: Click, rate: Rate) -> tuple[Priced, list[Said]]:
    """`history` is another if two clicks of a user, or a click and a rate, change places."""
    after = Priced(before.clicks + 1, (before.history * 31 + click.number * rate.factor + 1) % BIG_PRIME)
    return after, [Said("priced", click.user, click.number, after.history)] * (click.number % PRICED == 0)


def see(before: Seen, click: Click) -> tuple[Seen, list[Said]]:
    return Seen(click.user, before.clicks + 1, click.at), []


def after_pause(seen: Seen) -> datetime | None:
    return None if seen.last is None else seen.last + PAUSE


def after_idling(seen: Seen) -> datetime | None:
    return None if seen.last is None else seen.last + IDLE


def paused(seen: Seen, _: datetime) -> tuple[Seen, list[Said]]:
    return Seen(), [Said("paused", seen.user, seen.clicks, 0)]


def gone(seen: Seen, _: datetime) -> tuple[Seen, list[Said]]:
    return Seen(), [Said("gone", seen.user, seen.clicks, 0)]


def said(visit: Visit) -> Said:
    return Said("visit", visit.user, visit.clicks, visit.numbers)


def flow(shop: Shop) -> lt.Flow:
    """Prices beside a broadcast, users who pause, users who are gone (none is, in an hour), and visits."""
    clicks, rates = shop.sources
    made = lt.Flow(shop.name)
    rate = made.read("rates", lt.kafka(rates, lt.json(Rate))).broadcast("rate", newest, Rate(0, 1))
    by_user = made.read("clicks", lt.kafka(clicks, lt.json(Click))).key_by("user")
    priced = by_user.flat_scan("priced", price, Priced(), broadcast=rate)
    pauses = by_user.flat_scan("pauses", see, Seen(), timer=after_pause, on_timer=paused)
    idlers = by_user.flat_scan("idlers", see, Seen(), timer=after_idling, on_timer=gone)
    windows = by_user.window("visits", lt.session(GAP), time=lt.event_time("at", wait=WAIT, late="drop"))
    visits = windows.aggregate(Visit, clicks=lt.agg.count(), numbers=lt.agg.sum("number")).map(said)
    priced.merge(pauses, idlers, visits, name="all").write("out", lt.kafka(shop.sink, lt.json(Said), key="user"))
    return made
