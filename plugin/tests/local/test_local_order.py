"""The order in which the interpreter takes records: labels, fronts, offsets and child paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import Flow, Stream, json, kafka, raw
from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.local.run import Delivered, Message, Order, label_log, run_log
from lowtide_tracker.floors import Floor


@dataclass(frozen=True)
class Word:
    key: str
    text: str


WORDS = kafka("words", json(Word))


def word(front: int, offset: int, timestamp: int, text: str = "w", key: str = "k") -> Message:
    return Message(Position(front, offset), timestamp, None, msgspec.json.encode(Word(key, text)))


def two(word: Word) -> Iterator[Word]:
    yield Word(word.key, word.text + "1")
    yield Word(word.key, word.text + "2")


def same(word: Word) -> Word:
    return word


def short(word: Word) -> bool:
    return len(word.text) < 4


def joined(state: str, word: Word) -> tuple[str, Word]:
    return state + word.text, Word(word.key, state + word.text)


def newest(_state: str, word: Word) -> str:
    return word.text


def with_newest(state: str, word: Word, newest: str) -> tuple[str, Word]:
    return state, Word(word.key, f"{word.text}/{newest}")


def run(
    build: Callable[[Stream[Word]], Stream[Word]], log: list[Message], floors: Any = (), slack_ms: int = 2
) -> list[Delivered]:
    """A sink's records after one source."""
    flow = Flow("test")
    build(flow.read("words", WORDS)).write("out", WORDS)
    delivered, dead = run_log(compile_flow(flow, parallelism=1, slack_ms=slack_ms), {"words": log}, floors)
    assert dead == []
    return delivered["out"]


def orders(delivered: list[Delivered]) -> list[Order]:
    return [one.order for one in delivered]


def texts(delivered: list[Delivered]) -> list[str]:
    return [msgspec.json.decode(one.value or b"", type=Word).text for one in delivered]


# -- labels (R1) ---------------------------------------------------------------------------------------------------


def labels(log: list[Message], *floors: Floor, slack_ms: int = 2) -> list[int]:
    found = label_log(log, floors, slack_ms)
    return [found[message.position] for message in log]


def test_a_label_is_the_tick_of_the_timestamp() -> None:
    assert labels([word(0, 5, 1000), word(0, 6, 1001), word(0, 9, 1002)]) == [500, 500, 501]
    assert labels([word(0, 5, 1000), word(0, 6, 1001)], slack_ms=1) == [1000, 1001]
    assert labels([word(0, 5, -1), word(0, 6, -3)]) == [-1, -1]


def test_a_label_is_never_below_the_one_before_in_its_front() -> None:
    log = [word(0, 1, 100), word(0, 2, 60), word(1, 1, 60), word(0, 3, 80), word(0, 4, 120)]
    assert labels(log) == [50, 50, 30, 50, 60]


def test_a_floor_lifts_from_its_offset_on_whether_or_not_a_record_stands_there() -> None:
    log = [word(0, 1, 100), word(0, 4, 102), word(0, 5, 200), word(1, 9, 10)]
    assert labels(log, Floor(0, 2, 70)) == [50, 70, 100, 5]
    assert labels(log, Floor(0, 4, 70), Floor(0, 4, 60), Floor(1, 3, 6)) == [50, 70, 100, 6]
    assert labels(log, Floor(0, 5, 70), Floor(2, 0, 900)) == [50, 51, 100, 5]


def test_a_cap_stands_for_one_timestamp_that_is_not_believed() -> None:
    log = [word(0, 1, 100), word(0, 2, 10**15), word(0, 3, 104)]
    assert labels(log) == [50, 5 * 10**14, 5 * 10**14]
    assert labels(log, Floor(0, 2, 51, cap=True)) == [50, 51, 52]
    assert labels(log, Floor(0, 2, 40, cap=True)) == [50, 50, 52]
    assert labels(log, Floor(0, 2, 51, cap=True), Floor(0, 2, 60)) == [50, 60, 60]
    assert labels(log[2:], Floor(0, 2, 900, cap=True)) == [52]


ticks = st.integers(0, 50)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), ticks), max_size=12),
    st.lists(st.builds(Floor, st.integers(0, 2), st.integers(0, 30), ticks, st.booleans()), max_size=6),
    st.integers(1, 3),
)
def test_labels_are_a_function_of_the_log_and_of_durable_floors(
    steps: list[tuple[int, int, int]], floors: list[Floor], slack_ms: int
) -> None:
    offsets: dict[int, int] = {}
    log = []
    for front, gap, timestamp in steps:
        offsets[front] = offsets.get(front, -1) + 1 + gap
        log.append(word(front, offsets[front], timestamp))
    found = label_log(log, floors, slack_ms)
    assert found == label_log(log[::-1], floors[::-1], slack_ms)
    before: dict[int, int] = {}
    for message in log:  # the rule, word by word
        front, offset = message.position.front, message.position.sequence
        caps = [floor.tick for floor in floors if (floor.front, floor.offset, floor.cap) == (front, offset, True)]
        own = max(caps) if caps else message.timestamp // slack_ms
        lifted = [floor.tick for floor in floors if floor.front == front and floor.offset <= offset and not floor.cap]
        before[front] = max(before.get(front, own), own, *lifted)
        assert found[message.position] == before[front]


# -- the order of messages -----------------------------------------------------------------------------------------


def test_messages_stand_by_tick_then_front_then_offset() -> None:
    log = [word(1, 7, 10, "d"), word(0, 3, 12, "e"), word(1, 6, 9, "a"), word(0, 4, 12, "f"), word(0, 1, 10, "c")]
    delivered = run(lambda words: words.key_by("key"), log)
    assert orders(delivered) == [(4, 1, 6, ()), (5, 0, 1, ()), (5, 1, 7, ()), (6, 0, 3, ()), (6, 0, 4, ())]
    assert texts(delivered) == ["a", "c", "d", "e", "f"]
    assert [one.timestamp for one in delivered] == [8, 10, 10, 12, 12]


def test_a_floor_changes_the_order_of_what_is_delivered() -> None:
    log = [word(0, 0, 10, "a"), word(1, 0, 12, "b"), word(0, 1, 10, "c")]

    def build(words: Stream[Word]) -> Stream[Word]:
        return words.key_by("key").scan("joined", joined, "")

    assert texts(run(build, log)) == ["a", "ac", "acb"]
    assert texts(run(build, log, [Floor(0, 1, 7)])) == ["a", "ab", "abc"]


def test_a_timestamp_that_goes_backwards_changes_nothing_in_its_front() -> None:
    log = [word(0, 0, 20, "a"), word(0, 1, 10, "b"), word(1, 0, 18, "c")]
    delivered = run(lambda words: words.key_by("key").scan("joined", joined, ""), log)
    assert texts(delivered) == ["c", "ca", "cab"]
    assert [one.timestamp for one in delivered] == [18, 20, 20]


def test_sources_are_merged_by_time() -> None:
    flow = Flow("test")
    first, second = flow.read("first", WORDS), flow.read("second", WORDS)
    first.merge(second, name="both").key_by("key").scan("joined", joined, "").write("out", WORDS)
    log = {
        "first": [word(0, 0, 10, "a"), word(0, 1, 20, "c")],
        "second": [word(1, 0, 11, "b"), word(1, 1, 21, "d"), word(2, 0, 12, "x")],
    }
    delivered, _ = run_log(compile_flow(flow, parallelism=1), log)
    assert texts(delivered["out"]) == ["a", "ab", "abx", "abxc", "abxcd"]


def test_sources_of_one_topic_see_each_message_in_the_order_they_were_written() -> None:
    flow = Flow("test")
    second = flow.read("first", WORDS).map(lambda word: Word(word.key, word.text + "1"), name="one", returns=Word)
    both = flow.read("second", WORDS).merge(second, name="both")
    both.key_by("key").scan("joined", joined, "").write("out", WORDS)
    plan = compile_flow(flow, parallelism=1)
    log = [word(0, 0, 10, "a"), word(0, 1, 10, "b")]
    delivered, _ = run_log(plan, {"first": log, "second": log}, [Floor(0, 1, 9)])
    assert texts(delivered["out"]) == ["a1", "a1a", "a1ab1", "a1ab1b"]
    assert orders(delivered["out"]) == [(5, 0, 0, (1,)), (5, 0, 0, (2,)), (9, 0, 1, (1,)), (9, 0, 1, (2,))]
    assert [plan.branch_of(source) for source in plan.sources()] == [1, 2]
    assert all(vertex.depth == 1 for vertex in plan.vertices)


def test_a_position_stands_for_one_message() -> None:
    with pytest.raises(AssertionError, match="two messages are at front 0, offset 1"):
        label_log([word(0, 1, 10), word(0, 1, 12)], (), 2)


# -- child paths (R4) ----------------------------------------------------------------------------------------------


def test_branches_and_children_are_numbered() -> None:
    def build(words: Stream[Word]) -> Stream[Word]:
        split = words.flat_map(two)
        return split.map(same).merge(split.flat_map(two, name="again"), name="merged")

    delivered = run(build, [word(0, 0, 0), word(0, 1, 0)])
    one = [(1, 1), (1, 2, 1), (1, 2, 2), (2, 1), (2, 2, 1), (2, 2, 2)]
    assert orders(delivered) == [(0, 0, offset, path) for offset in (0, 1) for path in one]
    assert texts(delivered)[:6] == ["w1", "w11", "w12", "w2", "w21", "w22"]


def test_a_step_with_one_child_appends_nothing() -> None:
    delivered = run(
        lambda words: words.map(same).key_by("key").scan("joined", joined, "").key_by("text"), [word(0, 0, 0)]
    )
    assert orders(delivered) == [(0, 0, 0, ())]


def test_a_diamond_takes_both_ways_of_a_record_before_the_next() -> None:
    def build(words: Stream[Word]) -> Stream[Word]:
        left = words.map(lambda word: Word(word.key, word.text + "l"), name="left", returns=Word)
        right = words.map(lambda word: Word(word.key, word.text + "r"), name="right", returns=Word)
        return right.merge(left, name="both").key_by("key").scan("joined", joined, "")

    delivered = run(build, [word(0, 0, 10, "a"), word(1, 0, 10, "b")])
    assert orders(delivered) == [(5, 0, 0, (1,)), (5, 0, 0, (2,)), (5, 1, 0, (1,)), (5, 1, 0, (2,))]
    assert texts(delivered)[-1] == "alarblbr"


def test_streams_of_several_levels_are_merged_in_order() -> None:
    def build(words: Stream[Word]) -> Stream[Word]:
        behind = words.key_by("key").scan("joined", joined, "")
        return behind.merge(words, name="both").key_by("key", name="again").scan("all", joined, "")

    assert texts(run(build, [word(0, 0, 10, "a"), word(0, 1, 10, "b")])) == ["a", "aa", "aaab", "aaabb"]


def test_each_pass_through_a_loop_appends_its_mark() -> None:
    plans: list[Plan] = []

    def build(words: Stream[Word]) -> Stream[Word]:
        return words.key_by("key").loop("loop", lambda body: body.flat_map(two), short, limit_turns=4)

    flow = Flow("test")
    build(flow.read("words", WORDS)).write("out", WORDS)
    plans.append(compile_flow(flow, parallelism=1))
    head = next(vertex for vertex in plans[0].vertices if vertex.name == "loop/head")
    delivered = run_log(plans[0], {"words": [word(0, 0, 0, "ab")]})[0]["out"]
    mark = head.loop_mark
    assert orders(delivered) == [(0, 0, 0, (mark, first, mark, second)) for first in (1, 2) for second in (1, 2)]
    assert texts(delivered) == ["ab11", "ab12", "ab21", "ab22"]
    assert len(delivered[0].order.child) == 4 <= plans[0].vertices[-1].depth


def test_a_broadcast_stands_at_its_place_in_the_order() -> None:
    def build(words: Stream[Word]) -> Stream[Word]:
        seen = words.broadcast("newest", newest, "-")
        return words.key_by("key").scan("beside", with_newest, "", broadcast=seen)

    log = [word(0, 0, 10, "a", "x"), word(1, 0, 8, "b", "y"), word(0, 1, 14, "c", "x")]
    assert texts(run(build, log)) == ["b/b", "a/a", "c/c"]


def test_of_two_sources_the_later_one_is_not_seen_beside() -> None:
    flow = Flow("test")
    rules, words = flow.read("rules", WORDS), flow.read("words", WORDS)
    beside = rules.broadcast("newest", newest, "-")
    # Two levels further than the broadcast, whose records are relayed.
    words.key_by("text").key_by("key").scan("beside", with_newest, "", broadcast=beside).write("out", WORDS)
    log = {"words": [word(1, 0, 10, "a"), word(1, 1, 20, "b"), word(1, 2, 30, "c")], "rules": [word(0, 0, 20, "r")]}
    delivered, _ = run_log(compile_flow(flow, parallelism=1), log)
    assert texts(delivered["out"]) == ["a/-", "b/r", "c/r"]


# -- dead letters --------------------------------------------------------------------------------------------------


def test_dead_letters_stand_in_the_order_of_records_too() -> None:
    def odd(word: Word) -> Word:
        if word.text.endswith("2"):
            raise ValueError(word.text)
        return word

    flow = Flow("test", dead_letters=kafka("dead", raw()))
    words = flow.read("words", WORDS)
    split = words.flat_map(two)
    split.flat_map(two, name="deep").map(odd, name="behind").write("a", WORDS)
    split.map(odd).write("b", kafka("b", json(Word)))
    log = [word(1, 0, 10, "y"), word(0, 0, 10, "x"), Message(Position(0, 1), 9, None, b"{")]
    delivered, dead = run_log(compile_flow(flow, parallelism=1), {"words": log})
    assert [(letter.vertex, letter.position, letter.timestamp, letter.error[-3:]) for letter in dead[:4]] == [
        ("behind", Position(0, 0), 10, "x12"),
        ("behind", Position(0, 0), 10, "x22"),
        ("odd", Position(0, 0), 10, " x2"),
        ("words", Position(0, 1), 10, "ted"),
    ]
    assert texts(delivered["a"]) == ["x11", "x21", "y11", "y21"]


# -- all of it -----------------------------------------------------------------------------------------------------


def everything(flow: Flow) -> None:
    words = flow.read("words", WORDS)
    split = words.flat_map(two)
    keyed = split.key_by("key")
    looped = keyed.loop("loop", lambda body: body.flat_map(two, name="more"), short, limit_turns=3)
    pairs = keyed.last(2).map(lambda window: Word(window[0].key, window[-1].text), name="pairs", returns=Word)
    every = looped.merge(pairs, split, words, name="all")
    beside = every.broadcast("newest", newest, "")
    every.key_by("key").scan("beside", with_newest, "", broadcast=beside).write("out", WORDS)
    every.write("plain", kafka("plain", json(Word)))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), ticks, st.sampled_from("abc")), max_size=8),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
)
def test_what_is_delivered_ascends_and_does_not_depend_on_the_order_given(
    steps: list[tuple[int, int, str]], random: Any, slack_ms: int
) -> None:
    flow = Flow("test")
    everything(flow)
    plan = compile_flow(flow, parallelism=2, lanes=3, slack_ms=slack_ms)
    log = [word(front, offset, timestamp, "w", key) for offset, (front, timestamp, key) in enumerate(steps)]
    delivered, dead = run_log(plan, {"words": log})
    shuffled = list(log)
    random.shuffle(shuffled)
    assert run_log(plan, {"words": shuffled}) == (delivered, dead)
    for sink in plan.sinks():
        keys = [one.order for one in delivered[sink.name]]
        assert all(first < second for first, second in pairwise(keys))
        assert all(len(key.child) <= sink.depth for key in keys)
        assert all(one.timestamp == max(1, one.order.tick * slack_ms) for one in delivered[sink.name])
    assert Order(1, 2, 3) < Order(1, 2, 3, (1,)) < Order(1, 2, 3, (1, 1)) < Order(1, 2, 3, (2,)) < Order(1, 2, 4)
