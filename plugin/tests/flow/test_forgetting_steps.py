"""Steps that forget, reduce, aggregate and give many: what they say of their types, and what they are refused for."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import lowtide as lt
from lowtide.core.operators.faults.failure import UserError
from lowtide.core.operators.keyed.scan import ScanGrouping
from lowtide.core.operators.order.order import Position
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.plan.plan_pickle import dump_plan
from lowtide.flow.types.findings import FlowRefused
from lowtide.flow.types.inference import Inference
from lowtide.local.run import Message, run_log


@dataclass(frozen=True)
class Order:
    user: str
    amount: int = 0
    price: float = 1.0


@dataclass(frozen=True)
class Spent:
    user: str
    amount: int
    orders: int


ORDERS = lt.kafka("orders", lt.json(Order))


def larger(one: Order, other: Order) -> Order:
    return max(one, other, key=lambda order: order.amount)


def to_text(one: Order, other: Order) -> str:
    raise NotImplementedError


def of_text(one: str, other: Order) -> Order:
    raise NotImplementedError


def of_one(one: Order) -> Order:
    raise NotImplementedError


def halves(count: int, order: Order) -> tuple[int, Iterator[Order]]:
    return count + 1, (Order(order.user, part) for part in (order.amount // 2, count))


def single(count: int, order: Order) -> tuple[int, Order]:
    return count + 1, order


def unordered(count: int, order: Order) -> tuple[int, set[Order]]:
    raise NotImplementedError


def silent(count, order):  # type: ignore[no-untyped-def]
    raise NotImplementedError


def findings(build: Callable[[Any], Any]) -> list[str]:
    flow = lt.Flow("test")
    build(flow.read("orders", ORDERS).key_by("user")).write("out", lt.kafka("out", lt.json(Order)))
    return [finding.message for finding in Inference(flow, 2).findings]


def plan_of(build: Callable[[Any], Any], record: Any = Order, **rest: Any) -> Any:
    flow = lt.Flow("test", **rest)
    build(flow.read("orders", ORDERS).key_by("user")).write("out", lt.kafka("out", lt.json(record)))
    return compile_flow(flow, parallelism=1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.reduce("r", to_text), "to_text must return Order, its annotation says str"),
        (lambda s: s.reduce("r", of_text), "of_text takes str, but Order arrives"),
        (lambda s: s.reduce("r", of_one), "of_one must take two arguments, result and record"),
        (lambda s: s.flat_scan("f", single, 0), "must return an iterable such as list[Record], its annotation says"),
        (
            lambda s: s.flat_scan("f", unordered, 0),
            "returns a set, whose order is not repeatable; return a sorted list",
        ),
        (lambda s: s.flat_scan("f", silent, 0), "annotate it -> tuple[State, list[Output]], or add returns=Output"),
        (lambda s: s.aggregate("a", Spent, amount=lt.agg.sum("amount")), "nothing fills Spent.orders"),
        (lambda s: s.aggregate("a", 3, orders=lt.agg.count()), "a record must be a dataclass, found 3"),
        (
            lambda s: s.scan("s", single, 0, ttl=lt.millis(1)),
            "ttl=1 ms is shorter than a tick, which is 2 ms",
        ),
        (lambda s: s.last(2, ttl=lt.millis(1.9)), "is shorter than a tick, which is 2 ms"),
        (lambda s: s.deduplicate("d", within=lt.millis(1)), "within=1 ms is shorter than a tick"),
        (lambda s: s.aggregate("a", Spent, ttl=lt.millis(1)), "ttl=1 ms is shorter than a tick"),
    ],
)
def test_what_does_not_fit_is_found(build: Callable[[Any], Any], message: str) -> None:
    found = findings(build)
    assert message in found[0]


@pytest.mark.parametrize("duration", [3600, 0, timedelta(), -lt.hours(1), "1h"])
@pytest.mark.parametrize(
    "build",
    [
        lambda s, duration: s.scan("s", single, 0, ttl=duration),
        lambda s, duration: s.flat_scan("f", halves, 0, ttl=duration),
        lambda s, duration: s.reduce("r", larger, ttl=duration),
        lambda s, duration: s.aggregate("a", Spent, ttl=duration),
        lambda s, duration: s.last(2, ttl=duration),
        lambda s, duration: s.deduplicate("d", within=duration),
    ],
)
def test_a_duration_is_a_timedelta_above_zero(build: Callable[[Any, Any], Any], duration: Any) -> None:
    with pytest.raises(FlowError, match=r"(ttl|within)=, a duration above zero, found .*(?s:.*)lt\.hours\(1\)"):
        findings(lambda stream: build(stream, duration))


@pytest.mark.parametrize("step", ["flat_scan", "reduce", "aggregate", "deduplicate"])
def test_they_work_per_key(step: str) -> None:
    flow = lt.Flow("test")
    with pytest.raises(FlowError, match=f"{step} works per key"):
        getattr(flow.read("orders", ORDERS), step)
    keyed: Any = flow.read("more", ORDERS).key_by("user")
    calls: dict[str, Callable[[], Any]] = {
        "flat_scan": lambda: keyed.flat_scan(halves, halves, 0),
        "reduce": lambda: keyed.reduce(larger, larger),
        "aggregate": lambda: keyed.aggregate(Spent, Spent),
        "deduplicate": lambda: keyed.deduplicate(1, within=lt.days(1)),
    }
    with pytest.raises(FlowError, match=f"{step} takes a name first"):
        calls[step]()


def test_a_ttl_of_exactly_a_tick_is_long_enough() -> None:
    assert not findings(lambda stream: stream.scan("s", single, 0, ttl=lt.millis(2)))


def test_a_plan_tells_what_is_forgotten_and_when() -> None:
    explained = explain(
        plan_of(lambda stream: stream.deduplicate("once", within=lt.days(1)).key_by("user").reduce("r", larger))
    )
    assert "deduplicate: Order of orders/by-user within 1 day, 0:00:00" in explained
    assert "reduce: Order of once/by-user -> Order, with the state Order | None" in explained
    explained = explain(plan_of(lambda stream: stream.scan("s", single, 0, ttl=lt.hours(1))))
    assert "with the state int, forgotten after 1:00:00" in explained
    summed = {"amount": lt.agg.sum("amount"), "orders": lt.agg.count()}
    explained = explain(plan_of(lambda stream: stream.aggregate("a", Spent, **summed), Spent))
    assert "aggregate: Order of orders/by-user -> Spent, with the state SpentState" in explained


# -- split ---------------------------------------------------------------------------------------------------------


def is_large(order: Order) -> bool:
    return order.amount >= 10


def perhaps(order: Order) -> bool | None:
    return None if order.amount == 13 else order.amount >= 10


unsaid: Any = lambda order: None if order.amount == 13 else order.amount >= 10  # noqa: E731 - it says no type


def test_a_split_parts_records_and_calls_its_function_once_for_each() -> None:
    calls: list[Order] = []

    def counted(order: Order) -> bool:
        calls.append(order)
        return is_large(order)

    flow = lt.Flow("test")
    large, small = flow.read("orders", ORDERS).split(counted)
    large.write("large", lt.kafka("large", lt.json(Order)))
    small.write("small", lt.kafka("small", lt.json(Order)))
    made = [Order("a", 5), Order("b", 50), Order("a", 10)]
    out = flow.run_locally(orders=made)
    assert (out["large"], out["small"]) == ([made[1], made[2]], [made[0]])
    assert calls == made


def test_what_a_split_cannot_part_is_one_dead_letter() -> None:
    flow = lt.Flow("test", dead_letters=lt.kafka("dead", lt.raw()))
    large, small = flow.read("orders", ORDERS).split(perhaps, name="parted")  # type: ignore[arg-type]
    large.write("large", lt.kafka("large", lt.json(Order)))
    small.write("small", lt.kafka("small", lt.json(Order)))
    with pytest.raises(FlowRefused, match=r"must return bool, its annotation says bool \| None"):
        compile_flow(flow, parallelism=1)
    flow = lt.Flow("test", dead_letters=lt.kafka("dead", lt.raw()))
    large, small = flow.read("orders", ORDERS).split(unsaid, name="parted")
    large.write("large", lt.kafka("large", lt.json(Order)))
    small.write("small", lt.kafka("small", lt.json(Order)))
    out = flow.run_locally(orders=[Order("a", 13), Order("b", 1)])
    assert (out["large"], out["small"]) == ([], [Order("b", 1)])
    assert [letter.error for letter in out["dead-letters"]] == ["returned None, expected bool"]


def test_a_side_that_nobody_takes_is_found() -> None:
    flow = lt.Flow("test")
    large, _ = flow.read("orders", ORDERS).split(is_large)
    large.write("large", lt.kafka("large", lt.json(Order)))
    (finding,) = Inference(flow).findings
    assert finding.message == (
        "nothing takes the records for which is_large returns False; end their stream with .write(...), "
        "or use filter instead"
    )


def test_sides_come_together_again() -> None:
    flow = lt.Flow("test")
    large, small = flow.read("orders", ORDERS).key_by("user").reduce("r", larger).split(is_large)
    small.map(lambda order: Order(order.user, 0), name="none", returns=Order).merge(large, name="both").write(
        "out", lt.kafka("out", lt.json(Order))
    )
    out = flow.run_locally(orders=[Order("a", 5), Order("a", 50), Order("b", 1)])
    assert out["out"] == [Order("a", 0), Order("a", 50), Order("b", 0)]


# -- what they come to -------------------------------------------------------------------------------------------------


def test_a_reduce_gives_the_first_record_and_then_what_its_function_makes() -> None:
    flow = lt.Flow("test")
    keyed = flow.read("orders", ORDERS).key_by("user")
    keyed.reduce("largest", larger).write("out", lt.kafka("out", lt.json(Order)))
    made = [Order("a", 1), Order("b", 5), Order("a", 3), Order("a", 2)]
    assert flow.run_locally(orders=made)["out"] == [Order("a", 1), Order("b", 5), Order("a", 3), Order("a", 3)]


def test_a_column_may_have_the_name_of_an_argument() -> None:
    @dataclass(frozen=True)
    class Named:
        name: str
        returns: int

    flow = lt.Flow("test")
    keyed = flow.read("orders", ORDERS).key_by("user")
    named = keyed.aggregate("named", Named, name=lt.agg.latest("user"), returns=lt.agg.count())
    named.write("out", lt.kafka("out", lt.json(Named)))
    assert flow.run_locally(orders=[Order("a"), Order("a")])["out"] == [Named("a", 1), Named("a", 2)]


def test_a_sum_of_more_than_64_bits_is_the_failure_of_its_record() -> None:
    flow = lt.Flow("test", dead_letters=lt.kafka("dead", lt.raw()))
    keyed = flow.read("orders", ORDERS).key_by("user")
    spent = keyed.aggregate("spent", Spent, amount=lt.agg.sum("amount"), orders=lt.agg.count())
    spent.write("out", lt.kafka("out", lt.json(Spent)))
    full = (1 << 63) - 1
    out = flow.run_locally(orders=[Order("a", full), Order("a", 1), Order("a", -1)])
    assert out["out"] == [Spent("a", full, 1), Spent("a", full - 1, 2)]
    assert "OverflowError: the sum does not fit into 64 bits" in out["dead-letters"][0].error


def test_an_output_of_a_wrong_type_fails_with_its_record() -> None:
    flow = lt.Flow("test")

    def wrong(count: int, order: Order) -> tuple[int, list[Order]]:
        return count, [order, None]  # type: ignore[list-item]

    keyed = flow.read("orders", ORDERS).key_by("user")
    keyed.flat_scan("wrong", wrong, 0, returns=Order).write("out", lt.kafka("out", lt.json(Order)))
    with pytest.raises(UserError, match="gave None, expected Order"):
        flow.run_locally(orders=[Order("a")])


def message(offset: int, at_ms: int, user: str, amount: int = 0) -> Message:
    return Message(Position(0, offset), at_ms, None, b'{"user":"%s","amount":%d}' % (user.encode(), amount))


def test_a_state_exactly_ttl_old_is_gone() -> None:
    """A tick is 2 ms: what is 10 ms old by ticks is gone, 9 ms of timestamps may be that."""

    def delivered(build: Callable[[Any], Any], *moments_ms: int) -> list[bytes | None]:
        plan = plan_of(build)
        log = [message(offset, at, "a", offset + 1) for offset, at in enumerate(moments_ms)]
        out, _ = run_log(plan, {"orders": log})
        return [one.value for one in out["out"]]

    def count(state: int, order: Order) -> tuple[int, Order]:
        return state + 1, Order(order.user, state + 1)

    def counted(*moments_ms: int) -> list[int]:
        found = delivered(lambda stream: stream.scan("s", count, 0, ttl=lt.millis(10)), *moments_ms)
        return [int((value or b"").split(b'"amount":')[1].split(b",")[0]) for value in found]

    assert counted(0, 9, 17, 19) == [1, 2, 3, 4]
    assert counted(0, 10, 19, 30) == [1, 1, 2, 1]
    assert counted(1, 10) == [1, 1], "by the starts of their ticks"
    assert counted(0, 8, 16, 24) == [1, 2, 3, 4], "each record prolongs it"
    once = delivered(lambda stream: stream.deduplicate("d", within=lt.millis(10)), 0, 8, 10, 18, 20, 31)
    assert len(once) == 4, "those that are left out do not"


# -- on their way to workers -------------------------------------------------------------------------------------------

FLOW = """
from dataclasses import dataclass
import lowtide as lt

@dataclass(frozen=True)
class Order:
    user: str
    amount: int

@dataclass(frozen=True)
class Spent:
    user: str
    largest: int | None
    tags: int

def longest(state: str, user: str) -> str:
    return max(state, user, key=len)

def larger(one: Order, other: Order) -> Order:
    return max(one, other, key=lambda order: order.amount)

flow = lt.Flow("spent")
orders = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("user")
spent = orders.aggregate(
    "spent", Spent, largest=lt.agg.max_by("amount", by="amount"),
    tags=lt.Aggregate("", longest, finish=len, column="user"), ttl=lt.hours(1),
)
spent.write("spent", lt.kafka("spent", lt.json(Spent)))
orders.reduce("largest", larger).write("largest", lt.kafka("largest", lt.json(Order)))
"""

LOOK = """
import sys
import threading
from lowtide.core.operators.program import Program
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.flow.plan.plan_pickle import load_plan

plan = load_plan(open(sys.argv[1], "rb").read())
program = Program(plan, 1)
entry = next(vertex for vertex in plan.vertices if vertex.is_exchange)
for tick, amount in ((1, 5), (2, 3)):
    row = entry.gives("ann", amount)
    feed = program.feed(entry.id, Batch([OrderKey(tick, 0, tick).packed()], [0], [row]))
for _, batch in feed.delivers:
    print(batch.rows[0])
state = program.capture(10)
for name, step in saved_steps(plan).items():
    again = step.entries(step.table(state[name][0]))
    print(repr(again) == repr(state[name][0]), again)
"""


def test_a_worker_needs_not_the_flows_file_for_them(tmp_path: Path) -> None:
    file = tmp_path / "spent_flow.py"
    file.write_text(FLOW)
    plan = tmp_path / "plan"
    plan.write_bytes(dump_plan(compile_flow(load_flow(str(file)), parallelism=1)))
    file.unlink()
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(plan)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Spent(user='ann', largest=5, tags=3)",
        "Order(user='ann', amount=5)",
        "True [('ann', (SpentState(largest=(Order(user='ann', amount=5),), tags='ann'), 2))]",
        "True [('ann', Order(user='ann', amount=5))]",
    ]


def test_what_an_aggregate_holds_that_cannot_be_pickled_is_named() -> None:
    lock = threading.Lock()

    def add(state: int, order: Order) -> int:
        return state + (lock is not None)

    plan = plan_of(
        lambda stream: stream.aggregate("a", Spent, amount=lt.Aggregate(0, add), orders=lt.agg.count()), Spent
    )
    with pytest.raises(FlowError, match=r"cannot be sent to workers.*captured 'lock'"):
        dump_plan(plan)


def test_a_scan_is_no_more_than_it_was() -> None:
    plan = plan_of(lambda stream: stream.scan("s", single, 0))
    vertex = next(vertex for vertex in plan.vertices if vertex.name == "s")
    assert ScanGrouping(vertex, ["user"])._scan.function is single


def test_a_missing_key_column_is_reported_once_for_all() -> None:
    flow = lt.Flow("test")
    keyed = flow.read("orders", ORDERS).key_by("nobody")
    keyed.aggregate("a", Spent, amount=lt.agg.sum("amount")).write("out", lt.kafka("out", lt.json(Spent)))
    with pytest.raises(FlowRefused, match="Order has no column 'nobody'"):
        compile_flow(flow, parallelism=1)
