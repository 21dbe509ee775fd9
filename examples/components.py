"""Connected components: reads edges of a graph from "edges", writes to "members" where each node belongs as it changes.

A component is named after its least node. An edge tells each of its ends about the other; a node that learns a smaller
label tells all its neighbours, and they theirs: round and round, from worker to worker, until none learns anything new.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import lowtide as lt

LONGEST_WAY = 100
"""Limit on the edges that a label goes along; beyond it the record is a dead letter."""


@dataclass(frozen=True)
class Edge:
    one: str
    other: str


@dataclass(frozen=True)
class Hint:
    """Message to a node: a label, perhaps from a new neighbour. A final one gives the node's own label."""

    node: str
    label: str
    neighbour: str = ""
    final: bool = False


@dataclass(frozen=True)
class Node:
    label: str = ""
    neighbours: tuple[str, ...] = ()


@dataclass(frozen=True)
class Member:
    node: str
    component: str


def both_ends(edge: Edge) -> Iterator[Hint]:
    yield Hint(edge.one, edge.one, edge.other)
    yield Hint(edge.other, edge.other, edge.one)


def hear(node: Node, hint: Hint) -> tuple[Node, list[Hint]]:
    label = min(node.label or hint.node, hint.label)
    is_new = hint.neighbour not in ("", hint.node, *node.neighbours)
    neighbours = (*node.neighbours, hint.neighbour) if is_new else node.neighbours
    if label != node.label:
        hints = [Hint(each, label) for each in neighbours]
        return Node(label, neighbours), [*hints, Hint(hint.node, label, final=True)]
    return Node(label, neighbours), [Hint(hint.neighbour, label)] if is_new else []


def is_on_its_way(hint: Hint) -> bool:
    return not hint.final


def member(hint: Hint) -> Member:
    return Member(hint.node, hint.label)


flow = lt.Flow("components", dead_letters=lt.kafka("unreadable", lt.raw()))
(
    flow.read("edges", lt.kafka("edges", lt.json(Edge)))
    .flat_map(both_ends)
    .loop(
        "spread",
        lambda hints: hints.key_by("node").flat_scan("nodes", hear, Node()),
        again=is_on_its_way,
        limit_turns=LONGEST_WAY,
    )
    .map(member)
    .write("members", lt.kafka("members", lt.json(Member), key="node"))
)

if __name__ == "__main__":
    lt.main(flow)
