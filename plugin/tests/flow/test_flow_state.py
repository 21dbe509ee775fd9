"""What a flow refuses of steps with state, merges, broadcasts and loops, in which words, and where the fault is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from lowtide import Flow, KeyedStream, Stream, json, kafka, minutes, tumbling
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.types.findings import FlowRefused
from lowtide.flow.types.inference import Inference


@dataclass(frozen=True)
class Order:
    user: str
    at: int


@dataclass(frozen=True)
class Rush(Order):
    pass


@dataclass(frozen=True)
class Total:
    user: str
    total: int


@dataclass(frozen=True)
class Seen:
    users: dict[str, int] = field(default_factory=dict)


ORDERS, TOTALS = kafka("orders", json(Order)), kafka("totals", json(Total))


def findings(build: Callable[[Any], Any], source: Any = ORDERS) -> list[str]:
    """The faults of a flow that starts with one source."""
    flow = Flow("test")
    build(flow.read("orders", source))
    return [finding.message for finding in Inference(flow).findings]


def span(orders: tuple[Order, ...]) -> Total:
    return Total(orders[-1].user, orders[-1].at - orders[0].at)


def count(state: int, order: Order) -> tuple[int, Total]:
    return state + 1, Total(order.user, state + 1)


def see(state: Seen, order: Order) -> Seen:
    return Seen({**state.users, order.user: order.at})


def beside(state: int, order: Order, seen: Seen) -> tuple[int, Total]:
    return state + len(seen.users), Total(order.user, state)


def later(order: Order) -> Order:
    return Order(order.user, order.at + 1)


def early(order: Order) -> bool:
    return order.at < 3


def to_total(order: Order) -> Total:
    return Total(order.user, order.at)


def test_a_sound_flow_of_all_steps_has_no_findings() -> None:
    def build(orders: Stream[Order]) -> None:
        seen = orders.broadcast("seen", see, Seen())
        keyed = orders.key_by("user")
        looped = keyed.loop("loop", lambda body: body.map(later), early, limit_turns=3).map(to_total)
        counts = keyed.scan("beside", beside, 0, broadcast=seen)
        keyed.last(2).map(span).merge(counts, looped, name="all").write("out", TOTALS)

    assert findings(build) == []


# -- windows -------------------------------------------------------------------------------------------------------


def bare(_orders: tuple) -> Total:  # type: ignore[type-arg]
    raise NotImplementedError


def sequence(_orders: Sequence[Order]) -> Total:
    raise NotImplementedError


def iterable(_orders: Iterable[Order]) -> Total:
    raise NotImplementedError


def collection(_orders: Collection[Any]) -> Total:
    raise NotImplementedError


def either(_orders: tuple[Order, ...] | None) -> Total:
    raise NotImplementedError


def rows(_orders: list[Order]) -> Total:
    raise NotImplementedError


def pair(_orders: tuple[Order, Order]) -> Total:
    raise NotImplementedError


def single(_orders: tuple[Order]) -> Total:
    raise NotImplementedError


def others(_orders: Sequence[Total]) -> Total:
    raise NotImplementedError


def rushes(_orders: Sequence[Rush]) -> Total:
    raise NotImplementedError


@pytest.mark.parametrize("function", [span, bare, sequence, iterable, collection, either])
def test_windows_are_taken_as_tuple_or_as_anything_a_tuple_is(function: Any) -> None:
    assert findings(lambda orders: orders.key_by("user").last(2).map(function).write("out", TOTALS)) == []


def test_windows_of_a_subclass_are_taken_as_those_of_its_base() -> None:
    rush = kafka("rush", json(Rush))
    assert findings(lambda orders: orders.key_by("user").last(2).map(sequence).write("out", TOTALS), rush) == []


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (rows, "list[Order]"),
        (pair, "tuple[Order, Order]"),
        (single, "tuple[Order]"),
        (others, "Sequence[Total]"),
        (rushes, "Sequence[Rush]"),
        (to_total, "Order"),
    ],
)
def test_windows_are_not_taken_as_anything_else(function: Any, takes: str) -> None:
    message = f"{function.__name__} takes {takes}, but tuple[Order, ...] arrives"
    assert findings(lambda orders: orders.key_by("user").last(2).map(function).write("out", TOTALS)) == [message]


@pytest.mark.parametrize(
    ("step", "build"),
    [
        ("write", lambda windows: windows.write("out", ORDERS)),
        ("key_by", lambda windows: windows.key_by("user").write("out", ORDERS)),
        ("map_batches", lambda windows: windows.map_batches(lambda batch: batch, Order, name="b").write("out", ORDERS)),
        ("merge", lambda windows: windows.merge(windows.map(span), name="m").write("out", TOTALS)),
        ("write", lambda windows: windows.filter(bool, name="long").write("out", ORDERS)),
    ],
)
def test_windows_are_for_functions_only(step: str, build: Any) -> None:
    (finding,) = findings(lambda orders: build(orders.key_by("user").last(2)))
    assert finding.startswith(f"{step} cannot take the windows of ")
    assert finding.endswith("tuple[Order, ...]; map them to records first")


def test_a_broadcast_takes_no_windows() -> None:
    def build(orders: Any) -> None:
        seen = orders.key_by("user").last(2).broadcast("seen", see, Seen())
        orders.key_by("user", name="again").scan("beside", beside, 0, broadcast=seen).write("out", TOTALS)

    (finding,) = findings(build)
    assert finding.startswith("broadcast cannot take the windows of 'orders/by-user/last'")


def test_windows_pass_a_filter() -> None:
    def long(orders: tuple[Order, ...]) -> bool:
        return len(orders) > 1

    assert findings(lambda orders: orders.key_by("user").last(2).filter(long).map(span).write("out", TOTALS)) == []


def test_two_windows_of_one_key_need_names() -> None:
    def build(orders: Any) -> None:
        keyed = orders.key_by("user")
        keyed.last(2).map(span).write("a", TOTALS)
        keyed.last(3).map(span, name="other").write("b", kafka("b", json(Total)))

    (finding,) = findings(build)
    assert finding.startswith("this name is already used at")


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True])
def test_a_window_has_a_whole_number_of_records(number: Any) -> None:
    with pytest.raises(FlowError, match=f"last takes a number of records, an integer of at least 1, found {number!r}"):
        findings(lambda orders: orders.key_by("user").last(number))


# -- scans ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["last", "scan"])
def test_a_step_that_works_per_key_stands_behind_key_by(step: str) -> None:
    with pytest.raises(FlowError, match=f"{step} works per key, but Stream\\('test', 'later'\\) has none") as caught:
        findings(lambda orders: getattr(orders.key_by("user").map(later), step)("name", count, 0))
    assert caught.value.where == f"{__file__}:{sys._getframe().f_lineno - 1}"
    assert "key_by" in caught.value.way_out


def test_a_stream_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="'Stream' object has no attribute 'refold'"):
        findings(lambda orders: orders.refold)
    assert not hasattr(Stream(Flow("test"), 0), "anything")


def no_pair(_state: int, order: Order) -> Order:
    return order


def triple(_state: int, _order: Order) -> tuple[int, Total, Total]:
    raise NotImplementedError


def many(_state: int, _order: Order) -> tuple[Total, ...]:
    raise NotImplementedError


def number(state: int, _order: Order) -> tuple[int, int]:
    return state, 1


def other_state(_state: str, order: Order) -> tuple[int, Order]:
    return 1, order


def of_totals(state: int, total: Total) -> tuple[int, Total]:
    return state, total


def silent(state, order):  # type: ignore[no-untyped-def]
    return state, order


def of_set(state: set[str], _order: Order) -> tuple[set[str], Total]:
    raise NotImplementedError


def of_one(_order: Order) -> tuple[int, Total]:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "initial", "message"),
    [
        (no_pair, 0, "no_pair must return tuple[State, Output], its annotation says Order"),
        (triple, 0, "triple must return tuple[State, Output], its annotation says tuple[int, Total, Total]"),
        (many, 0, "many must return tuple[State, Output], its annotation says tuple[Total, ...]"),
        (number, 0, "number: a record must be a dataclass, found int"),
        (other_state, 0, "other_state takes str as its state, but returns int"),
        (of_totals, 0, "of_totals takes Total, but Order arrives"),
        (count, "0", "count keeps int, but initial is '0', expected int"),
        (count, None, "count keeps int, but initial is None, expected int"),
        (count, 1 << 63, f"count keeps int, but initial is {1 << 63}, expected int that int64 can hold"),
        (silent, 0, "silent does not say what it returns: annotate it -> tuple[State, Output], or add returns=Output"),
        (of_one, 0, "of_one must take two arguments, state and record; it takes (_order: "),
        (of_set, set(), "of_set: its state: no column can hold set[str]; use str, int,"),
    ],
)
def test_a_scan_that_does_not_fit_is_refused(function: Any, initial: Any, message: str) -> None:
    (finding,) = findings(lambda orders: orders.key_by("user").scan("scan", function, initial).write("out", TOTALS))
    assert finding.startswith(message)


def test_a_mistake_in_a_scan_names_its_line() -> None:
    flow = Flow("test")
    keyed = flow.read("orders", ORDERS).key_by("user")
    keyed.scan("scan", of_totals, 0).write("out", TOTALS)  # type: ignore[arg-type]
    with pytest.raises(FlowRefused) as caught:
        compile_flow(flow, parallelism=1)
    (finding,) = caught.value.findings
    line = sys._getframe().f_lineno - 4
    assert str(finding) == f'{__file__}:{line}: "scan": of_totals takes Total, but Order arrives'


def test_initial_is_checked_field_by_field() -> None:
    def build(orders: Any) -> None:
        orders.key_by("user").scan("scan", see_all, Seen({"a": "b"})).write("out", TOTALS)  # type: ignore[dict-item]

    assert findings(build) == ["see_all keeps Seen, but initial.users{} is 'b', expected int"]


def see_all(state: Seen, order: Order) -> tuple[Seen, Total]:
    return see(state, order), to_total(order)


def maybe(state: int | None, order: Order) -> tuple[int | None, Total]:
    return state, to_total(order)


def listed(state: list[int], order: Order) -> tuple[list[int], Total]:
    return state, to_total(order)


def read_only(state: Mapping[str, int], order: Order) -> tuple[dict[str, int], Total]:
    return dict(state), to_total(order)


def unsaid(state: dict[str, int], order: Order):  # type: ignore[no-untyped-def]
    return state, to_total(order)


@pytest.mark.parametrize(
    ("function", "initial", "state"),
    [
        (count, 0, int),
        (see_all, Seen(), Seen),
        (maybe, None, int | None),
        (listed, [], list[int]),
        (read_only, {}, dict[str, int]),
        (unsaid, {}, dict[str, int]),
        (silent, 0, int),
        (lambda state, order: (state, order), Seen(), Seen),
    ],
)
def test_the_types_of_a_scan_stand_in_the_plan(function: Any, initial: Any, state: Any) -> None:
    flow = Flow("test")
    keyed = flow.read("orders", ORDERS).key_by("user")
    keyed.scan("scan", function, initial, returns=Total).write("out", TOTALS)
    step: Any = compile_flow(flow, parallelism=1).vertices[2].step
    assert (step.state, step.initial, step.returns) == (state, initial, Total)


def test_a_bare_dict_says_too_little_of_a_state() -> None:
    (finding,) = findings(lambda orders: orders.key_by("user").scan("scan", silent, {}, returns=Total))[:1]
    assert finding.startswith("silent: its state: no column can hold dict; use")


def test_returns_must_not_contradict_the_annotation() -> None:
    (finding,) = findings(
        lambda orders: orders.key_by("user").scan("scan", count, 0, returns=Order).write("out", TOTALS)
    )
    assert finding == "count returns outputs of Total, but returns= says Order"


def test_a_float_state_starts_as_a_float() -> None:
    def mean(state: float, order: Order) -> tuple[float, Total]:
        return state, to_total(order)

    flow = Flow("test")
    flow.read("orders", ORDERS).key_by("user").scan("mean", mean, 0).write("out", TOTALS)  # type: ignore[arg-type]
    step: Any = compile_flow(flow, parallelism=1).vertices[2].step
    assert type(step.initial) is float


@pytest.mark.parametrize(
    ("step", "build"),
    [
        ("scan", lambda orders: orders.key_by("user").scan(count, 0, 1)),
        ("broadcast", lambda orders: orders.broadcast(see, see, Seen())),
        ("loop", lambda orders: orders.key_by("user").loop(later, later, early, limit_turns=1)),
    ],
)
def test_a_name_that_is_forgotten_is_refused_at_once(step: str, build: Any) -> None:
    with pytest.raises(FlowError, match=f"{step} takes a name first"):
        findings(build)


@pytest.mark.parametrize("name", ["", "a/b", "a b"])
def test_names_that_states_are_found_by_are_names(name: str) -> None:
    def build(orders: Any) -> None:
        seen = orders.broadcast(name, see, Seen())
        orders.key_by("user").scan("scan", beside, 0, broadcast=seen).write("out", TOTALS)

    (finding,) = findings(build)
    assert finding.startswith("not a valid step name")


def test_a_sink_may_have_the_name_of_a_step_but_not_of_a_source() -> None:
    assert findings(lambda orders: orders.key_by("user").scan("out", count, 0).write("out", TOTALS)) == []
    (finding,) = findings(lambda orders: orders.map(later).write("orders", ORDERS))
    assert finding.startswith("this name is already used")
    (finding,) = findings(lambda orders: orders.map(later, name="orders").write("out", ORDERS))
    assert finding.startswith("this name is already used")


# -- broadcasts ----------------------------------------------------------------------------------------------------


def test_a_broadcast_that_nobody_looks_at_is_refused() -> None:
    def build(orders: Any) -> None:
        orders.broadcast("seen", see, Seen())
        orders.write("out", ORDERS)

    assert findings(build) == ["no scan looks at this broadcast; use it with .scan(..., broadcast=...), or remove it"]


def wants_int(state: int, order: Order, _seen: int) -> tuple[int, Total]:
    return state, to_total(order)


def see_number(state: Seen, _order: Order) -> int:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("scan", "fold", "message"),
    [
        (wants_int, see, "wants_int takes int as broadcast, but Seen is broadcast"),
        (count, see, "count must take three arguments, state, record and beside; it takes"),
        (beside, see_number, "see_number takes Seen as its state, but returns int"),
        (beside, later, "later must take two arguments, state and record"),
    ],
)
def test_a_broadcast_that_does_not_fit_is_refused(scan: Any, fold: Any, message: str) -> None:
    def build(orders: Any) -> None:
        seen = orders.broadcast("seen", fold, Seen())
        orders.key_by("user").scan("scan", scan, 0, broadcast=seen).write("out", TOTALS)

    (finding,) = findings(build)
    assert finding.startswith(message)


@pytest.mark.parametrize("wrong", [1, Flow("other").read("orders", ORDERS).broadcast("seen", see, Seen())])
def test_beside_takes_a_broadcast_of_the_same_flow(wrong: Any) -> None:
    with pytest.raises(FlowError, match="broadcast= takes a broadcast of the flow 'test', found"):
        findings(lambda orders: orders.key_by("user").scan("scan", beside, 0, broadcast=wrong))


# -- merges --------------------------------------------------------------------------------------------------------


def test_a_merge_of_other_types_is_refused() -> None:
    (finding,) = findings(lambda orders: orders.map(to_total).merge(orders, name="m").write("out", TOTALS))
    assert finding == "merge takes streams of one type, found Total and Order; map them to one type first"


def test_a_merge_with_itself_is_refused() -> None:
    (finding,) = findings(lambda orders: orders.merge(orders, name="m").write("out", ORDERS))
    assert finding.startswith("a stream is merged with itself")


def test_a_merge_takes_streams_of_its_own_flow() -> None:
    other = Flow("other").read("orders", ORDERS)
    with pytest.raises(FlowError, match="merge takes streams of its own flow 'test', found Stream"):
        findings(lambda orders: orders.merge(other, name="m"))
    with pytest.raises(FlowError, match="merge takes streams, found 1"):
        findings(lambda orders: orders.merge(1, name="m"))
    with pytest.raises(FlowError, match="merge takes one or more other streams"):
        findings(lambda orders: orders.merge(name="m"))


# -- loops ---------------------------------------------------------------------------------------------------------


def looped(body: Any, again: Any = early, **options: Any) -> list[str]:
    return findings(
        lambda orders: (
            orders.key_by("user").loop("loop", body, again, **{"limit_turns": 3, **options}).write("out", ORDERS)
        )
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda body: body.map(to_total), "Order goes into the loop, but Total comes out of its body"),
        (
            lambda body: body.loop("inner", lambda inner: inner.map(later), early, limit_turns=2),
            "a loop cannot be inside another, 'loop'",
        ),
        (lambda body: body.last(2), "loop cannot take the windows of 'loop/head/last', tuple[Order, ...]"),
    ],
)
def test_a_body_that_does_not_fit_is_refused(body: Any, message: str) -> None:
    (finding,) = looped(body)
    assert finding.startswith(message)


def test_a_body_may_change_the_key_and_then_needs_none_before_it() -> None:
    assert looped(lambda body: body.map(later).key_by("user").last(1).map(newest)) == []
    assert findings(lambda orders: unkeyed(orders, lambda body: body.key_by("user").last(1).map(newest))) == []
    (finding,) = findings(lambda orders: unkeyed(orders, lambda body: body.map(later)))
    assert finding == "records in a loop need a key; write key_by before it or in its body"


def unkeyed(orders: Stream[Order], body: Any) -> None:
    orders.loop("loop", body, early, limit_turns=3).write("out", ORDERS)


def newest(orders: tuple[Order, ...]) -> Order:
    return orders[-1]


@pytest.mark.parametrize("step", ["join", "window", "connect", "table"])
def test_what_waits_stands_in_no_loop_that_changes_keys_either(step: str) -> None:
    def body(stream: Any) -> Any:
        keyed = stream.key_by("user")
        other = stream.key_by("user", name="other")
        if step == "join":
            return keyed.join("step", other, lambda one, _: one, returns=Order)
        if step == "window":
            return keyed.window("step", tumbling(minutes(1))).reduce(lambda one, _: one)
        if step == "connect":
            return keyed.connect(other).scan("step", lambda state, order: (state, order), 0, returns=Order)
        return keyed.join_table("step", other.table("rows"), lambda one, _: one, returns=Order)

    found = [each for each in looped(body) if "cannot be in the loop 'loop'" in each]
    assert found


def test_a_body_writes_and_broadcasts_nothing() -> None:
    def body(stream: Any) -> Any:
        stream.write("inside", kafka("inside", json(Order)))
        stream.broadcast("seen", see, Seen())
        return stream.map(later)

    assert [finding.split(",")[0] for finding in looped(body)] == [
        "write cannot be in the loop 'loop'",
        "broadcast cannot be in the loop 'loop'",
        "no scan looks at this broadcast; use it with .scan(...",
    ]


def test_a_body_takes_no_stream_from_outside() -> None:
    def build(orders: Any) -> None:
        seen = orders.broadcast("seen", see, Seen())
        keyed = orders.key_by("user")
        keyed.loop("one", lambda body: body.map(later).merge(keyed, name="m"), early, limit_turns=2).write("a", ORDERS)
        two = keyed.loop("two", lambda body: orders.map(later, name="x"), early, limit_turns=2)
        two.write("b", kafka("b", json(Order)))
        keyed.loop("three", lambda body: body.scan("s", beside, 0, broadcast=seen), early, limit_turns=2)

    found = findings(build)
    assert found[0] == "merge takes streams from inside and outside the loop 'one'; merge them before it"
    assert found[1:3] == [
        "the loop's body must return a stream made from the one it is given",
        "a scan in the loop 'three' cannot look at a broadcast; do that before or after the loop",
    ]


def test_what_is_inside_of_a_loop_cannot_be_taken_outside() -> None:
    inside: list[Stream[Order]] = []

    def body(stream: KeyedStream[Order]) -> Stream[Order]:
        inside.append(stream.map(later))
        return inside[0]

    def build(orders: Any) -> None:
        orders.key_by("user").loop("loop", body, early, limit_turns=2).write("a", ORDERS)
        inside[0].write("b", kafka("b", json(Order)))

    assert findings(build) == ["it takes records from inside the loop 'loop'; take the records that come out of it"]


def test_a_body_returns_a_stream_and_again_a_bool() -> None:
    with pytest.raises(FlowError, match="a loop's body returned None, expected a stream"):
        looped(lambda body: None)
    assert looped(lambda body: body.map(later), to_total) == ["to_total must return bool, its annotation says Total"]
    assert looped(lambda body: body.map(later), span)[0] == "span takes tuple[Order, ...], but Order arrives"


@pytest.mark.parametrize("limit", [0, -1, None])
def test_a_loop_has_a_limit(limit: Any) -> None:
    with pytest.raises(FlowError, match="loop takes limit_turns, an integer of at least 1, found"):
        looped(lambda body: body.map(later), limit_turns=limit)


def test_the_start_of_a_body_is_keyed() -> None:
    def split(total: Total) -> Iterator[Order]:
        yield Order(total.user, total.total)

    assert looped(lambda body: body.scan("inner", count, 0).flat_map(split)) == []
