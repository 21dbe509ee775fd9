"""The flow here and now, against a union of sets."""

import random

from components import Edge, Member, flow


def components_of(edges: list[Edge]) -> dict[str, str]:
    """By node the least node of its component."""
    sets: dict[str, set[str]] = {}
    for edge in edges:
        joined = sets.get(edge.one, {edge.one}) | sets.get(edge.other, {edge.other})
        sets.update(dict.fromkeys(joined, joined))
    return {node: min(joined) for node, joined in sets.items()}


def test_two_components_become_one() -> None:
    edges = [Edge("a", "b"), Edge("c", "d"), Edge("b", "d")]
    members = flow.run_locally(edges=edges)["members"]
    assert members == [
        *(Member("a", "a"), Member("b", "a")),
        *(Member("c", "c"), Member("d", "c")),
        *(Member("d", "a"), Member("c", "a")),
    ]


def test_nodes_are_in_the_components_that_a_union_of_sets_finds() -> None:
    for seed in range(40):
        dice = random.Random(seed)
        nodes = [f"n{number:02}" for number in range(dice.randint(2, 40))]
        edges = [Edge(dice.choice(nodes), dice.choice(nodes)) for _ in range(dice.randint(1, 60))]
        delivered = flow.run_locally(edges=edges)
        assert {each.node: each.component for each in delivered["members"]} == components_of(edges), seed
        assert delivered["dead-letters"] == []


def test_a_chain_that_is_too_long_is_a_dead_letter() -> None:
    chain = [Edge(f"n{number:03}", f"n{number + 1:03}") for number in range(120)]
    delivered = flow.run_locally(edges=[*chain, Edge("a", "n000")])
    assert [letter.error for letter in delivered["dead-letters"]] == [
        "needs another turn after 100 turns, the loop's limit_turns"
    ] * 2, "to the neighbours on both sides"
