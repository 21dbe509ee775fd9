"""Joins here and now: the delicate cases."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import lowtide as lt
from lowtide.core.operators.order.order import Position
from lowtide.errors import UserCodeFailed
from lowtide.flow.plan.compiler import compile_flow
from lowtide.local.lateness import lateness_of
from lowtide.local.run import Message

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def t(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Event:
    key: str
    number: int


@dataclass
class Row:
    id: str
    value: int
    gone: bool = False


@dataclass(frozen=True)
class Pair:
    number: int
    value: int | None


def stamped(*records: tuple[float, Any]) -> list[lt.Stamped[Any]]:
    return [lt.Stamped(record, t(seconds)) for seconds, record in records]


def pair(event: Event, row: Row | None) -> Pair:
    return Pair(event.number, None if row is None else row.value)


def spoiled(event: Event, row: Row | None) -> Pair:
    if row is not None:
        row.value += 1
    return pair(event, row)


def run(how: Any = "left", function: Any = pair, ttl: Any = None, **inputs: Any) -> list[Any]:
    flow = lt.Flow("joins", dead_letters=lt.kafka("dead", lt.raw()))
    events = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    rows = flow.read("rows", lt.kafka("rows", lt.json(Row))).key_by("id")
    table = rows.table("rows", deleted="gone", ttl=ttl)
    events.join_table("pairs", table, function, how=how).write("pairs", lt.kafka("pairs", lt.json(Pair)))
    out = flow.run_locally(inputs)
    assert out["dead-letters"] == []
    return out["pairs"]


ROWS = stamped((1, Row("a", 1)), (3, Row("a", 2)), (5, Row("a", 0, gone=True)))


def test_each_record_sees_the_row_as_of_its_place() -> None:
    events = stamped(*((second, Event("a", second)) for second in (0, 2, 4, 6)))
    assert run(events=events, rows=ROWS) == [Pair(0, None), Pair(2, 1), Pair(4, 2), Pair(6, None)]
    assert run("inner", events=events, rows=ROWS) == [Pair(2, 1), Pair(4, 2)]


def test_a_row_exactly_ttl_old_is_gone() -> None:
    events = stamped(*((second, Event("a", number)) for number, second in enumerate([3.998, 4, 9.998, 10])))
    rows = stamped((2, Row("a", 1)), (8, Row("a", 2)))
    pairs = run(ttl=lt.seconds(2), events=events, rows=rows)
    assert pairs == [Pair(0, 1), Pair(1, None), Pair(2, 2), Pair(3, None)]


def test_a_row_is_not_to_be_changed_in_place() -> None:
    assert run(function=spoiled, events=[Event("a", 1)]) == [Pair(1, None)]  # No row: nothing to change.
    with pytest.raises(UserCodeFailed, match="changed its record in place"):
        run(function=spoiled, events=stamped((2, Event("a", 1))), rows=ROWS)


@dataclass(frozen=True)
class Order:
    id: str
    at: datetime
    came: datetime


@dataclass(frozen=True)
class Both:
    left: datetime | None
    right: datetime | None


def both(left: Order | None, right: Order | None) -> Both:
    return Both(None if left is None else left.at, None if right is None else right.at)


def order(at: float, came: float | None = None, key: str = "a") -> Order:
    return Order(key, t(at), t(at if came is None else came))


def joined(lefts: list[Order], rights: list[Order] | None, until: Any = None, **rest: Any) -> dict[str, list[Any]]:
    """Pairs as (left second, right second); without a right list, the left stream with itself."""
    flow = lt.Flow("joins")
    left: Any = flow.read("lefts", lt.kafka("lefts", lt.json(Order))).key_by("id")
    right = left
    if rights is not None:
        right = flow.read("rights", lt.kafka("rights", lt.json(Order))).key_by("id")
    pairs = left.join("pairs", right, both, **rest)
    pairs.write("pairs", lt.kafka("pairs", lt.json(Both)))
    if "time" in rest:
        pairs.late.write("late", lt.kafka("late", lt.json(Order)))
        pairs.late_other.write("late-other", lt.kafka("late-other", lt.json(Order)))
    inputs = {"lefts": lt.stamped(lefts, by="came")}
    inputs |= {} if rights is None else {"rights": lt.stamped(rights, by="came")}
    out = flow.run_locally(inputs, until=until)
    return {name: [seconds(each) for each in found] for name, found in out.items()}


def seconds(each: Any) -> Any:
    if isinstance(each, Order):
        return (each.at - BEGAN).total_seconds()
    return tuple(None if at is None else (at - BEGAN).total_seconds() for at in (each.left, each.right))


def test_the_lateness_of_both_streams_is_log_time_less_their_own() -> None:
    flow = lt.Flow("joins")
    lefts: Any = flow.read("lefts", lt.kafka("lefts", lt.json(Order))).key_by("id")
    rights = flow.read("rights", lt.kafka("rights", lt.json(Order))).key_by("id")
    at = lt.event_time("at", wait=lt.seconds(1), late="drop")
    came = lt.event_time("came", wait=lt.seconds(5), late="drop")
    pairs = lefts.join("pairs", rights, both, time=(at, came), after=lt.seconds(1))
    pairs.write("pairs", lt.kafka("pairs", lt.json(Both)))
    log = {
        name: [
            Message(
                Position(front, 9 - came), round(t(9).timestamp() * 1000), None, msgspec.json.encode(order(6, came))
            )
            for came in (9, 2)
        ]
        for front, name in enumerate(("lefts", "rights"))
    }
    found = lateness_of(compile_flow(flow, parallelism=1), log)
    assert [(each.step, each.time, each.wait_ms, each.behind_ms[-1], each.late) for each in found] == [
        ("pairs/left", "at", 1_000, 3_000, 2),
        ("pairs/right", "came", 5_000, 7_000, 1),
    ]


EVENT_TIME: Any = {"time": lt.event_time("at", wait=lt.seconds(1))}


def looking_ahead(seconds: float) -> Any:
    return lt.event_time("at", wait=lt.seconds(1), ahead=lt.seconds(seconds))


def test_both_bounds_are_in_and_unpaired_records_come_out_once() -> None:
    rights = [order(at) for at in (-2, 0, 5, 5.002)]
    out = joined([order(0)], rights, after=lt.seconds(5), how="outer", **EVENT_TIME)
    assert out["pairs"] == [(None, -2), (0, 0), (0, 5), (None, 5.002)]
    out = joined([order(0)], rights, after=lt.seconds(5), how="left", **EVENT_TIME)
    assert out["pairs"] == [(0, 0), (0, 5)]


def test_in_log_time_nothing_is_late_and_both_bounds_are_in() -> None:
    out = joined([order(0)], [order(0), order(5), order(5.002)], after=lt.seconds(5), how="right")
    assert out["pairs"] == [(0, 0), (0, 5), (None, 5.002)]


def test_what_is_late_is_not_joined_and_comes_out_as_it_was() -> None:
    out = joined([order(0, 10)], [order(0)], after=lt.seconds(5), how="left", **EVENT_TIME)
    assert out == {"pairs": [], "late": [0], "late-other": []}
    just_in_time, a_tick_later = order(0, 1), order(0, 1.002)
    out = joined([just_in_time], [a_tick_later], after=lt.seconds(5), how="outer", **EVENT_TIME)
    assert out == {"pairs": [(0, None)], "late": [], "late-other": [0]}


def test_what_lies_too_far_ahead_is_late() -> None:
    out = joined([order(60, 1)], [], after=lt.seconds(5), time=looking_ahead(58.998))
    assert out == {"pairs": [], "late": [60], "late-other": []}
    out = joined([order(60, 1)], [], after=lt.seconds(5), time=looking_ahead(59), how="left")
    assert out == {"pairs": [(60, None)], "late": [], "late-other": []}


def test_each_stream_has_a_wait_of_its_own() -> None:
    waits: Any = {"time": tuple(lt.event_time("at", wait=lt.seconds(each)) for each in (1, 4))}
    out = joined([order(0, 3)], [order(0, 3)], after=lt.seconds(1), how="outer", **waits)
    assert out == {"pairs": [(None, 0)], "late": [0], "late-other": []}
    out = joined([order(0)], [order(1, 5), order(1, 5.002)], after=lt.seconds(1), how="left", **waits)
    assert out == {"pairs": [(0, 1)], "late": [], "late-other": [1]}


def test_until_leaves_open_what_partners_may_come_for() -> None:
    assert joined([order(0)], [], t(6), after=lt.seconds(5), how="left", **EVENT_TIME)["pairs"] == []
    assert joined([order(0)], [], t(6.002), after=lt.seconds(5), how="left", **EVENT_TIME)["pairs"] == [(0, None)]


def test_a_stream_may_be_joined_with_itself() -> None:
    out = joined([order(0), order(1), order(3)], None, before=lt.seconds(1), after=lt.seconds(1))
    assert out["pairs"] == [(0, 0), (1, 0), (0, 1), (1, 1), (3, 3)]  # As a left record each comes before itself.


@pytest.mark.parametrize("seed", range(30))
def test_an_outer_join_is_the_relational_one_of_what_was_in_time(seed: int) -> None:
    dice = random.Random(seed)
    wait, before, after = dice.choice([0, 1, 3]), *dice.choice([(0, 0), (0, 3), (2, 1)])

    def some(first: float) -> list[Order]:
        ats = [dice.randint(0, 12) + first + number / 1_000 for number in range(dice.randint(0, 6))]
        return [order(at, at + dice.randint(0, 4), dice.choice("ab")) for at in ats]

    def in_time(orders: list[Order]) -> list[Order]:
        label, found = 0, []
        for each in orders:
            label = max(label, (each.came - BEGAN) // lt.millis(2))
            if BEGAN + label * lt.millis(2) - each.at <= lt.seconds(wait):
                found.append(each)
        return found

    lefts, rights = some(0), some(0.0005)
    bounds: Any = {"before": lt.seconds(before), "after": lt.seconds(after)}
    out = joined(lefts, rights, how="outer", time=lt.event_time("at", wait=lt.seconds(wait)), **bounds)
    pairs = [
        (left, right)
        for left in in_time(lefts)
        for right in in_time(rights)
        if left.id == right.id and -lt.seconds(before) <= right.at - left.at <= lt.seconds(after)
    ]
    alone: list[Any] = [(left, None) for left in in_time(lefts) if not any(left is pair[0] for pair in pairs)]
    alone += [(None, right) for right in in_time(rights) if not any(right is pair[1] for pair in pairs)]
    assert sorted(map(repr, out["pairs"])) == sorted(repr(seconds(both(*pair))) for pair in [*pairs, *alone])


def test_a_table_may_be_joined_with_its_own_stream_and_what_was_written_first_comes_first() -> None:
    flow = lt.Flow("own")
    events = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    table = events.table("events")

    def grown(event: Event, before: Event | None) -> Event:
        return replace(event, number=event.number - (before.number if before else 0))

    events.join_table("grown", table, grown, how="left").write("grown", lt.kafka("grown", lt.json(Event)))
    out = flow.run_locally(events=[Event("a", 1), Event("a", 4), Event("b", 2), Event("a", 9)])
    assert [event.number for event in out["grown"]] == [0, 0, 0, 0]


@dataclass(frozen=True)
class Known:
    name: str | None
    other: str | None
    number: int
    at: datetime


def numbers(left: Known | None, right: Known | None) -> Known:
    some = left or right
    assert some is not None
    number = (left.number if left else 0) * 100 + (right.number if right else 0)
    return Known(some.name, some.other, number, some.at)


NEAR: dict[str, Any] = {"before": lt.seconds(5), "after": lt.seconds(5)}


def known(how: str, columns: tuple[str, ...]) -> list[int]:
    """Two of each key on the left, one of each on the right."""
    flow = lt.Flow("nothing")
    streams: Any = [flow.read(each, lt.kafka(each, lt.json(Known))).key_by(*columns) for each in ("left", "right")]
    left, right = streams
    time = lt.event_time("at", wait=lt.seconds(1), late="drop")
    if how.startswith("asof"):
        made = left.join_asof("j", right, numbers, how=how[5:], time=time, back=lt.seconds(9))
    elif how.startswith("table"):
        made = left.join_table("j", right.table("rows"), numbers, how=how[6:])
    else:
        made = left.join("j", right, numbers, how=how, time=time, **NEAR)
    made.write("out", lt.kafka("out", lt.json(Known)))
    rights = [(0, Known(None, "b", 1, t(0))), (0, Known("a", None, 2, t(0))), (0, Known("a", "b", 3, t(0)))]
    lefts = [(1, Known(None, "b", 4, t(1))), (1, Known("a", None, 5, t(1))), (1, Known("a", "b", 6, t(1)))]
    found = flow.run_locally(left=stamped(*lefts), right=stamped(*rights))["out"]
    return sorted(each.number for each in found)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [603]),
        ("left", [400, 500, 603]),
        ("right", [1, 2, 603]),
        ("outer", [1, 2, 400, 500, 603]),
        ("asof-inner", [603]),
        ("asof-left", [400, 500, 603]),
        ("table-inner", [603]),
        ("table-left", [400, 500, 603]),
    ],
)
def test_a_key_with_none_in_it_meets_nothing(how: str, expected: list[int]) -> None:
    assert known(how, ("name", "other")) == expected


def test_a_key_that_is_none_meets_nothing() -> None:
    assert known("outer", ("name",)) == [1, 400, 502, 503, 602, 603]
    assert known("table-left", ("other",)) == [403, 500, 603]
