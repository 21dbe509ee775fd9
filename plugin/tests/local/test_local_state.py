"""Steps with state, merges, broadcasts and loops in `run_locally`: what they do, and how it says what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from lowtide import Flow, KeyedStream, Stream, json, kafka, raw
from lowtide.core.operators.faults.failure import Dead, UserError
from lowtide.core.operators.order.order import Position
from lowtide.errors import FlowError, UserCodeFailed


@dataclass(frozen=True)
class Sale:
    shop: str
    amount: int


@dataclass(frozen=True)
class Told:
    shop: str
    text: str


@dataclass(frozen=True)
class Book:
    shops: dict[str, int] = field(default_factory=dict)
    last: list[int] = field(default_factory=list)


SALES, TOLD, DEAD = kafka("sales", json(Sale)), kafka("posted", json(Told)), kafka("dead", raw())


def a(*amounts: int) -> list[Sale]:
    return [Sale("a", amount) for amount in amounts]


def run(
    build: Callable[[KeyedStream[Sale]], Stream[Any]], sales: list[Sale], *, dead: Any = None, sink: Any = TOLD
) -> dict[str, list[Any]]:
    """The output of steps after a key_by; a list of texts where it is a list of Told."""
    flow = Flow("test", dead_letters=dead)
    build(flow.read("sales", SALES).key_by("shop")).write("out", sink)
    written = flow.run_locally(sales=sales)
    return written | {"out": [one.text if isinstance(one, Told) else one for one in written["out"]]}


def amounts(sales: tuple[Sale, ...]) -> Told:
    return Told(sales[-1].shop, " ".join(str(sale.amount) for sale in sales))


def total(state: int, sale: Sale) -> tuple[int, Told]:
    if sale.amount == 13:
        raise ValueError("thirteen")
    return state + sale.amount, Told(sale.shop, str(state + sale.amount))


# -- last ----------------------------------------------------------------------------------------------------------


def test_windows_stand_oldest_first_and_are_short_at_the_start() -> None:
    assert run(lambda keyed: keyed.last(2).map(amounts), a(1, 2, 3))["out"] == ["1", "1 2", "2 3"]
    assert run(lambda keyed: keyed.last(3).map(amounts), a(1, 2, 3, 4))["out"] == ["1", "1 2", "1 2 3", "2 3 4"]
    assert run(lambda keyed: keyed.last(1).map(amounts), a(1, 2))["out"] == ["1", "2"]


def test_windows_that_are_short_can_be_left_out() -> None:
    assert run(lambda keyed: keyed.last(3, partial=False).map(amounts), a(1, 2, 3, 4))["out"] == ["1 2 3", "2 3 4"]
    assert run(lambda keyed: keyed.last(3, partial=False).map(amounts), a(1, 2))["out"] == []


def test_every_key_has_windows_of_its_own() -> None:
    sales = [Sale("a", 1), Sale("b", 2), Sale("a", 3), Sale("b", 4)]
    assert run(lambda keyed: keyed.last(2).map(amounts), sales)["out"] == ["1", "2", "1 3", "2 4"]


def test_a_window_is_a_tuple_of_records_also_behind_a_filter() -> None:
    seen: list[tuple[Sale, ...]] = []

    def long(sales: tuple[Sale, ...]) -> bool:
        seen.append(sales)
        return len(sales) > 1

    assert run(lambda keyed: keyed.last(2).filter(long).map(amounts), a(1, 2))["out"] == ["1 2"]
    assert seen == [(Sale("a", 1),), (Sale("a", 1), Sale("a", 2))]


def test_a_function_that_fails_with_a_window_names_the_window() -> None:
    def fail(sales: tuple[Sale, ...]) -> Told:
        raise ValueError("no")

    with pytest.raises(UserError, match="raised ValueError: no") as caught:
        run(lambda keyed: keyed.last(2).map(fail), a(1))
    assert caught.value.where.endswith("record at front 0, offset 0: (Sale(shop='a', amount=1),)")
    (dead,) = run(lambda keyed: keyed.last(2).map(fail), a(1), dead=DEAD)["dead-letters"]
    assert dead == Dead("fail", Position(0, 0), 1, "raised ValueError: no", None, b'[{"shop":"a","amount":1}]')


# -- scan ----------------------------------------------------------------------------------------------------------


def test_a_scan_keeps_one_state_per_key() -> None:
    sales = [Sale("a", 1), Sale("b", 2), Sale("a", 3)]
    assert run(lambda keyed: keyed.scan("total", total, 0), sales)["out"] == ["1", "2", "4"]


def test_a_function_that_raises_leaves_the_state_as_it_was() -> None:
    written = run(lambda keyed: keyed.scan("total", total, 0), a(1, 13, 2), dead=DEAD)
    assert written["out"] == ["1", "3"]
    (dead,) = written["dead-letters"]
    assert dead == Dead("total", Position(0, 1), 1, "raised ValueError: thirteen", None, b'{"shop":"a","amount":13}')
    with pytest.raises(UserError, match='step "total": raised ValueError: thirteen') as caught:
        run(lambda keyed: keyed.scan("total", total, 0), a(1, 13))
    assert "in total" in caught.value.details
    assert "lowtide/local" not in caught.value.details


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ((0, Sale("a", 1)), "returned the output Sale, expected Told"),
        ((0, None), "returned the output None, expected Told"),
        (("0", Told("a", "1")), "returned the state str, expected int"),
        ((True, Told("a", "1")), "returned the state bool, expected int"),
        (None, "raised TypeError: cannot unpack non-iterable NoneType object"),
        ((0,), "raised ValueError: not enough values to unpack (expected 2, got 1)"),
    ],
)
def test_what_a_scan_returns_is_looked_at(result: Any, error: str) -> None:
    def scan(state: int, sale: Sale) -> tuple[int, Told]:
        return total(state, sale) if sale.amount else result

    written = run(lambda keyed: keyed.scan("scan", scan, 0), a(1, 0, 2), dead=DEAD)
    assert written["out"] == ["1", "3"]
    assert [dead.error for dead in written["dead-letters"]] == [error]


def in_place(state: Book, sale: Sale) -> tuple[Book, Told]:
    state.shops[sale.shop] = sale.amount
    return state, Told(sale.shop, str(sale.amount))


def in_place_and_anew(state: list[int], sale: Sale) -> tuple[list[int], Told]:
    state.append(sale.amount)
    return [*state], Told(sale.shop, str(sale.amount))


def in_place_and_raises(state: Book, sale: Sale) -> tuple[Book, Told]:
    if sale.amount > 1:
        state.last.append(sale.amount)
        raise ValueError("too late")
    return Book(last=[sale.amount]), Told(sale.shop, str(sale.amount))


@pytest.mark.parametrize(
    ("function", "initial"), [(in_place, Book()), (in_place_and_anew, []), (in_place_and_raises, Book())]
)
@pytest.mark.parametrize("dead", [None, DEAD])
def test_a_state_that_is_changed_in_place_is_an_error_that_names_the_step(
    function: Any, initial: Any, dead: Any
) -> None:
    with pytest.raises(UserCodeFailed, match='step "book": changed its state in place') as caught:
        run(lambda keyed: keyed.scan("book", function, initial), a(1, 2), dead=dead)
    assert "record at front 0, offset" in caught.value.where
    assert "dataclasses.replace(state, ...)" in caught.value.way_out


def test_the_initial_state_is_a_copy_and_stays_as_it_is() -> None:
    initial = Book({"x": 1})

    def scan(state: Book, sale: Sale) -> tuple[Book, Told]:
        return Book({**state.shops, sale.shop: sale.amount}), Told(sale.shop, " ".join(state.shops))

    flow = Flow("test")
    flow.read("sales", SALES).key_by("shop").scan("book", scan, initial).write("out", TOLD)
    initial_texts = [one.text for one in flow.run_locally(sales=[Sale("a", 1), Sale("b", 1)])["out"]]
    assert initial_texts == ["x", "x"]
    assert [one.text for one in flow.run_locally(sales=[Sale("a", 1)])["out"]] == ["x"]


def test_a_state_that_no_column_can_hold_is_an_error_in_any_case() -> None:
    def scan(state: Book, sale: Sale) -> tuple[Book, Told]:
        return Book({"a": "b"}), Told(sale.shop, "")  # type: ignore[dict-item]

    with pytest.raises(UserCodeFailed, match=r"cannot be saved: state.shops\{\} is 'b', expected int"):
        run(lambda keyed: keyed.scan("book", scan, Book()), a(1), dead=DEAD)


# -- merge ---------------------------------------------------------------------------------------------------------


def test_a_merge_has_the_records_of_all_its_streams_in_order() -> None:
    flow = Flow("test")
    sales = flow.read("sales", SALES)
    keyed = sales.key_by("shop")
    keyed.scan("total", total, 0).merge(keyed.last(2).map(amounts), name="both").write("out", TOLD)
    written = flow.run_locally(sales=a(1, 2))["out"]
    assert [one.text for one in written] == ["1", "1", "3", "1 2"]


def test_sources_are_merged_in_the_order_they_were_written() -> None:
    flow = Flow("test")
    sales, more = flow.read("sales", SALES), flow.read("more", SALES)
    more.merge(sales, name="both").key_by("shop").scan("total", total, 0).write("out", TOLD)
    assert [one.text for one in flow.run_locally(more=a(10, 20), sales=a(1, 2))["out"]] == ["1", "3", "13", "33"]


# -- broadcast -----------------------------------------------------------------------------------------------------


def largest(state: int, sale: Sale) -> int:
    if sale.amount == 13:
        raise ValueError("thirteen")
    return max(state, sale.amount) if sale.amount != 14 else "14"  # type: ignore[return-value]


def share(state: int, sale: Sale, most: int) -> tuple[int, Told]:
    return state + sale.amount, Told(sale.shop, f"{state + sale.amount}/{most}")


def beside(flow: Flow) -> None:
    sales = flow.read("sales", SALES)
    most = sales.broadcast("most", largest, 0)
    sales.key_by("shop").scan("share", share, 0, broadcast=most).write("out", TOLD)


def test_a_scan_sees_the_broadcast_as_of_its_record() -> None:
    flow = Flow("test")
    beside(flow)
    written = flow.run_locally(sales=[Sale("a", 1), Sale("b", 5), Sale("a", 2)])["out"]
    assert [one.text for one in written] == ["1/1", "5/5", "3/5"]


def test_a_step_written_before_the_broadcast_sees_what_was_before() -> None:
    flow = Flow("test")
    sales = flow.read("sales", SALES)
    keyed = sales.key_by("shop")
    keyed.scan("share", share, 0, broadcast=sales.broadcast("most", largest, 0)).write("out", TOLD)
    assert [one.text for one in flow.run_locally(sales=a(1, 5, 2))["out"]] == ["1/0", "6/1", "8/5"]


def test_a_broadcast_that_fails_leaves_the_state_and_one_dead_letter() -> None:
    flow = Flow("test", dead_letters=DEAD)
    beside(flow)
    written = flow.run_locally(sales=a(1, 13, 14))
    assert [one.text for one in written["out"]] == ["1/1", "14/1", "28/1"]
    assert [(dead.vertex, dead.error) for dead in written["dead-letters"]] == [
        ("most", "raised ValueError: thirteen"),
        ("most", "returned the state str, expected int"),
    ]


def test_a_broadcasts_state_is_not_changed_in_place_either() -> None:
    def see(state: Book, sale: Sale) -> Book:
        return Book(last=[sale.amount])

    def spoil(state: int, sale: Sale, book: Book) -> tuple[int, Told]:
        book.last.append(7)
        return state, Told(sale.shop, "")

    flow = Flow("test")
    sales = flow.read("sales", SALES)
    sales.key_by("shop").scan("spoil", spoil, 0, broadcast=sales.broadcast("book", see, Book())).write("out", TOLD)
    with pytest.raises(UserCodeFailed, match='step "book": changed its state in place'):
        flow.run_locally(sales=a(1))


# -- loop ----------------------------------------------------------------------------------------------------------


def halve(sale: Sale) -> Sale:
    return Sale(sale.shop, sale.amount // 2)


def above_one(sale: Sale) -> bool:
    return sale.amount > 1


def test_a_loop_takes_records_through_until_they_have_had_enough() -> None:
    written = run(
        lambda keyed: keyed.loop("halves", lambda body: body.map(halve), above_one, limit_turns=9),
        a(40, 1, 7),
        sink=SALES,
    )
    assert written["out"] == a(1, 0, 1)


def test_the_state_of_a_body_sees_every_turn() -> None:
    def count(state: int, sale: Sale) -> tuple[int, Sale]:
        return state + 1, Sale(sale.shop, sale.amount // 2)

    flow = Flow("test")
    keyed = flow.read("sales", SALES).key_by("shop")
    turns: list[int] = []

    def spied(state: int, sale: Sale) -> tuple[int, Sale]:
        turns.append(state)
        return count(state, sale)

    keyed.loop("loop", lambda body: body.scan("turns", spied, 0), above_one, limit_turns=9).write("out", SALES)
    assert flow.run_locally(sales=a(8, 4))["out"] == a(1, 1)
    assert turns == [0, 1, 2, 3, 4]


def test_what_a_body_multiplies_goes_round_on_its_own_depth_first() -> None:
    def smaller(sale: Sale) -> Iterator[Sale]:
        for amount in range(sale.amount):
            yield Sale(sale.shop, amount)

    written = run(
        lambda keyed: keyed.loop("loop", lambda body: body.flat_map(smaller), above_one, limit_turns=9),
        a(4),
        sink=SALES,
    )
    # 4 -> 0 1 2 3; 2 -> 0 1; 3 -> 0 1 2; 2 -> 0 1
    assert written["out"] == a(0, 1, 0, 1, 0, 1, 0, 1)


@pytest.mark.parametrize(("amount", "turns"), [(8, 3), (16, 4)])
def test_a_record_that_goes_round_too_often_fails(amount: int, turns: int) -> None:
    def build(limit: int) -> Callable[[KeyedStream[Sale]], Stream[Sale]]:
        return lambda keyed: keyed.loop("loop", lambda body: body.map(halve), above_one, limit_turns=limit)

    assert run(build(turns), a(amount), sink=SALES)["out"] == a(1)
    with pytest.raises(UserError, match=f'step "loop": needs another turn after {turns - 1} turns'):
        run(build(turns - 1), a(amount), sink=SALES)
    written = run(build(turns - 1), a(amount, 2), sink=SALES, dead=DEAD)
    assert written["out"] == a(1)
    (dead,) = written["dead-letters"]
    assert (dead.vertex, dead.value) == ("loop", b'{"shop":"a","amount":2}')


def test_a_record_keeps_its_key_in_a_loop() -> None:
    def move(sale: Sale) -> Sale:
        return Sale(sale.shop + "a", sale.amount // 2)

    with pytest.raises(UserError, match='step "loop": goes round the loop again with a different shop'):
        run(lambda keyed: keyed.loop("loop", lambda body: body.map(move), above_one, limit_turns=3), a(8), sink=SALES)


def test_a_loops_condition_is_a_bool() -> None:
    def again(sale: Sale) -> bool:
        return sale.amount  # type: ignore[return-value]

    with pytest.raises(UserError, match='step "loop": returned int, expected bool'):
        run(lambda keyed: keyed.loop("loop", lambda body: body.map(halve), again, limit_turns=3), a(8), sink=SALES)


def test_a_deep_loop_is_no_problem() -> None:
    def less(sale: Sale) -> Sale:
        return Sale(sale.shop, sale.amount - 1)

    def build(keyed: KeyedStream[Sale]) -> Stream[Sale]:
        def body(stream: Stream[Sale]) -> Stream[Sale]:
            for number in range(10):
                stream = stream.filter(lambda sale: True, name=f"step-{number}")
            return stream.map(less)

        return keyed.loop("loop", body, above_one, limit_turns=255)

    assert run(build, a(256), sink=SALES)["out"] == a(1)


def test_a_flow_with_a_mistake_does_not_run() -> None:
    with pytest.raises(FlowError, match="write cannot take the windows"):
        run(lambda keyed: keyed.last(2), a(1))


def test_a_state_that_a_snapshot_would_change_is_an_error() -> None:
    """It would be another one after a recovery, and may be written out as other bytes."""

    def scan(state: float, sale: Sale) -> tuple[float, Told]:
        return int(state) + sale.amount, Told(sale.shop, "")

    with pytest.raises(
        UserCodeFailed, match=r"cannot be saved as it is: 3 comes back from a snapshot as 3\.0"
    ) as caught:
        run(lambda keyed: keyed.scan("sum", scan, 0.0), [Sale("a", 3)])
    assert "use floats where floats are declared" in caught.value.way_out
