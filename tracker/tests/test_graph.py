import pytest

from lowtide_tracker import Graph, GraphError, UnknownSegment


def test_a_chain_is_in_topological_order_however_it_is_written() -> None:
    graph = Graph({3: [2], 1: [], 2: [1]})
    assert graph.groups == ((1,), (2,), (3,))
    assert graph.inbound == ((), (0,), (1,))
    assert graph.sources == (1,)


def test_segments_on_a_cycle_are_one_group() -> None:
    """R7: two segments that feed each other have one min time; inbound means from outside."""
    graph = Graph({1: [], 2: [1, 4], 3: [2], 4: [3], 5: [4, 1]})
    assert graph.groups == ((1,), (2, 3, 4), (5,))
    assert graph.inbound == ((), (0,), (0, 1))


def test_a_cycle_that_nothing_feeds_is_a_source() -> None:
    graph = Graph({1: [2], 2: [1], 3: [2]})
    assert graph.groups == ((1, 2), (3,))
    assert graph.sources == (1, 2)


def test_a_segment_that_feeds_itself_is_a_group_of_one() -> None:
    graph = Graph({1: [1], 2: [1]})
    assert (graph.groups, graph.inbound) == (((1,), (2,)), ((), (0,)))


def test_a_diamond_keeps_its_two_sides_apart() -> None:
    graph = Graph({4: [2, 3], 3: [1], 2: [1], 1: []})
    assert graph.groups == ((1,), (2,), (3,), (4,))
    assert graph.inbound[3] == (1, 2)


def test_a_long_chain_needs_no_recursion() -> None:
    graph = Graph({k: [k - 1] if k else [] for k in range(2000)})
    assert graph.segments == tuple(range(2000))


@pytest.mark.parametrize(
    ("inbound", "says"),
    [
        ({}, "at least one segment"),
        ({1: [2]}, "fed by segment 2, which is not in the graph"),
        ({70000: []}, "0 to 65535"),
        ({-1: []}, "0 to 65535"),
    ],
)
def test_what_is_no_graph_is_refused(inbound: dict[int, list[int]], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        Graph(inbound)


def test_an_unknown_segment_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownSegment, match="no segment 9, only 1, 2"):
        Graph({1: [], 2: [1]}).group_of(9)
