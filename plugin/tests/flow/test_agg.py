"""Aggregates: what each comes to, in which types, and what an aggregation's result is refused for."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import reduce
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide as lt
from lowtide.errors import FlowError
from lowtide.flow.schema.schema import kind_of, schema_of
from lowtide.flow.steps.aggregation import Aggregation, aggregation_of
from lowtide.flow.steps.signature import accepts

FULL = (1 << 63) - 1


class Mood(Enum):
    CALM = "calm"
    WILD = "wild"


@dataclass(frozen=True)
class Order:
    user: str
    amount: int
    price: float = 1.0
    paid: int | None = None
    mood: Mood = Mood.CALM
    at: datetime = datetime(2026, 1, 31, tzinfo=UTC)
    day: date | None = None
    size: Literal["s", "l"] = "s"
    tags: tuple[str, ...] = ()


def aggregated(returns: type, **columns: lt.Aggregate) -> Aggregation:
    return aggregation_of(returns, columns, takes=Order, key=("user",), windows=False)


def result(aggregation: Aggregation, orders: Sequence[Order]) -> Any:
    state = aggregation.initial
    for order in orders:
        state = aggregation.add(state, order)
    return aggregation.finish(state, (orders[0].user,))


@dataclass(frozen=True)
class All:
    user: str
    records: int
    paid: int
    amount: int
    total: int | None
    mean: float
    mean_paid: float | None
    least: int
    most: int | None
    price: float
    start: Mood
    end: int | None
    cheapest: Mood
    dearest: int | None
    moods: int
    amounts: tuple[int, ...]
    orders: tuple[Order, ...]


def everything() -> Aggregation:
    return aggregated(
        All,
        records=lt.agg.count(),
        paid=lt.agg.count("paid"),
        amount=lt.agg.sum("amount"),
        total=lt.agg.sum("paid"),
        mean=lt.agg.mean("amount"),
        mean_paid=lt.agg.mean("paid"),
        least=lt.agg.min("amount"),
        most=lt.agg.max("paid"),
        price=lt.agg.sum("price"),
        start=lt.agg.first("mood"),
        end=lt.agg.latest("paid"),
        cheapest=lt.agg.min_by("mood", by="price"),
        dearest=lt.agg.max_by("amount", by="paid"),
        moods=lt.agg.count_distinct("mood"),
        amounts=lt.agg.collect("amount"),
        orders=lt.agg.collect(),
    )


ORDERS = [
    Order("ann", 5, 0.1, 7, Mood.WILD),
    Order("ann", 3, 0.2, None),
    Order("ann", 3, 0.3, 9, Mood.WILD),
    Order("ann", 4, 0.1, 9),
    Order("ann", 1, 0.7, None),
]


def test_each_aggregate_comes_to_what_its_name_says() -> None:
    assert result(everything(), ORDERS) == All(
        user="ann",
        records=5,
        paid=3,
        amount=16,
        total=25,
        mean=16 / 5,
        mean_paid=25 / 3,
        least=1,
        most=9,
        price=0.1 + 0.2 + 0.3 + 0.1 + 0.7,
        start=Mood.WILD,
        end=None,
        cheapest=Mood.WILD,
        dearest=3,
        moods=2,
        amounts=(5, 3, 3, 4, 1),
        orders=tuple(ORDERS),
    )


def test_of_columns_that_all_are_none_comes_none() -> None:
    made = result(everything(), [Order("ann", 1)])
    assert (made.paid, made.total, made.mean_paid, made.most, made.end, made.dearest) == (
        0,
        None,
        None,
        None,
        None,
        None,
    )


orders = st.lists(
    st.builds(
        Order,
        user=st.just("ann"),
        amount=st.integers(-5, 5),
        price=st.integers(-8, 8).map(lambda n: n / 8),
        paid=st.none() | st.integers(-3, 3),
        mood=st.sampled_from(Mood),
    ),
    min_size=1,
)


@given(orders)
def test_sums_and_choices_are_those_of_python(made: list[Order]) -> None:
    found, paid = result(everything(), made), [order.paid for order in made if order.paid is not None]
    assert (found.records, found.paid, found.amount) == (len(made), len(paid), sum(order.amount for order in made))
    assert (found.total, found.most) == ((sum(paid), max(paid)) if paid else (None, None))
    assert found.cheapest == min(made, key=lambda order: order.price).mood
    assert found.moods == len({order.mood for order in made})
    if paid:
        of_paid = [order for order in made if order.paid is not None]
        assert found.dearest == max(of_paid, key=lambda order: order.paid or 0).amount


@given(orders, st.data())
@settings(max_examples=200)
def test_states_that_are_merged_are_those_of_all_records(made: list[Order], data: st.DataObject) -> None:
    aggregation = everything()
    assert aggregation.merges
    cuts = sorted({0, len(made), *data.draw(st.lists(st.integers(0, len(made)), max_size=3))})
    merged = aggregation.initial
    for start, end in pairwise(cuts):
        state = aggregation.initial
        for order in made[start:end]:
            state = aggregation.add(state, order)
        merged = aggregation.merge(merged, state)
    assert aggregation.finish(merged, ("ann",)) == result(aggregation, made)


@given(orders)
def test_a_state_comes_back_from_its_columns_as_it_is(made: list[Order]) -> None:
    aggregation = everything()
    kind = kind_of(aggregation.state, "state")
    state = aggregation.initial
    for order in made:
        assert repr(kind.decode(kind.encode([state]))[0]) == repr(state)
        state = aggregation.add(state, order)
    assert repr(kind.decode(kind.encode([state]))[0]) == repr(state)
    assert schema_of(aggregation.state).arrow.names == [name for name in schema_of(All).arrow.names if name != "user"]


def test_a_sum_of_more_than_64_bits_fails() -> None:
    @dataclass(frozen=True)
    class Sum:
        total: int

    @dataclass(frozen=True)
    class Mean:
        mean: float

    total, mean = aggregated(Sum, total=lt.agg.sum("amount")), aggregated(Mean, mean=lt.agg.mean("amount"))
    for aggregation in (total, mean):
        with pytest.raises(OverflowError, match="64 bits"):
            result(aggregation, [Order("ann", FULL), Order("ann", 1)])
    assert result(total, [Order("ann", FULL)]) == Sum(FULL)


def test_aggregates_go_to_workers_by_plain_pickle() -> None:
    for made in (lt.agg.count(), lt.agg.first("user"), lt.agg.min_by("user", "amount"), lt.agg.collect()):
        again = pickle.loads(pickle.dumps(made))
        assert again.add(made.initial, ORDERS[0]) == made.add(made.initial, ORDERS[0])


# -- aggregates of one's own -------------------------------------------------------------------------------------------


def longest(state: str, tags: tuple[str, ...]) -> str:
    return max(state, *tags, key=len)


def shouted(state: str) -> str:
    return state.upper()


def test_an_aggregate_of_ones_own_says_its_types_by_annotations() -> None:
    @dataclass(frozen=True)
    class Tag:
        user: str
        tag: str

    aggregation = aggregated(Tag, tag=lt.Aggregate("", longest, finish=shouted, column="tags"))
    assert not aggregation.merges
    assert result(aggregation, [Order("ann", 1, tags=("a", "abc")), Order("ann", 1, tags=("ab",))]) == Tag("ann", "ABC")
    product = lt.Aggregate(1, lambda state, order: state * order.amount)

    @dataclass(frozen=True)
    class Product:
        tag: int

    assert result(aggregated(Product, tag=product), [Order("ann", 6), Order("ann", 7)]) == Product(42)


def takes_numbers(state: int, value: int) -> int:
    return state + value


def of_text(state: str) -> int:
    return len(state)


def add_one(state: Any) -> Any:
    return state


of_one: Any = add_one


def none_known(state: int | None, value: str) -> int | None:
    return state


@dataclass(frozen=True)
class Counted:
    user: str
    orders: int


@dataclass(frozen=True)
class Windowed:
    user: str
    window_start: datetime
    orders: int


@dataclass(frozen=True)
class WrongKey:
    user: int
    orders: int


@dataclass(frozen=True)
class Text:
    orders: str


@pytest.mark.parametrize(
    ("returns", "columns", "message"),
    [
        (Counted, {}, "aggregate has no aggregates"),
        (Counted, {"orders": 3}, "orders= is 3, expected an aggregate such as agg.count()"),
        (Counted, {"number": lt.agg.count()}, "Counted has no field 'number'; it has user, orders"),
        (Counted, {"user": lt.agg.count()}, "user is already filled by the key"),
        (Windowed, {"orders": lt.agg.count()}, "nothing fills Windowed.window_start, as there are no windows"),
        (
            All,
            {"amount": lt.agg.count()},
            r"nothing fills All.records; the fields must be columns of the key \(user\)",
        ),
        (WrongKey, {"orders": lt.agg.count()}, "WrongKey.user is int, but what fills it is str"),
        (Text, {"orders": lt.agg.count()}, "Text.orders is str, but what fills it is int"),
        (Counted, {"orders": lt.agg.sum("paid")}, r"Counted.orders is int, but what fills it is int \| None"),
        (Counted, {"orders": lt.agg.mean("amount")}, "Counted.orders is int, but what fills it is float"),
        (
            Counted,
            {"orders": lt.agg.sum("mood")},
            "the aggregate orders takes int, float, Decimal, but the column is Mood",
        ),
        (Counted, {"orders": lt.agg.max("mood")}, "the aggregate orders takes int, .*but the column is Mood"),
        (Counted, {"orders": lt.agg.count_distinct("price")}, "takes int, str, .* but the column is float"),
        (Counted, {"orders": lt.agg.sum("many")}, "takes column 'many', but Order has user, amount"),
        (Counted, {"orders": lt.agg.max_by("amount", "many")}, "takes column 'many', but Order has user, amount"),
        (Counted, {"orders": lt.agg.max_by("amount", "tags")}, r"the aggregate orders takes .* tuple\[str, ...\]"),
        (Counted, {"orders": lt.Aggregate(0, takes_numbers, column="user")}, "adds int, but str arrives"),
        (Counted, {"orders": lt.Aggregate("", takes_numbers, column="amount")}, "keeps int, but initial is ''"),
        (
            Counted,
            {"orders": lt.Aggregate(0, takes_numbers, None, of_text, "amount")},
            "finishes str, but its state is",
        ),
        (Counted, {"orders": lt.Aggregate(0, of_one)}, "has a function add= that must take two arguments"),
        (Counted, {"orders": lt.Aggregate(None, none_known, column="user")}, r"what fills it is int \| None"),
        (
            Counted,
            {"orders": lt.Aggregate(None, lambda state, value: 1)},
            "has no state that can be saved: its state: no column can hold NoneType",
        ),
    ],
)
def test_what_does_not_fit_is_named(returns: type, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowError, match=message):
        aggregated(returns, **columns)


def test_a_window_fills_its_moments() -> None:
    aggregation = aggregation_of(Windowed, {"orders": lt.agg.count()}, takes=Order, key=("user",), windows=True)
    start = datetime(2026, 1, 31, tzinfo=UTC)
    state = aggregation.add(aggregation.initial, ORDERS[0])
    assert aggregation.finish(state, ("ann",), start, start + timedelta(minutes=5)) == Windowed("ann", start, 1)
    with pytest.raises(FlowError, match="window_start is already filled by the window"):
        aggregation_of(Windowed, {"window_start": lt.agg.count()}, takes=Order, key=("user",), windows=True)


def test_a_column_that_cannot_be_none_fills_a_field_that_can() -> None:
    assert accepts(int | None, int)

    @dataclass(frozen=True)
    class Perhaps:
        total: int | None

    assert result(aggregated(Perhaps, total=lt.agg.sum("amount")), ORDERS) == Perhaps(16)


@dataclass(frozen=True)
class Sale:
    shop: Annotated[str, lt.Key()]
    price: Annotated[Decimal, lt.Precision(18, 2)]
    tip: Annotated[Decimal | None, lt.Precision(6, 1)] = None
    number: UUID | None = None
    at: Annotated[datetime | None, lt.Timestamp()] = None


@dataclass(frozen=True)
class Takings:
    shop: str
    price: Annotated[Decimal, lt.Precision(38, 2)]
    tips: Annotated[Decimal | None, lt.Precision(38, 1)]
    dearest: Annotated[Decimal, lt.Precision(18, 2)]
    tip: Annotated[Decimal | None, lt.Precision(6, 1)]
    newest: datetime | None
    number: UUID | None
    numbers: int


def test_decimals_are_added_with_all_their_digits_and_markers_do_not_matter() -> None:
    columns = {
        "price": lt.agg.sum("price"),
        "tips": lt.agg.sum("tip"),
        "dearest": lt.agg.max("price"),
        "tip": lt.agg.min("tip"),
        "newest": lt.agg.max("at"),
        "number": lt.agg.max("number"),
        "numbers": lt.agg.count_distinct("number"),
    }
    aggregation = aggregation_of(Takings, columns, takes=Sale, key=("shop",), windows=False)
    kind, state = kind_of(aggregation.state, "state"), aggregation.initial
    large, one = Decimal("9999999999999999.99"), UUID(int=1)
    for sale in [Sale("a", large), Sale("a", large, Decimal("0.5"), one), Sale("a", Decimal("0.02"), None, one)]:
        state = aggregation.add(state, sale)
        assert repr(kind.decode(kind.encode([state]))[0]) == repr(state)
    tip, total = Decimal("0.5"), Decimal("20000000000000000.00")
    assert aggregation.finish(state, ("a",)) == Takings("a", total, tip, large, tip, None, one, 1)
    assert str(aggregation.finish(state, ("a",)).price) == "20000000000000000.00"
    full = Decimal("9" * 36 + ".99")
    with pytest.raises(OverflowError, match="the sum has more than 38 digits"):
        lt.agg.sum("price").add(full, Decimal("0.01"))


@dataclass(frozen=True)
class Receipt:
    shop: str
    price: Annotated[Decimal, lt.Precision(18, 2)]


@dataclass(frozen=True)
class Narrow:
    shop: str
    price: Annotated[Decimal, lt.Precision(4, 2)]


@dataclass(frozen=True)
class Coarse:
    price: Annotated[Decimal, lt.Precision(38, 1)]


@dataclass(frozen=True)
class Tip:
    tip: Annotated[Decimal, lt.Precision(38, 1)]


def test_a_sum_of_decimals_has_the_digits_of_its_field_and_a_record_beyond_them_fails() -> None:
    flow = lt.Flow("sales", dead_letters=lt.kafka("dead", lt.raw()))
    sales = flow.read("sales", lt.kafka("in", lt.json(Receipt))).key_by("shop")
    sales.aggregate("takings", Narrow, price=lt.agg.sum("price")).write("out", lt.kafka("out", lt.json(Narrow)))
    out = flow.run_locally(sales=[Receipt("a", Decimal(price)) for price in ("60.00", "40.00", "39.99")])
    assert [str(each.price) for each in out["out"]] == ["60.00", "99.99"]
    (letter,) = out["dead-letters"]
    assert "Narrow.price would have more than 4 digits" in letter.error


def test_decimals_fill_no_field_of_another_scale_and_have_no_mean() -> None:
    with pytest.raises(FlowError, match=r"Coarse.price is .*scale=1.* but what fills it is .*scale=2.*"):
        aggregation_of(Coarse, {"price": lt.agg.sum("price")}, takes=Sale, key=("shop",), windows=False)
    with pytest.raises(FlowError, match=r"Tip.tip is .* but what fills it is .*None"):
        aggregation_of(Tip, {"tip": lt.agg.sum("tip")}, takes=Sale, key=("shop",), windows=False)
    with pytest.raises(FlowError, match=r"price is a mean of decimals, .*; fill two fields with agg.sum and agg.count"):
        aggregation_of(Narrow, {"price": lt.agg.mean("price")}, takes=Sale, key=("shop",), windows=False)


@dataclass(frozen=True)
class Throw:
    user: str
    eyes: Literal[1, 2]


@dataclass(frozen=True)
class Thrown:
    user: str
    total: int
    mean: float
    most: int
    least: Literal[1, 2]


def test_numbers_of_a_literal_are_added_and_averaged_as_numbers() -> None:
    flow = lt.Flow("dice")
    throws = flow.read("throws", lt.kafka("in", lt.json(Throw))).key_by("user")
    thrown = throws.aggregate(
        "thrown",
        Thrown,
        total=lt.agg.sum("eyes"),
        mean=lt.agg.mean("eyes"),
        most=lt.agg.max("eyes"),
        least=lt.agg.min("eyes"),
    )
    thrown.write("out", lt.kafka("out", lt.json(Thrown)))
    assert flow.run_locally(throws=[Throw("a", 1), Throw("a", 2)])["out"][-1] == Thrown("a", 3, 1.5, 2, 1)


def rise(state: float, value: int | None) -> float:
    return state if value is None else state + value


@dataclass(frozen=True)
class Risen:
    user: str
    paid: float


def test_an_initial_state_is_as_it_comes_back_from_a_snapshot() -> None:
    columns = {"paid": lt.Aggregate(0, rise, column="paid")}
    assert repr(aggregated(Risen, **columns).initial) == "RisenState(paid=0.0)"


def test_durations_are_timedeltas() -> None:
    assert lt.millis(1500) == lt.seconds(1.5) == timedelta(seconds=1.5)
    assert lt.minutes(60) == lt.hours(1) == lt.days(1) / 24 == timedelta(hours=1)


@dataclass(frozen=True)
class Extremes:
    user: str
    least: float | None
    most: float | None
    cheapest: int | None
    dearest: int | None


@given(
    st.lists(st.floats() | st.sampled_from([math.nan, -math.nan, math.inf, -math.inf, 1e308]), min_size=1), st.data()
)
def test_the_smallest_and_the_largest_do_not_depend_on_what_came_first(
    prices: list[float], data: st.DataObject
) -> None:
    columns = {"least": lt.agg.min("price"), "most": lt.agg.max("price")}
    columns |= {"cheapest": lt.agg.min_by("amount", "price"), "dearest": lt.agg.max_by("amount", "price")}
    extremes = aggregation_of(Extremes, columns, takes=Order, key=("user",), windows=False)
    orders = [Order("a", number, price) for number, price in enumerate(prices)]
    found = result(extremes, orders)
    again = result(extremes, data.draw(st.permutations(orders)))
    numbers = [price for price in prices if not math.isnan(price)]
    least, most = min(numbers, default=math.nan), max(prices, key=lambda price: (math.isnan(price), price))
    for one in (found, again):
        assert [repr(one.least + 0.0), repr(one.most + 0.0)] == [repr(least + 0.0), repr(most + 0.0)]
        chosen = [prices[one.cheapest], prices[one.dearest]]
        assert [repr(each + 0.0) for each in chosen] == [repr(least + 0.0), repr(most + 0.0)]
    middle = data.draw(st.integers(0, len(orders)))
    for aggregate in columns.values():
        parts = [
            reduce(aggregate.add, map(aggregated_by(aggregate), part), aggregate.initial)
            for part in (orders[:middle], orders[middle:])
        ]
        assert aggregate.merge is not None
        whole = reduce(aggregate.add, map(aggregated_by(aggregate), orders), aggregate.initial)
        assert repr(aggregate.finish(aggregate.merge(*parts))) == repr(aggregate.finish(whole))


def aggregated_by(aggregate: lt.Aggregate) -> Any:
    return (lambda order: order) if aggregate.column is None else attrgetter(aggregate.column)
