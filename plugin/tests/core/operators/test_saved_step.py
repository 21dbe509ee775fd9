"""State as tables: what comes back from a part is what went in."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pyarrow as pa
import pytest

from lowtide import Flow, json, kafka
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.state.saved_step import SavedStep, _fitted, saved_steps
from lowtide.errors import LifeEnded
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.kinds import Kind
from lowtide.flow.schema.schema import kind_of
from lowtide_snapshots.format.fingerprint import compare
from lowtide_snapshots.format.manifest import shape_of, ttl_of
from lowtide_snapshots.format.parts import PartHead, decode_part, encode_part


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Order:
    user: str
    colour: Colour
    number: int
    at: datetime | None = None


@dataclass(frozen=True)
class Line:
    price: float
    note: str | None


@dataclass(frozen=True)
class State:
    lines: list[Line] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    last: Order | None = None


def note(state: State, order: Order) -> tuple[State, Order]:
    return state, order


def rate(state: int | None, order: Order) -> int | None:
    return order.number


def with_rate(state: int, order: Order, beside: int | None) -> tuple[int, Order]:
    return state, order


def plan() -> Plan:
    flow = Flow("saved")
    orders = flow.read("orders", kafka("orders", json(Order)))
    keyed = orders.key_by("user", "colour")
    keyed.scan("notes", note, State()).write("out", kafka("out", json(Order)))
    by_user = orders.key_by("user", name="by_user")
    windows = by_user.last(2, name="windows")
    windows.map(newest).write("newest", kafka("newest", json(Order)))
    rates = flow.read("rates", kafka("rates", json(Order))).broadcast("rate", rate, None)
    by_user.scan("rated", with_rate, 0, broadcast=rates).write("rated_out", kafka("rated", json(Order)))
    return compile_flow(flow, parallelism=1)


def newest(window: tuple[Order, ...]) -> Order:
    return window[-1]


PLAN = plan()
STEPS = saved_steps(PLAN)
DAY = datetime(2026, 1, 31, 12, tzinfo=UTC)


def through_a_part(step: SavedStep, entries: list[Any]) -> list[Any]:
    head = PartHead("saved", step.vertex, step.kind, 7, 40, 2, "000001-0001")
    name, table = decode_part(encode_part(head, step.table(entries)), head.name)
    assert name == head
    return step.entries(table)


def test_every_step_with_state_is_saved_under_its_name() -> None:
    assert {name: step.kind for name, step in STEPS.items()} == {
        "notes": "scan",
        "windows": "last",
        "rated": "scan",
        "rate": "broadcast",
    }


def test_states_come_back_equal_with_keys_of_several_columns() -> None:
    order = Order("ann", Colour.RED, 3, DAY)
    entries = [
        (("ann", Colour.RED), State([Line(1.5, None), Line(2.0, "x")], {"b": 1, "a": 2}, order)),
        (("bob", Colour.BLUE), State()),
    ]
    back = through_a_part(STEPS["notes"], entries)
    assert back == entries
    assert list(back[0][1].seen) == ["b", "a"], "a dict keeps its order"


def test_windows_come_back_with_their_order_keys() -> None:
    ats = [
        OrderKey(5, 0, 9, (1,), 0).packed(),
        OrderKey(6, 1, 2, (1, 1 << 31), 1 << 63).packed(),
        OrderKey(5, 0, 10, (256,), 256).packed(),
    ]
    rows = [Order("ann", Colour.RED, 1), Order("ann", Colour.RED, 2, DAY), Order("bob", Colour.BLUE, 3)]
    entries = [("ann", list(zip(ats[:2], rows[:2], strict=True))), ("bob", [(ats[2], rows[2])])]
    assert through_a_part(STEPS["windows"], entries) == entries
    table = STEPS["windows"].table(entries)
    assert table.column("tick").to_pylist() == [5, 6, 5]
    assert table.column("child").to_pylist() == [b"\0\0\0\1", b"\0\0\0\1\x80\0\0\0", b"\0\0\1\0"]
    assert table.column("record").to_pylist()[1]["number"] == 2


def test_paths_of_earlier_versions_are_read_without_the_zeros_that_fill_them_up() -> None:
    entries = [("ann", [(OrderKey(5, 0, 9, (1,), 7).packed(), Order("ann", Colour.RED, 1))])]
    table = STEPS["windows"].table(entries)
    place = table.column_names.index("child")
    for child in (b"\0\0\0\1", b"\0\0\0\1" + bytes(8)):
        filled = table.set_column(place, "child", pa.array([child], pa.binary()))
        assert STEPS["windows"].entries(filled) == entries


def forgetting(ttl: timedelta | None) -> SavedStep:
    flow = Flow("saved")
    orders = flow.read("orders", kafka("orders", json(Order)))
    orders.key_by("user").scan("notes", note, State(), ttl=ttl).write("out", kafka("out", json(Order)))
    return saved_steps(compile_flow(flow, parallelism=1))["notes"]


def test_a_step_that_forgets_keeps_when_a_key_was_touched() -> None:
    entries = [("ann", (State(), 17)), ("bob", (State([Line(1.5, None)]), -3))]
    step, before = forgetting(timedelta(days=1)), forgetting(None)
    assert through_a_part(step, entries) == entries
    assert step.table(entries).column("tick").to_pylist() == [17, -3]
    kept = [(key, state) for key, (state, _) in entries]
    assert compare([before.shape], [step.shape], {}) == [], "a ttl comes and goes without another name"
    assert compare([step.shape], [before.shape], {}) == []
    assert before.shape != step.shape, "but what is kept is rewritten"
    assert (ttl_of(before.shape), ttl_of(step.shape)) == (None, 86_400_000 // PLAN.slack_ms)
    assert before.entries(step.table(entries)) == kept
    assert step.entries(before.table(kept)) == [(key, (state, None)) for key, state in kept]
    assert step.entries(step.table(entries), -3) == entries[:1], "what was forgotten is gone, also without a ttl by now"
    assert before.entries(step.table(entries), -3) == kept[:1]
    assert step.entries(before.table(kept), 100) == step.entries(before.table(kept))


def test_what_last_and_deduplicate_had_forgotten_is_left_out() -> None:
    entries = [(user, [(OrderKey(tick, 0, 9).packed(), Order(user, Colour.RED, 1)) for tick in ticks])
               for user, ticks in (("ann", (1, 5)), ("bob", (3,)))]  # fmt: skip
    windows = STEPS["windows"]
    assert windows.entries(windows.table(entries), 4) == entries[:1], "ann came later, and keeps all of hers"
    flow = Flow("saved")
    orders = flow.read("orders", kafka("orders", json(Order)))
    orders.key_by("user").deduplicate("once", within=timedelta(days=1)).write("out", kafka("out", json(Order)))
    once = saved_steps(compile_flow(flow, parallelism=1))["once"]
    assert once.entries(once.table([("ann", 5), ("bob", 3)]), 4) == [("ann", 5)]


def test_of_a_deduplicate_the_ticks_are_kept_of_what_went_on() -> None:
    flow = Flow("saved")
    orders = flow.read("orders", kafka("orders", json(Order))).key_by("user", "colour")
    orders.deduplicate("once", within=timedelta(days=1)).write("out", kafka("out", json(Order)))
    step = saved_steps(compile_flow(flow, parallelism=1))["once"]
    entries = [(("ann", Colour.RED), 17), (("bob", Colour.BLUE), -3)]
    assert through_a_part(step, entries) == entries
    assert step.kind == "deduplicate"


def test_a_broadcast_has_one_row_without_a_key() -> None:
    assert through_a_part(STEPS["rate"], [(None, 4)]) == [(None, 4)]
    assert through_a_part(STEPS["rate"], [(None, None)]) == [(None, None)]


def test_a_state_of_a_wrong_type_ends_the_life_with_its_place() -> None:
    with pytest.raises(LifeEnded, match=r"(?s)state.lines\[\].price.*'much'.*float.*step \"notes\""):
        STEPS["notes"].table([(("ann", Colour.RED), State([Line("much", None)]))])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Price:
    amount: float


@dataclass(frozen=True)
class NewPrice:
    amount: float
    currency: str = "EUR"
    tags: list[str] = field(default_factory=lambda: ["new"])


@dataclass(frozen=True)
class Prices:
    every: list[Price]
    named: dict[str, Price]
    best: Price | None


@dataclass(frozen=True)
class NewPrices:
    every: list[NewPrice]
    named: dict[str, NewPrice]
    best: NewPrice | None
    total: int = 7


def test_a_field_that_was_added_takes_its_default_however_deep_it_lies() -> None:
    before: Kind = kind_of(Prices, "it")
    now: Kind = kind_of(NewPrices, "it")
    one = Price(1.0)
    states = [Prices([one, Price(2.0)], {"a": one}, None), Prices([], {}, one)]
    new = NewPrice(1.0)
    expected = [NewPrices([new, NewPrice(2.0)], {"a": new}, None), NewPrices([], {}, new)]
    for column in (before.encode(states), pa.concat_arrays([before.encode(states), before.encode(states)]).slice(2)):
        assert now.decode(_fitted(now, column)) == expected


def test_defaults_are_named_by_their_paths() -> None:
    assert STEPS["notes"].defaults == {"lines", "seen", "last", "last.at"}
    assert STEPS["windows"].defaults == {"at"}


class Fewer(Enum):
    RED = "red"


@dataclass(frozen=True)
class Painted:
    colour: Colour


@dataclass(frozen=True)
class PaintedFewer:
    colour: Fewer


def paint(state: Painted | None, order: Order) -> tuple[Painted | None, Order]:
    return state, order


def paint_fewer(state: PaintedFewer | None, order: Order) -> tuple[PaintedFewer | None, Order]:
    return state, order


def painted(function: Any) -> SavedStep:
    flow = Flow("painted")
    keyed = flow.read("orders", kafka("orders", json(Order))).key_by("user")
    keyed.scan("painted", function, None).write("out", kafka("out", json(Order)))
    return saved_steps(compile_flow(flow, parallelism=1))["painted"]


def test_a_state_that_its_type_does_not_take_any_more_is_named() -> None:
    saved = painted(paint).table([("ann", Painted(Colour.BLUE))])
    with pytest.raises(LifeEnded, match=r'(?s)cannot read the saved state.*blue.*step "painted"'):
        painted(paint_fewer).entries(saved)


@dataclass(frozen=True)
class Short:
    low: float = 0.0


@dataclass(frozen=True)
class Long:
    low: float = 0.0
    high: int = 7


def beginning(state: Any) -> SavedStep:
    def kept(before: Any, order: Order) -> Any:
        return before, order

    kind: Any = type(state)
    kept.__annotations__ = {"before": kind, "order": Order, "return": tuple[kind, Order]}
    flow = Flow("saved")
    orders = flow.read("orders", kafka("orders", json(Order)))
    orders.key_by("user").scan("kept", kept, state).write("out", kafka("out", json(Order)))
    return saved_steps(compile_flow(flow, parallelism=1))["kept"]


@pytest.mark.parametrize(
    ("was", "now", "refused"),
    [
        (0, 0, False),
        (0, 100, True),
        (State(seen={"a": 1, "b": 2}), State(seen={"b": 2, "a": 1}), True),
        (Short(), Short(-0.0), True),
        (Short(1.5), Long(1.5), False),
        (Short(1.5), Long(1.5, 8), True),
    ],
)
def test_a_step_that_begins_with_another_state_is_another(was: Any, now: Any, refused: bool) -> None:
    """Keys whose state was the initial one are not saved: they would find the new one."""
    what = beginning(now).began_otherwise(beginning(was).shape)
    assert (what is not None) == refused
    assert what is None or what.endswith("give the step another name")


def test_an_initial_state_that_a_snapshot_does_not_say_may_be_any() -> None:
    step = beginning(0)
    assert step.began_otherwise(shape_of("kept", "scan", step.key, step.state)) is None
