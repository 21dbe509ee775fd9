"""Substreams that a predicate opens: when they begin and end, what is refused, and what comes after them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lowtide as lt
from lowtide.errors import FlowError
from lowtide.flow.plan.check import check_flow
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.plan_pickle import dump_plan, load_plan
from lowtide.flow.types.findings import FlowRefused

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Event:
    user: str
    what: str
    shop: str = ""


@dataclass(frozen=True)
class Visit:
    user: str
    begun: datetime
    ended: datetime
    count: int
    closed_by: str


@dataclass(frozen=True)
class Short:
    count: int


def opens(event: Event) -> bool:
    if event.what == "fail":
        raise ValueError("no event")
    return event.what in ("in", "both")


def closes(event: Event) -> bool:
    return event.what in ("out", "both") if event.what != "odd" else None  # type: ignore[return-value]


def a_flow(returns: Any = Visit, columns: tuple[str, ...] = ("user",), **rest: Any) -> tuple[lt.Flow, Any, Any]:
    flow = lt.Flow("flow", dead_letters=lt.kafka("letters", lt.raw()))
    events = flow.read("events", lt.kafka("events", lt.json(Event)))
    rest = rest or {"closes": closes, "idle": lt.seconds(5)}
    return flow, events, events.key_by(*columns).substream("visit", returns, **{"opens": opens, **rest})


def moment(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def run(*events: tuple[float, str], **rest: Any) -> tuple[list[str], list[tuple[Any, ...]], list[str]]:
    """What begins, what ends as (begun, ended, count, closed_by), and the dead letters."""
    flow, _, visits = a_flow(**rest)
    visits.begun.write("begun", lt.kafka("begun", lt.json(Event)))
    visits.ended.write("ended", lt.kafka("ended", lt.json(Visit)))
    out = flow.run_locally(events=[lt.Stamped(Event(*what.split()), moment(at)) for at, what in events])
    ended = [
        ((each.begun - BEGAN).total_seconds(), (each.ended - BEGAN).total_seconds(), each.count, each.closed_by)
        for each in out["ended"]
    ]
    return [f"{each.user} {each.what}" for each in out["begun"]], ended, [each.error for each in out["dead-letters"]]


def test_it_goes_from_the_record_that_opens_to_the_one_that_closes() -> None:
    log = (0, "a x"), (1, "a in"), (2, "b in"), (3, "a in"), (4, "a out"), (5, "a out"), (6, "b out")
    assert run(*log) == (["a in", "b in"], [(1, 4, 3, "record"), (2, 6, 2, "record")], [])


def test_it_ends_after_idle_time_on_a_quiet_topic_and_before_the_records_of_that_moment() -> None:
    begun, ended, _ = run((0, "a in"), (4.998, "a x"), (9.998, "a in"), (20, "b x"))
    assert begun == ["a in", "a in"]
    assert ended == [(0, 9.998, 2, "idle"), (9.998, 14.998, 1, "idle")]


def test_without_closes_time_alone_ends_it_and_without_idle_a_record_alone() -> None:
    log = (0, "a in"), (1, "a out"), (100, "a out")
    assert run(*log, idle=lt.seconds(5))[1] == [(0, 6, 2, "idle")]
    assert run(*log, closes=closes)[1] == [(0, 1, 2, "record")]
    assert run((0, "a in"), (100, "a x"), closes=closes)[1] == [], "it is still open"


def test_a_record_that_opens_and_closes_is_a_substream_of_its_own() -> None:
    assert run((0, "a both"), (1, "a in"), (2, "a both")) == (
        ["a both", "a in"],
        [(0, 0, 1, "record"), (1, 2, 2, "record")],
        [],
    )


def test_a_record_of_which_a_predicate_fails_changes_nothing() -> None:
    begun, ended, letters = run((0, "a fail"), (1, "a in"), (2, "a odd"), (3, "a fail"), (4, "a out"))
    assert (begun, ended) == (["a in"], [(1, 4, 3, "record")]), "opens is not asked where one is open"
    assert ["no event" in letters[0], "closes returned None, expected bool" in letters[1]] == [True, True]
    _, ended, _ = run((0, "a in"), (4, "a odd"), idle=lt.seconds(5), closes=closes)
    assert ended == [(0, 5, 1, "idle")], "nor does it keep one open"


def test_an_end_has_the_columns_that_its_class_has() -> None:
    flow, _, visits = a_flow(Short, ("shop", "user"), idle=lt.seconds(5))
    visits.ended.write("ended", lt.kafka("ended", lt.json(Short)))
    out = flow.run_locally(events=[Event("a", "in", "s"), Event("a", "x", "s"), Event("a", "in", "t")])
    assert sorted(each.count for each in out["ended"]) == [1, 2]


def test_a_plan_with_one_goes_to_workers_and_is_explained() -> None:
    flow, _, visits = a_flow()
    visits.begun.write("begun", lt.kafka("begun", lt.json(Event)))
    assert check_flow(flow) == [], "its ends need not be taken"
    plan = compile_flow(flow, parallelism=2)
    assert load_plan(dump_plan(plan)).vertices[-1].name == "begun"
    text = explain(plan)
    assert "substream: Event of events/by-user -> Visit, ended after 0:00:05 without a record" in text
    assert "what opens a substream: Event of visit" in text


def test_the_end_of_its_records_is_an_end_of_what_came_of_them() -> None:
    flow, events, visits = a_flow()
    charges = events.key_by("what").scan("charges", lambda n, event: (n + 1, event), 0, returns=Event)
    charges.write("charges", lt.kafka("charges", lt.json(Event)))
    visits.ended.when_done("billed", through=charges, label="user")
    visits.begun.when_done("entered", through=charges, label="user")
    assert check_flow(flow) == []
    names = [vertex.name for vertex in compile_flow(flow, parallelism=2).vertices]
    assert not {"billed/by-user", "entered/by-user"} & set(names), "they are keyed by it already"
    flow, events, visits = a_flow()
    visits.ended.write("ended", lt.kafka("ended", lt.json(Visit)))
    events.when_done("done", through=visits.ended).write("done", lt.kafka("done", lt.json(Event)))
    (finding,) = check_flow(flow)
    assert "substream 'visit' is between 'events' and 'visit'" in str(finding)


def test_nobody_takes_anything() -> None:
    flow, _, _ = a_flow()
    assert "nothing takes these records" in str(check_flow(flow)[0])


def test_a_loop_has_no_substream() -> None:
    flow, events, _ = a_flow()

    def body(inside: Any) -> Any:
        ended = inside.substream("inside", Visit, opens=opens, closes=closes).ended
        return ended.map(lambda visit: Event(visit.user, "x"), name="back", returns=Event)

    looped = events.key_by("user").loop("loop", body, lambda event: False, limit_turns=2)
    looped.write("out", lt.kafka("out", lt.json(Event)))
    assert any("a timer cannot be in the loop" in str(each) for each in check_flow(flow))


@pytest.mark.parametrize(
    ("rest", "match"),
    [
        ({"closes": None}, "takes closes= or idle=, as nothing else ends one"),
        ({"returns": "Visit", "closes": closes}, "takes the dataclass of its ends, found 'Visit'"),
        ({"idle": 5}, "idle="),
        ({"idle": timedelta(0)}, "idle="),
    ],
)
def test_arguments_that_do_not_fit_are_refused(rest: dict[str, Any], match: str) -> None:
    with pytest.raises(FlowError, match=match):
        a_flow(**rest)


@dataclass(frozen=True)
class Paid:
    user: str
    amount: int


@dataclass(frozen=True)
class Counted:
    user: str
    count: str


@dataclass(frozen=True)
class Cut:
    count: int


def of_visit(visit: Visit) -> bool:
    return True


def to_int(event: Event) -> int:
    return 1


def by_count(cut: Cut) -> bool:
    return True


@pytest.mark.parametrize(
    ("returns", "predicates", "match"),
    [
        (Paid, (opens, closes), "nothing fills Paid.amount; the fields of an end are columns of the key, and begun"),
        (Counted, (opens, closes), "Counted.count is str, but what fills it is int"),
        (Visit, (of_visit, closes), "of_visit takes Visit, but Event arrives"),
        (Visit, (opens, of_visit), "of_visit takes Visit, but Event arrives"),
        (Visit, (to_int, closes), "to_int must return bool, its annotation says int"),
        (Visit, (opens, to_int), "to_int must return bool, its annotation says int"),
    ],
)
def test_what_does_not_fit_is_found(returns: Any, predicates: tuple[Callable[..., Any], ...], match: str) -> None:
    flow, _, visits = a_flow(returns, opens=predicates[0], closes=predicates[1])
    visits.ended.write("ended", lt.kafka("ended", lt.json(returns)))
    with pytest.raises(FlowRefused, match=match):
        compile_flow(flow, parallelism=1)


def test_a_key_has_no_column_with_a_name_of_an_end_s() -> None:
    flow = lt.Flow("flow")
    keyed = flow.read("cuts", lt.kafka("cuts", lt.json(Cut))).key_by("count")
    visits = keyed.substream("visit", Cut, opens=by_count, idle=lt.seconds(5))
    visits.ended.write("ended", lt.kafka("ended", lt.json(Cut)))
    (finding,) = check_flow(flow)
    assert "the key has a column 'count', which is a word of substreams" in str(finding)
