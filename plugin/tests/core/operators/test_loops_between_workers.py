"""Loops whose records change their key: order keys over turns, repairs that settle, and what the plan makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from programs import Programs, by_lane

from lowtide import Flow, json, kafka, raw
from lowtide.core.operators.faults.failure import Fault
from lowtide.core.operators.order.order import OrderKey, Position, turns_of, with_next_turn, with_turn
from lowtide.core.operators.order.unmatched import UnmatchedTombstone
from lowtide.core.operators.plain import exchange as exchange_module
from lowtide.core.operators.state.unchanged import changed_only
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.steps.steps import Feedback, Relay
from lowtide.local.run import Message, run_log

UNITS = 8


@dataclass(frozen=True)
class Parcel:
    at: str
    way: str = ""


def route(seen: int, parcel: Parcel) -> tuple[int, Parcel]:
    """The first parcel of "S" goes over a, and a again, to c; each after it over b, and b again, to c."""
    if parcel.at == "S":
        return seen + 1, Parcel("b" if seen else "a", "S")
    if parcel.way.count(parcel.at) < 1:
        return seen + 1, Parcel(parcel.at, parcel.way + parcel.at)
    return seen + 1, Parcel("end" if parcel.at == "c" else "c", parcel.way + parcel.at)


def on_its_way(parcel: Parcel) -> bool:
    return parcel.at != "end"


def plan_of(body: Callable[[Any], Any], *, keyed: bool = False, parallelism: int = 4) -> Plan:
    flow = Flow("parcels", dead_letters=kafka("dead", raw()))
    parcels = flow.read("parcels", kafka("parcels", json(Parcel)))
    entering: Any = parcels.key_by("at") if keyed else parcels
    entering.loop("round", body, on_its_way, limit_turns=9).write("out", kafka("out", json(Parcel), key="way"))
    return compile_flow(flow, units=UNITS, lanes=4, parallelism=parallelism, slack_ms=1)


def starts_with_a_key(inside: Any) -> Any:
    return inside.key_by("at").scan("route", route, 0)


def ends_with_a_key(inside: Any) -> Any:
    return inside.scan("route", route, 0).key_by("way")


def same(parcel: Parcel) -> Parcel:
    return parcel


def key_in_the_midst(inside: Any) -> Any:
    return inside.map(same).key_by("at").scan("route", route, 0)


def run(plan: Plan, seed: int) -> Programs:
    """A parcel of the second partition that stands before those of the first comes somewhen."""
    dice = random.Random(seed)
    programs = Programs(plan, dice.randrange, "optimistic")
    first, second = logs()
    programs.feed("parcels", first)
    for _ in range(dice.randrange(12)):
        programs.step()
    programs.feed("parcels", second)
    programs.finish()
    return programs


def logs() -> tuple[list[Message], list[Message]]:
    value = msgspec.json.encode(Parcel("S"))
    first = [Message(Position(0, offset), 10 + offset, None, value) for offset in range(2)]
    return first, [Message(Position(1, 0), 5, None, value)]


def oracle(plan: Plan) -> Any:
    return by_lane(run_log(plan, {"parcels": [each for log in logs() for each in log]}, [])[0])


def test_versions_that_go_round_on_different_ways_are_distinguished() -> None:
    plan = plan_of(starts_with_a_key)
    for seed in range(60):
        assert run(plan, seed).delivered == oracle(plan), seed


def test_a_trace_without_turns_takes_two_ways_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a and a again, or over b and b again: folded in twice, either is as if it had not been passed."""
    monkeypatch.setattr(exchange_module, "with_turn", lambda trace: trace)
    failed = 0
    for seed in range(60):
        try:
            run(plan_of(starts_with_a_key), seed)
        except UnmatchedTombstone:
            failed += 1
    assert failed


def test_a_turn_changes_every_trace_to_another() -> None:
    traces = [random.Random(seed).getrandbits(64) for seed in range(1000)]
    turned = [with_turn(trace) for trace in traces]
    assert len(set(turned)) == len(set(traces))
    assert all(0 <= trace < 1 << 64 and trace != before for trace, before in zip(turned, traces, strict=True))
    assert all(with_turn(one ^ 5) != with_turn(one) ^ 5 for one in traces)


def test_turns_are_counted_in_place() -> None:
    mark = 0x80000004
    at = OrderKey(7, 1, 2, (3, mark, 1, 9, 9), 4).packed()
    later = with_next_turn(with_next_turn(at, mark), mark)
    assert OrderKey.of(later) == OrderKey(7, 1, 2, (3, mark, 3, 9, 9), 4)
    assert turns_of(later, mark) == 3


def test_what_a_repair_leaves_as_it_was_stays_where_it_is() -> None:
    fault = Fault(plan_of(starts_with_a_key).vertices[0], None, None)  # type: ignore[arg-type]
    x, y = Parcel("x"), Parcel("y")
    taken: list[Any] = [(b"a", 0, x), (b"b", 0, x), (b"c", 0, fault), (b"d", 0, (x, y)), (b"e", 0, (x, y))]
    given: list[Any] = [(b"a", 0, Parcel("x")), (b"b", 0, y), (b"c", 0, x), (b"d", 0, (x, y)), (b"e", 0, (x,))]
    assert changed_only(taken, given, Parcel) == ([taken[n] for n in (1, 2, 4)], [given[n] for n in (1, 2, 4)])


@dataclass(frozen=True)
class Number:
    value: float


def test_what_is_equal_in_python_alone_has_changed() -> None:
    """As JSON -0.0 is not 0.0, and 1 is not 1.0."""
    for one, other in ((0.0, -0.0), (1, 1.0), (True, 1.0)):
        taken, given = [(b"a", 0, Number(one))], [(b"a", 0, Number(other))]
        assert changed_only(taken, given, Number) == (taken, given)


def laid_out(plan: Plan) -> list[tuple[str, int, tuple[str, ...]]]:
    return [
        (each.name, each.level, tuple(plan.vertices[parent].name for parent in each.parents)) for each in plan.vertices
    ]


def test_a_body_that_begins_with_a_key_begins_before_the_head_and_takes_one_level() -> None:
    plan = plan_of(starts_with_a_key)
    assert laid_out(plan)[1:6] == [
        ("round/head/by-at", 1, ("parcels",)),
        ("round/head", 1, ("round/head/by-at",)),
        ("route", 1, ("round/head",)),
        ("round", 1, ("route",)),
        ("round/feedback", 1, ("round",)),
    ]
    assert [way.step for way in plan.feedbacks()] == [Feedback(("at",))]
    segments = segments_of(plan)
    assert segments.cyclic == {1}
    assert segments.of_exchange[5] == segments.of_exchange[1] == 1


def test_all_levels_of_a_cycle_feed_each_other() -> None:
    plan = plan_of(ends_with_a_key, keyed=True)
    assert [each.level for each in plan.vertices if each.name.startswith("round")] == [1, 2, 1]
    assert [way.step for way in plan.feedbacks()] == [Feedback(("at",))]
    segments = segments_of(plan)
    assert segments.cyclic == {1, 2}
    assert segments.inbound[1] == [2]
    assert segments.inbound[2] == [1]
    (letters,) = {segments.letters}
    assert letters is not None
    assert segments.inbound[letters] == [1, 2], "what fails may fail on any of them"


def test_a_head_without_a_key_stands_behind_a_relay_and_records_keep_their_unit() -> None:
    plan = plan_of(key_in_the_midst)
    names = {each.name: each for each in plan.vertices}
    assert isinstance(names["round/head/relay-1-0"].step, Relay)
    assert names["round/head"].level == 1
    assert [way.step for way in plan.feedbacks()] == [Feedback(())]


@pytest.mark.parametrize("body", [starts_with_a_key, key_in_the_midst])
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_all_plans_give_what_the_interpreter_gives(body: Any, parallelism: int) -> None:
    plan = plan_of(body, parallelism=parallelism)
    for seed in range(20):
        assert run(plan, seed).delivered == oracle(plan), seed


def test_steps_before_and_behind_a_loop_are_on_no_cycle() -> None:
    flow = Flow("around")
    keyed = flow.read("parcels", kafka("parcels", json(Parcel))).key_by("at")
    before = keyed.scan("before", route, 0).key_by("way")
    looped = before.loop("round", starts_with_a_key, on_its_way, limit_turns=9)
    looped.key_by("way", name="behind-by").scan("behind", route, 0).write("out", kafka("out", json(Parcel)))
    plan = compile_flow(flow, units=UNITS, lanes=4, parallelism=2, slack_ms=1)
    segments = segments_of(plan)
    trips = {plan.vertices[each].name for each in segments.round_trips}
    assert trips == {"round/head", "route", "round", "round/feedback"}
    assert len(segments.cyclic) == 1


def test_explain_says_that_a_loop_goes_through_a_topic() -> None:
    assert "exchange back to round/head by at, through topic lowtide.parcels.loop.round" in explain(
        plan_of(starts_with_a_key)
    )
    named = replace(plan_of(key_in_the_midst), name="a.b")
    assert "exchange back to round/head, through topic lowtide.a_b.loop-" in explain(named)
