"""Programs: whatever batches the records come in, they do what the interpreter does record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import Programs, by_lane, source_rows

from lowtide import Flow, Raw, json, kafka, raw
from lowtide.core.operators.faults.failure import MessageRefused, UserError, letters
from lowtide.core.operators.order.order import Position, path_of, position_of
from lowtide.core.operators.program import Program
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.schema.fields import encode_rows
from lowtide.flow.schema.schema import schema_of
from lowtide.local.run import Message, run_log


@dataclass(frozen=True)
class Order:
    user: str
    at: int
    amount: float = 0.0


@dataclass(frozen=True)
class Item:
    user: str
    number: int


def messages(values: list[bytes | None], front: int = 0) -> list[Message]:
    return [
        Message(Position(front, 10 + 2 * index), 1000 + index, b"k%d" % index, value)
        for index, value in enumerate(values)
    ]


def run(flow: Flow, values: list[bytes | None]) -> Programs:
    programs = Programs(compile_flow(flow, parallelism=2, slack_ms=1))
    programs.feed("orders", messages(values))
    programs.finish()
    return programs


# A flow that has every step, and functions that fail for some records.


def items(order: Order) -> Iterator[Item]:
    if order.at == 13:
        raise ValueError("thirteen")
    for number in range(order.at % 4):
        if order.user == "half" and number == 1:
            raise RuntimeError("half way")
        yield Item(order.user, number if order.user != "wrong" else str(number))  # type: ignore[arg-type]


def is_even(item: Item) -> bool:
    if item.user == "stop":
        raise StopIteration
    return item.number % 2 == 0 if item.user != "none" else None  # type: ignore[return-value]


def louder(item: Item) -> Item:
    return Item(item.user.upper(), item.number) if item.user != "other" else "other"  # type: ignore[return-value]


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    number = pc.multiply(batch.column("number"), 2)
    return pa.RecordBatch.from_arrays([batch.column("user"), number], schema=batch.schema)


def as_raw(item: Item) -> Raw:
    return Raw(None if item.number else item.user.encode(), b"%d" % item.number)


def everything(dead_letters: Any) -> Flow:
    flow = Flow("everything", dead_letters=dead_letters)
    orders = flow.read("orders", kafka("orders", json(Order)))
    split = orders.flat_map(items)
    split.write("plain", kafka("plain", json(Item), key="user"))
    even = split.key_by("user").filter(is_even)
    even.map_batches(doubled, Item).key_by("number", "user").map(louder).write("loud", kafka("loud", json(Item)))
    even.map(as_raw).write("raw", kafka("raw", raw()))
    orders.write("copies", kafka("copies", json(Order), key="at"))
    return flow


users = st.sampled_from(["a", "b", "c", "half", "wrong", "stop", "none", "other"])
orders = st.builds(Order, users, st.integers(0, 20), st.floats(-10, 10))
values = orders.map(msgspec.json.encode) | st.sampled_from([b"", b"{}", b'{"user":"a","at":"1"}', None])


@settings(deadline=None)
@given(st.lists(values, max_size=20), st.integers(1, 4), st.data())
def test_programs_do_what_the_interpreter_does(values: list[bytes | None], lanes: int, data: st.DataObject) -> None:
    plan = compile_flow(
        everything(kafka("dead", raw())), units=8, lanes=lanes, parallelism=data.draw(st.integers(1, lanes))
    )
    log = messages(values)
    programs = Programs(plan)
    start = 0
    while start < len(log):
        end = start + data.draw(st.integers(1, 8))
        programs.feed("orders", log[start:end])
        start = end
    programs.finish()
    delivered, dead = run_log(plan, {"orders": log})
    assert programs.delivered == by_lane(delivered)
    assert Counter(programs.dead) == Counter(dead)
    assert all(len(workers) == 1 for workers in programs.owners.values())


def order(user: str, at: int) -> bytes:
    return msgspec.json.encode(Order(user, at))


def numbers(programs: Programs) -> list[int]:
    """The orders that came out."""
    sent = [value for lane in programs.delivered["out"].values() for _, value, _ in lane]
    return sorted({msgspec.json.decode(value or b"")["at"] for value in sent})


def one_step(step: str, function: Any, dead_letters: Any = None) -> Flow:
    flow = Flow("test", dead_letters=dead_letters)
    stream: Any = flow.read("orders", kafka("orders", json(Order)))
    getattr(stream, step)(function, name="step", **({} if step == "filter" else {"returns": Order})).write(
        "out", kafka("out", json(Order))
    )
    return flow


def fails(order: Order) -> Any:
    if order.at == 2:
        raise ValueError(f"two\nof {order.user}")
    return order


def gives_wrong(order: Order) -> Any:
    return order if order.at != 2 else (1, 2)


def gives_bad_field(order: Order) -> Any:
    return order if order.at != 2 else Order(order.user, "2")  # type: ignore[arg-type]


def stops(order: Order) -> Any:
    return order if order.at != 2 else next(iter(()))


def exits(order: Order) -> Any:
    return order if order.at != 2 else exit(3)


@pytest.mark.parametrize(
    ("step", "function", "what"),
    [
        ("map", fails, "raised ValueError: two\nof u"),
        ("map", gives_wrong, "returned tuple, expected Order"),
        ("map", lambda order: None if order.at == 2 else order, "returned None, expected Order"),
        ("map", gives_bad_field, "Order.at: expected int, found str '2'"),
        ("map", stops, "raised StopIteration; use return, or next(..., default)"),
        ("map", exits, "raised SystemExit: 3"),
        ("flat_map", lambda order: [fails(order)], "raised ValueError: two\nof u"),
        ("flat_map", lambda order: (fails(order) for _ in "ab"), "raised ValueError: two\nof u"),
        ("flat_map", lambda order: [order, gives_wrong(order)], "gave tuple, expected Order"),
        ("flat_map", lambda order: None if order.at == 2 else [order], "returned 'NoneType', expected an iterable"),
        ("flat_map", lambda order: [gives_bad_field(order)], "Order.at: expected int, found str '2'"),
        ("filter", lambda order: fails(order) is order, "raised ValueError: two\nof u"),
        ("filter", lambda order: None if order.at == 2 else True, "returned None, expected bool"),
        ("filter", lambda order: 1 if order.at == 2 else True, "returned int, expected bool"),
        ("filter", lambda order: bool(stops(order)), "raised StopIteration"),
    ],
)
def test_a_function_that_fails_stops_the_job_or_gives_a_dead_letter(step: str, function: Any, what: str) -> None:
    values: list[bytes | None] = [order("u", at) for at in (0, 1, 2, 3)]
    with pytest.raises(UserError) as caught:
        run(one_step(step, function), values)
    error = caught.value
    assert error.what.startswith(f'step "step": {what}')
    assert (error.vertex, error.position) == ("step", Position(0, 14))
    assert f"{__file__}:" in error.where
    assert "record at front 0, offset 14: Order(user='u', at=" in error.where
    assert ("Traceback" in error.details) == what.startswith(("raised V", "raised Sy"))
    assert "per_record.py" not in error.details

    programs = run(one_step(step, function, kafka("dead", raw())), values)
    assert numbers(programs) == [0, 1, 3]
    (dead,) = set(programs.dead)
    assert dead.error.startswith(what)
    assert (dead.vertex, dead.position, dead.timestamp) == ("step", Position(0, 14), 1002)
    assert (dead.key, dead.value) == (b"k2", values[2])


def test_no_function_is_called_twice_for_a_record() -> None:
    calls: list[int] = []

    def noted(order: Order) -> Any:
        calls.append(order.at)
        return fails(order) if order.at not in (0, 5) else "wrong"

    programs = run(one_step("map", noted, kafka("dead", raw())), [order("u", at) for at in range(8)])
    assert calls == list(range(8))
    assert [dead.position.sequence for dead in programs.dead] == [10, 14, 20]


def test_an_unreadable_message_stops_the_job_or_gives_a_dead_letter() -> None:
    values: list[bytes | None] = [order("u", 0), b"{}", order("u", 1)]
    with pytest.raises(MessageRefused, match="Object missing required field `user`") as caught:
        run(one_step("map", fails), values)
    assert caught.value.position == Position(0, 12)
    programs = run(one_step("map", fails, kafka("dead", raw())), values)
    (dead,) = programs.dead
    assert (dead.vertex, dead.key, dead.value) == ("orders", b"k1", b"{}")
    assert dict(dead.describe()) == {
        "lowtide.vertex": b"orders",
        "lowtide.front": b"0",
        "lowtide.offset": b"12",
        "lowtide.error": b"cannot be read as JSON of Order: Object missing required field `user`",
    }
    assert numbers(programs) == [0, 1]


def test_headers_of_the_original_go_with_its_dead_letter() -> None:
    plan = compile_flow(one_step("map", fails, kafka("dead", raw())), parallelism=1)
    rows = source_rows(messages([b"{}", b"{}"]))
    rows.headers, rows.ticks = [b"first", b"second"], [500, 500]
    (faults,) = Program(plan, 0).feed_source(0, rows).faults
    assert [dead.headers for dead in letters(plan, faults.ats, faults.rows)] == [b"first", b"second"]


def test_behind_an_exchange_a_dead_letter_holds_the_record() -> None:
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    stream = flow.read("orders", kafka("orders", json(Order))).key_by("user")
    stream.map(fails, returns=Order).write("out", kafka("out", json(Order)))
    (dead,) = run(flow, [order("u", 2)]).dead
    assert (dead.key, dead.value) == (None, b'{"user":"u","at":2,"amount":0.0}')


def test_the_record_of_an_error_is_shortened() -> None:
    with pytest.raises(UserError) as caught:
        run(one_step("map", fails), [order("u" * 10_000, 2)])
    assert len(caught.value.where) < 1000


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda batch: batch.slice(1), "returned 1 rows for 2"),
        (lambda batch: batch.to_pylist(), "returned list, expected pyarrow.RecordBatch"),
        (lambda batch: batch.rename_columns(["a", "b", "c"]), "returned the columns ['a', 'b', 'c'], expected ['user'"),
        (lambda batch: batch.cast(pa.schema([("user", pa.string()), ("at", pa.int32()), ("amount", pa.float64())])),
         "returned column 'at' as int32, expected int64; cast it"),
        (lambda batch: pa.RecordBatch.from_arrays([pa.array([None, "a"]), *batch.columns[1:]], schema=batch.schema),
         "returned a value in column 'user' that is not str, perhaps a null"),
        (lambda batch: batch.column("nothing"), "raised KeyError"),
    ],
)  # fmt: skip
def test_a_batch_function_that_fails_stops_the_job_even_with_dead_letters(function: Any, what: str) -> None:
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    stream = flow.read("orders", kafka("orders", json(Order)))
    stream.map_batches(function, Order, name="step").write("out", kafka("out", json(Order)))
    with pytest.raises(UserError) as caught:
        run(flow, [order("u", 1), order("u", 2)])
    assert what in caught.value.what
    assert "the first of a batch of 2" in caught.value.where


@dataclass(frozen=True)
class Stock:
    left: int

    def __post_init__(self) -> None:
        if self.left < 0:
            raise ValueError(f"{self.left} left")


@dataclass(frozen=True)
class Shelf:
    stocks: list[Stock | None]


@pytest.mark.parametrize("gives", [Stock, Shelf])
def test_a_record_that_refuses_what_a_batch_function_gives_stops_the_job(gives: type) -> None:
    def sold(batch: pa.RecordBatch) -> pa.RecordBatch:
        left = pc.subtract(batch.column("at"), 2)
        if gives is Stock:
            return pa.RecordBatch.from_arrays([left], names=["left"])
        stocks = pa.StructArray.from_arrays([left], fields=[pa.field("left", pa.int64())])
        offsets = pa.array(range(len(batch) + 1), pa.int32())
        kind = schema_of(Shelf).kinds["stocks"].arrow
        return pa.RecordBatch.from_arrays([pa.ListArray.from_arrays(offsets, stocks, type=kind)], names=["stocks"])

    flow = Flow("test", dead_letters=kafka("dead", raw()))
    flow.read("orders", kafka("orders", json(Order))).map_batches(sold, gives).write("out", kafka("out", json(gives)))
    assert not run(flow, [b'{"user":"a","at":2}']).dead
    with pytest.raises(UserError, match='"sold": raised ValueError: -1 left'):
        run(flow, [b'{"user":"a","at":2}', b'{"user":"a","at":1}'])
    with pytest.raises(UserError, match='"sold": raised ValueError: -1 left'):
        flow.run_locally(orders=[Order("a", 1)])


@pytest.mark.parametrize("user", [1.5, ["a"], "\ud800", None])
def test_what_is_no_key_fails_where_a_loop_would_take_it_round_again(user: Any) -> None:
    def again(item: Item) -> bool:
        return item.number > 0

    def onward(item: Item) -> Item:
        return Item(user, item.number - 1)

    flow = Flow("test", dead_letters=kafka("dead", raw()))
    keyed = flow.read("items", kafka("items", json(Item))).key_by("user")
    keyed.loop("round", lambda body: body.map(onward), again, limit_turns=3).write("out", kafka("out", json(Item)))
    plan = compile_flow(flow, parallelism=1)
    log = messages([b'{"user":"a","number":3}'])
    _, dead = run_log(plan, {"items": log})
    programs = Programs(plan)
    programs.feed("items", log)
    programs.finish()
    assert [letter.vertex for letter in dead] == ["round"]
    assert "goes round the loop again with " in dead[0].error
    assert programs.dead == dead


def test_an_int_for_a_float_is_written_as_it_is_whatever_it_is_released_with() -> None:
    def whole(order: Order) -> Order:
        return replace(order, user=order.user.upper(), amount=int(order.amount))

    flow = Flow("test")
    keyed = flow.read("orders", kafka("orders", json(Order))).key_by("at")
    keyed.map(whole).merge(keyed, name="both").write("out", kafka("out", json(Order)))
    plan = compile_flow(flow, parallelism=1, slack_ms=1)
    log = messages([b'{"user":"a","at":1,"amount":2.0}', b'{"user":"b","at":1,"amount":3.0}'])
    expected = by_lane(run_log(plan, {"orders": log})[0])
    assert [value for _, value, _ in next(iter(expected["out"].values()))][:2] == [
        b'{"user":"A","at":1,"amount":2}',
        b'{"user":"a","at":1,"amount":2.0}',
    ]
    assert run(flow, [message.value for message in log]).delivered == expected


@dataclass(frozen=True)
class Rate:
    name: str
    rate: float = field(compare=False)


def test_records_of_a_broadcast_that_compare_equal_each_count() -> None:
    def fold(state: float, rate: Rate) -> float:
        return state + rate.rate if rate.rate else state

    def look(state: int, item: Item, rate: float) -> tuple[int, Rate]:
        return state, Rate(item.user, rate)

    flow = Flow("test")
    rates = flow.read("rates", kafka("rates", json(Rate))).broadcast("rate", fold, 0.0)
    keyed = flow.read("items", kafka("items", json(Item))).key_by("user")
    keyed.scan("look", look, 0, broadcast=rates).write("out", kafka("out", json(Rate)))
    plan = compile_flow(flow, parallelism=2, units=4, lanes=2)
    rated = messages([b'{"name":"a","rate":0.0}', b'{"name":"a","rate":2.0}', b'{"name":"a","rate":3.0}'])
    listed = messages([b'{"user":"a","number":1}', b'{"user":"b","number":1}', b'{"user":"c","number":1}'] * 2, front=1)
    programs = Programs(plan)
    programs.feed("rates", rated)
    programs.feed("items", listed)
    programs.finish()
    assert programs.delivered == by_lane(run_log(plan, {"rates": rated, "items": listed})[0])


def test_a_key_column_becomes_the_message_key() -> None:
    @dataclass(frozen=True)
    class Keyed:
        text: str
        number: int
        data: bytes
        maybe: int | None = None

    for key, expected in [("text", b"\xc3\xa4"), ("number", b"-7"), ("data", b"\xff"), ("maybe", None)]:
        flow = Flow("test")
        flow.read("orders", kafka("in", json(Keyed))).write("out", kafka("out", json(Keyed), key=key))
        ((one,),) = run(flow, [msgspec.json.encode(Keyed("ä", -7, b"\xff"))]).delivered["out"].values()
        assert one[0] == expected


def test_a_batch_is_split_by_worker_in_order() -> None:
    flow = Flow("test")
    flow.read("orders", kafka("orders", json(Order))).key_by("at").write("out", kafka("out", json(Order)))
    plan = compile_flow(flow, units=64, lanes=6, parallelism=3)
    rows = source_rows(messages([order("u", at) for at in range(100)]))
    rows.ticks = list(range(100))
    feed = Program(plan, 0).feed_source(0, rows)
    assert [parcel.target for parcel in feed.parcels] == [0, 1, 2]
    targets = plan.worker_of_unit().tolist()
    for parcel in feed.parcels:
        batch = parcel.batch
        ats = [row.at for row in batch.rows]
        assert ats == sorted(ats) == batch.ticks
        assert [position_of(at).sequence for at in batch.ats] == [10 + 2 * at for at in ats]
        assert {targets[unit] for unit in batch.units} == {parcel.target}
        assert parcel.payload == encode_rows(batch.rows)
    assert sorted(row.at for parcel in feed.parcels for row in parcel.batch.rows) == list(range(100))


def test_of_several_ways_each_has_a_number_in_the_child_path() -> None:
    """R4: one way alone has none."""
    flow = Flow("test")
    orders = flow.read("orders", kafka("orders", json(Order)))
    orders.key_by("user", name="first").write("a", kafka("a", json(Order)))
    plan = compile_flow(flow, parallelism=1)
    rows = source_rows(messages([order("u", 1)]))
    rows.ticks = [1]
    (parcel,) = Program(plan, 0).feed_source(0, rows).parcels
    assert path_of(parcel.batch.ats[0]) == ()
    orders.key_by("user", name="second").write("b", kafka("b", json(Order)))
    parcels = Program(compile_flow(flow, parallelism=1), 0).feed_source(0, rows).parcels
    assert [path_of(parcel.batch.ats[0]) for parcel in parcels] == [(1,), (2,)]
