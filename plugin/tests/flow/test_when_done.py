"""The ends of substreams: where records come out again, what may not stand in between, and what is kept of labels."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pytest

import lowtide as lt
from lowtide.errors import FlowError
from lowtide.flow.plan.check import check_flow as check
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.steps.steps import Through
from lowtide.status.moment import JobShape


@dataclass(frozen=True)
class Document:
    name: str
    text: str
    score: float = 0.0


@dataclass(frozen=True)
class Word:
    word: str
    document: str
    count: int = 0


def words(document: Document) -> Iterator[Word]:
    for word in document.text.split():
        yield Word(word, document.name)


def counted(count: int, word: Word) -> tuple[int, Word]:
    return count + 1, replace(word, count=count + 1)


def named(document: Document) -> Word:
    return Word("done", document.name)


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-01T{clock}+00:00")


def started(name: str = "flow") -> tuple[lt.Flow, Any, Any]:
    flow = lt.Flow(name)
    documents = flow.read("documents", lt.kafka("documents", lt.json(Document)))
    index = documents.flat_map(words).key_by("word").scan("index", counted, 0)
    index.write("index", lt.kafka("index", lt.json(Word)))
    return flow, documents, index


LOG = [
    lt.Stamped(Document("a", "x y"), at("10:00")),
    lt.Stamped(Document("b", "y"), at("10:00")),
    lt.Stamped(Document("c", "x"), at("10:00:00.002")),
]


def test_each_record_comes_again_behind_all_of_its_tick_and_before_all_of_the_next() -> None:
    flow, documents, index = started()
    done = documents.when_done("done", through=index).map(named)
    done.merge(index, name="both").write("both", lt.kafka("both", lt.json(Word)))
    found = flow.run_locally(documents=LOG)["both"]
    assert [(each.word, each.document) for each in found] == [
        ("x", "a"), ("y", "a"), ("y", "b"), ("done", "a"), ("done", "b"), ("x", "c"), ("done", "c"),
    ]  # fmt: skip


def test_it_waits_for_the_segments_that_through_stands_in() -> None:
    flow, documents, index = started()
    far = index.key_by("document").scan("by-document", counted, 0)
    far.write("far", lt.kafka("far", lt.json(Word)))
    documents.when_done("done", through=far).write("out", lt.kafka("done", lt.json(Document)))
    documents.when_done("labelled", through=far, label="name").write("l", lt.kafka("l", lt.json(Document)))
    plan = compile_flow(flow, parallelism=2)
    segments, by_name = segments_of(plan), {vertex.name: vertex for vertex in plan.vertices}
    assert by_name["done"].level == by_name["labelled"].level == by_name["by-document"].level == 2
    for step in ("done", "labelled"):
        assert set(segments.waits[by_name["by-document"].id]) < set(segments.waits[by_name[step].id])
    assert plan.key_of(by_name["labelled"]) == ("name",)
    assert plan.key_of(by_name["done"]) == ()
    throughs = [vertex.id for vertex in plan.vertices if isinstance(vertex.step, Through)]
    assert by_name["done"].level == 2
    assert not {each.id for vertex in plan.vertices for each in plan.children(vertex.id)} & set(throughs)


def test_a_through_that_is_less_far_than_the_stream_is_waited_for_too() -> None:
    flow, _, index = started()
    back = index.map(lambda word: Document(word.document, word.word), name="back", returns=Document)
    again = back.key_by("text").scan("again", lambda n, d: (n + 1, d), 0, returns=Document)
    again.when_done("done", through=index).write("done", lt.kafka("done", lt.json(Document)))
    found = flow.run_locally(documents=LOG)
    assert [each.name for each in found["done"]] == ["a", "a", "b", "c"] or len(found["done"]) == 4


def test_a_label_may_be_asked_for_though_nobody_takes_the_records() -> None:
    flow, documents, index = started()
    documents.when_done("done", through=index, label="name")
    assert check(flow) == []
    other, documents, index = started()
    documents.when_done("done", through=index)
    assert "nothing takes these records" in str(check(other)[0])


def sessions(index: Any) -> Any:
    return index.key_by("word").window("window", lt.session(lt.hours(1))).apply(lambda _, each: each, returns=Word)


def by_event_time(windows: Any) -> Callable[[Any], Any]:
    def between(index: Any) -> Any:
        dated = index.map(lambda word: Dated(word.word, at("10:00")), name="dated", returns=Dated)
        clock = lt.event_time("when", wait=lt.seconds(1), late="drop")
        windowed = dated.key_by("word").window("window", windows, time=clock)
        return windowed.apply(lambda _, each: [Word(one.word, "") for one in each], returns=Word)

    return between


@dataclass(frozen=True)
class Dated:
    word: str
    when: datetime


def joined_by_time(index: Any) -> Any:
    dated = index.map(lambda word: Dated(word.word, at("10:00")), name="dated", returns=Dated)
    left, right = (dated.key_by("word", name=name) for name in ("left", "right"))
    clock = lt.event_time("when", wait=lt.seconds(1), late="drop")
    return left.join("join", right, lambda one, _: Word(one.word, ""), after=lt.seconds(1), time=clock, returns=Word)


def timed(index: Any) -> Any:
    keyed = index.key_by("word", name="timed-by")
    return keyed.flat_scan(
        "timer", lambda n, w: (n, [w]), 0, timer=lambda _: None, on_timer=lambda n, _: (n, []), returns=Word
    )


@pytest.mark.parametrize(
    ("between", "word"),
    [
        (sessions, "window"),
        (by_event_time(lt.tumbling(lt.hours(1))), "window"),
        (joined_by_time, "join"),
        (timed, "flat_scan"),
    ],
)
def test_what_hangs_on_records_is_refused_in_between(between: Callable[[Any], Any], word: str) -> None:
    flow, documents, index = started()
    moved = between(index)
    moved.write("moved", lt.kafka("moved", lt.json(Word)))
    documents.when_done("done", through=moved).write("done", lt.kafka("done", lt.json(Document)))
    found = [str(each) for each in check(flow)]
    assert len(found) == 1
    assert f"{word} " in found[0]
    assert "is between 'documents' and" in found[0]
    flow, documents, index = started()
    moved = between(index)
    behind = moved.map(named_word).filter(bool, name="some")
    behind.write("behind", lt.kafka("behind", lt.json(Word)))
    moved.when_done("done", through=behind).write("done", lt.kafka("done", lt.json(Word)))
    assert check(flow) == [], "behind it"


def tumbling(index: Any) -> Any:
    return index.key_by("word").window("window", lt.tumbling(lt.hours(1))).apply(lambda _, each: each, returns=Word)


def updates(index: Any) -> Any:
    windows = index.key_by("word").window("window", lt.tumbling(lt.hours(1)), emit="update")
    return windows.apply(lambda _, each: each, returns=Word)


def two_windows(index: Any) -> Any:
    inner = tumbling(index).key_by("document", name="again")
    return inner.window("outer", lt.sliding(lt.hours(3), lt.hours(2))).apply(lambda _, each: each, returns=Word)


def days(index: Any) -> Any:
    window = index.key_by("word", name="by-days").window("days", lt.calendar("day", "Europe/Berlin"))
    return window.apply(lambda _, each: each, returns=Word)


def joined(how: str, **bounds: Any) -> Callable[[Any], Any]:
    def between(index: Any) -> Any:
        left, right = index.key_by("word", name="left"), index.key_by("word", name="right").filter(bool, name="all")
        right = right.key_by("word", name="of-all")
        return left.join("join", right, lambda one, other: one or other, how=how, **bounds, returns=Word)

    return between


def another(index: Any) -> Any:
    hourly = tumbling(index)
    return index.merge(hourly, index.when_done("inner", through=hourly), name="with-inner")


def either_way(index: Any) -> Any:
    return index.merge(tumbling(index), days(index), name="ways")


BETWEEN: list[tuple[Callable[[Any], Any], str]] = [
    (tumbling, "11:00:00.002"),
    (updates, "10:05:00.002"),
    (two_windows, "13:00:00.002"),
    (days, "23:00:00.002"),
    (joined("inner", after=lt.minutes(7)), "10:12:00.002"),
    (joined("left", after=lt.minutes(7)), "10:12:00.004"),
    (joined("left", before=lt.minutes(7)), "10:12:00.002"),
    (joined("right", before=lt.minutes(7)), "10:12:00.004"),
    (joined("outer", before=lt.minutes(3), after=lt.minutes(2)), "10:08:00.004"),
    (another, "11:00:00.004"),
]


IDS = [f"{number}-{each.__name__}" for number, (each, _) in enumerate(BETWEEN)]


@pytest.mark.parametrize(("between", "done"), BETWEEN, ids=IDS)
def test_an_end_comes_a_tick_after_the_last_that_can_come(between: Callable[[Any], Any], done: str) -> None:
    """Whether it is there yet is seen by where time stops, and where it stands by what it meets."""
    end = at(done)

    def run(until: datetime) -> list[str]:
        flow, documents, index = started()
        moved = between(index)
        ended = documents.when_done("done", through=moved, label="name").map(named)
        ended.merge(moved, name="both").write("both", lt.kafka("both", lt.json(Word)))
        found = flow.run_locally(documents=[lt.Stamped(Document("a", "x"), at("10:05"))], until=until)["both"]
        return [each.word for each in found]

    assert "done" not in run(end - lt.millis(2))
    assert run(end)[-1] == "done"
    assert run(end + lt.days(3)) == run(end), "nothing comes after it"


def test_late_records_keep_their_places() -> None:
    flow, documents, _ = started()
    dated = documents.map(lambda each: Dated(each.name, at("10:00")), name="dated", returns=Dated)
    clock = lt.event_time("when", wait=lt.seconds(1))
    windows = dated.key_by("word").window("window", lt.tumbling(lt.hours(1)), time=clock)
    windows.apply(lambda _, each: each, returns=Dated).write("windows", lt.kafka("windows", lt.json(Dated)))
    windows.late.write("late", lt.kafka("late", lt.json(Dated)))
    documents.when_done("done", through=windows.late).write("done", lt.kafka("done", lt.json(Document)))
    assert check(flow) == []


def test_days_of_two_zones_are_refused() -> None:
    flow, documents, index = started()
    other = index.key_by("word", name="more").window("other", lt.calendar("day", "Asia/Tokyo"))
    both = days(index).merge(other.apply(lambda _, each: each, returns=Word), name="zones")
    both.write("days", lt.kafka("days", lt.json(Word)))
    documents.when_done("done", through=both, label="name")
    (finding,) = check(flow)
    assert "days of several time zones are between" in str(finding)


def test_what_is_between_is_told_in_the_plan_and_in_what_is_saved() -> None:
    flow, documents, index = started()
    ways = either_way(index)
    ways.write("ways", lt.kafka("ways", lt.json(Word)))
    documents.when_done("done", through=ways, label="name")
    (vertex,) = [each for each in compile_flow(flow, parallelism=1).vertices if each.name == "done"]
    until = "2 ms after (tumbling(1 h) | calendar(day, Europe/Berlin))"
    assert vertex.step.does == f"when done, labelled by name, {until}"
    saved = vertex.step.saved([Document])
    assert saved is not None
    assert (saved.setting, saved.tz) == (f"{until} by log time, waiting 0 s", "Europe/Berlin")


def named_word(word: Word) -> Word:
    return word


def test_a_stream_that_has_nothing_of_the_records_is_refused() -> None:
    flow, documents, _ = started()
    others = flow.read("others", lt.kafka("others", lt.json(Document)))
    others.write("copies", lt.kafka("copies", lt.json(Document)))
    documents.when_done("done", through=others).write("done", lt.kafka("done", lt.json(Document)))
    (finding,) = check(flow)
    assert "'others' has no records that come from 'documents' or its sources" in str(finding)


def test_the_order_of_the_stream_waits_for_no_other_and_gives_the_same() -> None:
    found = []
    for before_next in (True, False):
        flow, documents, index = started()
        rest: dict[str, Any] = {"through": index} if before_next else {"order": "stream"}
        done = documents.when_done("done", label=("name", "text"), **rest).map(named)
        done.merge(index, name="both").write("both", lt.kafka("both", lt.json(Word)))
        found.append(flow.run_locally(documents=LOG))
        plan = compile_flow(flow, parallelism=2)
        (vertex,) = [each for each in plan.vertices if each.name == "done"]
        assert any(isinstance(each.step, Through) for each in plan.vertices) == before_next
        assert len(vertex.parents) == 1 + before_next
        assert segments_of(plan).waits[vertex.id]
    assert found[0] == found[1]


def test_an_order_has_a_stream_to_wait_for_or_none() -> None:
    _, documents, index = started()
    for rest in ({}, {"through": index, "order": "stream"}):
        with pytest.raises(FlowError, match="through= or order='stream'"):
            documents.when_done("done", **rest)
    with pytest.raises(FlowError, match="order='before_next' or 'stream', found 'none'"):
        documents.when_done("done", order="none", through=index)


def test_the_first_record_of_a_label_is_given_and_subscribers_may_wait_for_it() -> None:
    flow, documents, _ = started()
    begun = documents.when_begun("seen", label=("name", "text"), keep=lt.minutes(5))
    begun.write("seen", lt.kafka("seen", lt.json(Document)))
    again = [*LOG, lt.Stamped(Document("a", "x y"), at("10:04")), lt.Stamped(Document("b", "y"), at("10:06"))]
    assert [each.name for each in flow.run_locally(documents=again)["seen"]] == ["a", "b", "c", "b"]
    plan = compile_flow(flow, parallelism=2)
    by_name = {vertex.name: vertex for vertex in plan.vertices}
    assert by_name["seen"].level == by_name["seen/begun"].level == 1, "records are sent once"
    assert plan.key_of(by_name["seen/begun"]) == ("name", "text")
    shape = JobShape.of(plan, incarnation=1, started_ms=0)
    assert shape.labels == {"seen/begun": {"name": "str", "text": "str"}}
    assert lt.begun("seen", {"name": "a", "text": "y"}).text.startswith("done:seen/begun:")


def test_a_label_may_have_several_columns() -> None:
    flow, documents, index = started()
    documents.when_done("done", through=index, label=("name", "text"))
    documents.key_by("text", "name").when_done("keyed", through=index, label=["text", "name"])
    plan = compile_flow(flow, parallelism=2)
    by_name = {vertex.name: vertex for vertex in plan.vertices}
    for step, columns in {"done": ("name", "text"), "keyed": ("text", "name")}.items():
        assert plan.key_of(by_name[step]) == plan.key_of(by_name[f"{step}/ended"]) == columns
    assert "done/by-name-text" in by_name
    assert "keyed/by-text-name" not in by_name, "it is keyed by them already"
    assert by_name["done"].step.does == "when done, labelled by name, text"


@pytest.mark.parametrize(
    ("label", "match"),
    [
        ("nome", "has no column 'nome'; it has name, text"),
        (("name", "nome"), "has no column 'nome'; it has name, text"),
        ("score", "cannot be a label"),
        (("name", "score"), "label='score' is float, which cannot be a label"),
    ],
)
def test_a_label_is_a_column_that_can_be_a_key(label: Any, match: str) -> None:
    flow, documents, index = started()
    documents.when_done("done", through=index, label=label).write("done", lt.kafka("done", lt.json(Document)))
    (finding,) = check(flow)
    assert match in str(finding)


def test_streams_of_other_flows_and_no_streams_are_refused() -> None:
    _, documents, _ = started()
    _, _, other = started("other")
    with pytest.raises(FlowError, match="of its own flow"):
        documents.when_done("done", through=other)
    with pytest.raises(FlowError, match="takes streams, found 'index'"):
        documents.when_done("done", through="index")
    for label in (7, (), ("name", 7), ("name", "name"), {"name"}):
        with pytest.raises(FlowError, match="name of a column"):
            documents.when_done("done", through=documents, label=label)


def test_a_loop_has_no_ends_inside() -> None:
    flow, documents, _ = started()

    def body(inside: Any) -> Any:
        return inside.when_done("inside", through=inside)

    keyed = documents.key_by("name")
    keyed.loop("loop", body, lambda document: False, limit_turns=2).write("out", lt.kafka("out", lt.json(Document)))
    assert any("when_done cannot be in the loop" in str(each) for each in check(flow))
