"""The flow here and now, against Dijkstra's algorithm."""

import heapq
import random

from shortest_paths import DEPOT, Distance, Road, flow


def distances_of(roads: list[Road]) -> dict[str, int]:
    """By place that can be reached how far it is from the depot."""
    found: dict[str, int] = {}
    queue = [(0, DEPOT)]
    while queue:
        metres, place = heapq.heappop(queue)
        if place in found:
            continue
        found[place] = metres
        for road in roads:
            for here, there in ((road.one, road.other), (road.other, road.one)):
                if here == place:
                    heapq.heappush(queue, (metres + road.metres, there))
    del found[DEPOT]
    return found


def test_a_road_that_is_opened_later_makes_places_nearer() -> None:
    roads = [Road("depot", "a", 900), Road("a", "b", 100), Road("depot", "b", 300)]
    assert flow.run_locally(roads=roads)["distances"] == [
        *(Distance("a", 900, "depot"), Distance("b", 1_000, "a")),
        *(Distance("b", 300, "depot"), Distance("a", 400, "b")),
    ]


def test_distances_are_those_that_dijkstra_finds() -> None:
    for seed in range(40):
        dice = random.Random(seed)
        places = [DEPOT, *(f"p{number}" for number in range(dice.randint(1, 15)))]
        roads = [
            Road(dice.choice(places), dice.choice(places), dice.randint(1, 500)) for _ in range(dice.randint(1, 40))
        ]
        delivered = flow.run_locally(roads=roads)
        assert {each.place: each.metres for each in delivered["distances"]} == distances_of(roads), seed
        assert delivered["dead-letters"] == []
