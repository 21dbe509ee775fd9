"""Shortest ways from a depot: reads "roads" as they are opened, writes to "distances" how far each place is.

A road tells the place at each of its ends about the other. A place that learns a shorter way from the depot offers it,
with the length of the road, to every place it has a road to; and those to theirs, until none finds a shorter one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import lowtide as lt

DEPOT = "depot"
MOST_ROADS = 60
"""Of how many roads a way may consist."""


@dataclass(frozen=True)
class Road:
    one: str
    other: str
    metres: int


@dataclass(frozen=True)
class Offer:
    """Message to a place: of a road, or of a path to it from the depot. A final one gives the path found."""

    place: str
    metres: int
    via: str
    kind: str


@dataclass(frozen=True)
class Place:
    metres: int | None = None
    via: str = ""
    roads: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Distance:
    place: str
    metres: int
    via: str


def both_ways(road: Road) -> Iterator[Offer]:
    yield Offer(road.one, road.metres, road.other, "road")
    yield Offer(road.other, road.metres, road.one, "road")


def consider(place: Place, offer: Offer) -> tuple[Place, list[Offer]]:
    metres = 0 if offer.place == DEPOT else place.metres
    if offer.kind == "road":
        roads = {**place.roads, offer.via: min(offer.metres, place.roads.get(offer.via, offer.metres))}
        offers = [] if metres is None else [Offer(offer.via, metres + offer.metres, offer.place, "way")]
        return Place(metres, place.via, roads), offers
    if metres is not None and offer.metres >= metres:
        return place, []
    offers = [Offer(other, offer.metres + length, offer.place, "way") for other, length in place.roads.items()]
    found = Offer(offer.place, offer.metres, offer.via, "found")
    return Place(offer.metres, offer.via, place.roads), [*offers, found]


def is_open(offer: Offer) -> bool:
    return offer.kind != "found"


def distance(offer: Offer) -> Distance:
    return Distance(offer.place, offer.metres, offer.via)


flow = lt.Flow("shortest-paths", dead_letters=lt.kafka("unreadable", lt.raw()))
(
    flow.read("roads", lt.kafka("roads", lt.json(Road)))
    .flat_map(both_ways)
    .loop(
        "ways",
        lambda offers: offers.key_by("place").flat_scan("places", consider, Place()),
        again=is_open,
        limit_turns=MOST_ROADS,
    )
    .map(distance)
    .write("distances", lt.kafka("distances", lt.json(Distance), key="place"))
)

if __name__ == "__main__":
    lt.main(flow)
