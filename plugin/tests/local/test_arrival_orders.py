"""Whatever way records take and whenever they arrive, every lane is given what the interpreter gives it, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import Programs, beside, by_lane
from state_flows import FLOWS, Count, Document, above_one, changed_keys, halve, loop, size, source, words

from lowtide import Flow, json, kafka, raw
from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.segments import segments_of
from lowtide.local.run import Message, run_log

texts = st.lists(st.sampled_from(["to", "be", "or", "not"]), max_size=4).map(" ".join)
documents = st.builds(Document, st.sampled_from(["a", "b", "c"]), texts)
fronts = st.lists(st.tuples(st.integers(0, 30), documents), max_size=8)


def messages(front: int, events: list[tuple[int, Document]]) -> list[Message]:
    return [
        Message(Position(front, 2 * place), 1000 + at, None, msgspec.json.encode(document))
        for place, (at, document) in enumerate(events)
    ]


def least(window: tuple[Count, ...]) -> Count:
    return min(window, key=lambda count: count.count)


def is_odd(count: Count) -> bool:
    return count.count % 2 == 1


def branching_loop(flow: Flow) -> None:
    """Two steps with state in one loop, whose branches come together before its tail."""

    def body(counts: Any) -> Any:
        halved = counts.scan("halve", halve, 0)
        return halved.filter(is_odd).merge(halved, counts.last(2).map(least).map(lessened), name="both")

    keyed = source(flow).map(size).key_by("key")
    keyed.loop("halving", body, again=above_one, limit_turns=2).write("out", kafka("out", json(Count)))


def lessened(count: Count) -> Count:
    return Count(count.key, count.count - 3)


def mixed(state: int, count: Count) -> tuple[int, Count]:
    state = (3 * state + count.count) % 7
    if state == 6:
        raise ValueError("six")
    return state, Count(count.key, state)


def refused(*numbers: int) -> Callable[[Count], Count]:
    def refuse(count: Count) -> Count:
        if count.count in numbers:
            raise ValueError(str(count.count))
        return count

    return refuse


def failing_by_turns(flow: Flow) -> None:
    """A late record may let one that has failed at one step fail at another, before or after it."""
    counted = source(flow).map(size).key_by("key").scan("mixed", mixed, 0)
    counted.map(refused(1, 2), name="one").map(refused(3, 4), name="two").write("out", kafka("out", json(Count)))


def twofold(count: Count) -> Count:
    return Count(count.key, 2 * count.count)


def trail(state: int, count: Count) -> tuple[int, Count]:
    state = (3 * state + count.count) % 10**9
    return state, Count(count.key, state)


def one_topic(flow: Flow) -> None:
    """Two sources of one topic: what comes of one message by both meets again, in the order of the sources."""
    first = source(flow).flat_map(words)
    second = flow.read("again", kafka("documents", json(Document))).flat_map(words, name="again-words")
    both = second.map(twofold).merge(first, name="both")
    both.key_by("key").scan("trail", trail, 0).write("out", kafka("out", json(Count)))


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
@pytest.mark.parametrize(
    "build", [*FLOWS, branching_loop, one_topic, failing_by_turns], ids=lambda build: build.__name__
)
@settings(deadline=None, max_examples=30)
@given(st.lists(fronts, min_size=1, max_size=3), st.sampled_from([1, 2, 4]), st.data())
def test_every_lane_is_given_what_the_interpreter_gives(
    build: Callable[[Flow], None], grouping: str, logs: list[Any], parallelism: int, data: st.DataObject
) -> None:
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    build(flow)
    plan = compile_flow(flow, units=8, lanes=4, parallelism=parallelism, slack_ms=2)
    names = [vertex.name for vertex in plan.sources()]
    by_front = {front: (names[front % len(names)], messages(front, events)) for front, events in enumerate(logs)}
    log: dict[str, list[Message]] = {name: [] for name in names}
    for name, listed in by_front.values():
        for each in beside(plan, name):
            log[each] += listed
    expected, dead = run_log(plan, log)

    programs = Programs(plan, lambda n: data.draw(st.integers(0, n - 1)), grouping)
    left = {front: listed for front, (_, listed) in by_front.items() if listed}
    while left:
        front = data.draw(st.sampled_from(sorted(left)))
        count = data.draw(st.integers(1, len(left[front])))
        programs.feed(by_front[front][0], left[front][:count])
        left[front] = left[front][count:]
        if not left[front]:
            del left[front]
        for _ in range(data.draw(st.integers(0, 3))):
            programs.step()
    programs.finish()
    assert programs.delivered == by_lane(expected)
    assert Counter(programs.dead) == Counter(dead)
    assert all(len(workers) == 1 for workers in programs.owners.values())
    on_a_cycle = segments_of(plan).round_trips
    if grouping == "ordered" and not on_a_cycle and build not in (loop, changed_keys, branching_loop):
        assert programs.repairs == 0
