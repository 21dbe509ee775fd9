"""Refusals of a flow: their words, and where they say the fault is."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import pyarrow as pa
import pytest

import lowtide as lt
from lowtide import Flow, KeyedStream, Raw, json, kafka, raw
from lowtide.errors import FlowError
from lowtide.flow.other_words import OF_AGGREGATES, OF_FLOWS, OF_STREAMS
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.types.findings import FlowRefused
from lowtide.flow.types.inference import Inference


@dataclass(frozen=True)
class Order:
    user: str
    at: int


@dataclass(frozen=True)
class Total:
    user: str
    total: float


@dataclass(frozen=True)
class Rush(Order):
    pass


ORDERS = kafka("orders", json(Order))
TOTALS = kafka("totals", json(Total))


def total(order: Order) -> Total:
    return Total(order.user, 0.0)


def findings(build: Callable[[Any], Any], source: Any = ORDERS) -> list[str]:
    """The faults of a flow that starts with one source."""
    flow = Flow("test")
    build(flow.read("orders", source))
    return [finding.message for finding in Inference(flow).findings]


def test_a_sound_flow_has_no_findings() -> None:
    assert findings(lambda orders: orders.map(total).key_by("user").write("out", TOTALS)) == []


def test_a_finding_names_file_line_step_and_both_types() -> None:
    flow = Flow("test")
    flow.read("orders", ORDERS).map(total).map(total, name="again").write("out", TOTALS)  # type: ignore[arg-type]  # as mypy says
    with pytest.raises(FlowRefused) as caught:
        compile_flow(flow, parallelism=1)
    (finding,) = caught.value.findings
    line = sys._getframe().f_code.co_firstlineno + 2
    assert str(finding) == f'{__file__}:{line}: "again": total takes Order, but Total arrives'


def test_a_multi_line_chain_names_the_line_of_the_step() -> None:
    flow = Flow("test")
    (
        flow.read("orders", ORDERS)
        .map(total)
        .key_by("usr")
        .write("out", TOTALS)
    )  # fmt: skip
    (finding,) = Inference(flow).findings
    assert finding.site is not None
    assert finding.site.line == sys._getframe().f_code.co_firstlineno + 5
    assert finding.message == "Total has no column 'usr'; it has user, total"


def test_every_fault_is_named_not_only_the_first() -> None:
    def build(orders: Any) -> None:
        orders.map(lambda order: order, returns=Order).key_by("nothing").write("out", TOTALS)
        orders.filter(total)

    assert findings(build) == [
        "map needs a name, because its function has none: add name=",
        "Order has no column 'nothing'; it has user, at",
        "the sink takes Total, but Order arrives",
        "total must return bool, its annotation says Total",
        "nothing takes these records; end the stream with .write(...), or remove the step",
    ]


def two(_order: Order) -> Iterator[Order]:
    yield from ()


def gen(_order: Order) -> Generator[Order, None, None]:
    yield from ()


def listed(_order: Order) -> list[Order]:
    return []


def many(_order: Order) -> Iterable[Order]:
    return ()


def tupled(_order: Order) -> tuple[Order, ...]:
    return ()


@pytest.mark.parametrize("function", [two, gen, listed, many, tupled])
def test_flat_map_takes_any_ordered_iterable(function: Any) -> None:
    assert findings(lambda orders: orders.flat_map(function).write("out", ORDERS)) == []


def as_set(_order: Order) -> set[Order]:
    return set()


def as_pair(_order: Order) -> tuple[Order, Total]:
    raise NotImplementedError


def no_element(_order: Order) -> list:  # type: ignore[type-arg]
    return []


def as_number(_order: Order) -> int:
    return 1


def maybe(_order: Order) -> Order | None:
    return None


def of_nothing() -> Order:
    raise NotImplementedError


def of_two(_order: Order, _other: Order) -> Order:
    raise NotImplementedError


async def later(order: Order) -> Order:
    return order


def silent(order):  # type: ignore[no-untyped-def]
    return order


def misspelt(order: Ordr) -> Order:  # type: ignore[name-defined]  # noqa: F821
    raise NotImplementedError


@pytest.mark.parametrize(
    ("step", "function", "message"),
    [
        ("flat_map", as_set, "as_set returns a set, whose order is not repeatable"),
        ("flat_map", as_pair, "must return an iterable of one record type"),
        ("flat_map", no_element, r"must return an iterable such as list\[Record\]"),
        ("flat_map", total, "must return an iterable such as"),
        ("map", as_number, "a record must be a dataclass, found int"),
        ("map", maybe, "a record must be a dataclass, found .*Order | None"),
        ("map", two, r"a record must be a dataclass, found .*Iterator\["),
        ("map", of_nothing, "must take one argument, the record"),
        ("map", of_two, "must take one argument, the record"),
        ("map", later, "later is asynchronous"),
        ("map", silent, "silent does not say what it returns: annotate it, or add returns=Type"),
        ("map", misspelt, "has annotations that cannot be read .NameError: name 'Ordr' is not defined"),
        ("filter", later, "later is asynchronous"),
    ],
)
def test_a_function_that_does_not_fit_is_refused(step: str, function: Any, message: str) -> None:
    (finding,) = findings(lambda orders: getattr(orders, step)(function).write("out", ORDERS))
    import re

    assert re.search(message, finding), finding


def of_anything(_order: Any) -> Order:
    raise NotImplementedError


def of_object(_order: object) -> Order:
    raise NotImplementedError


def of_either(_order: Order | Total) -> Order:
    raise NotImplementedError


def of_rush(_order: Rush) -> Order:
    raise NotImplementedError


@pytest.mark.parametrize("function", [of_anything, of_object, of_either])
def test_a_function_may_take_more_than_what_arrives(function: Any) -> None:
    assert findings(lambda orders: orders.map(function).write("out", ORDERS)) == []


def test_a_function_may_not_take_less_than_what_arrives() -> None:
    assert findings(lambda orders: orders.map(of_rush).write("out", ORDERS)) == [
        "of_rush takes Rush, but Order arrives"
    ]
    rushes = kafka("rushes", json(Rush))
    assert findings(lambda orders: orders.map(total).write("out", TOTALS), rushes) == []


def test_a_lambda_and_a_partial_need_a_name_and_a_type() -> None:
    def build(orders: Any) -> None:
        orders.map(lambda order: Total(order.user, 1.0), name="one", returns=Total).write("a", TOTALS)
        orders.map(functools.partial(total), name="two").write("b", kafka("b", json(Total)))
        orders.filter(lambda order: order.at > 0, name="three").write("c", ORDERS)

    assert findings(build) == []
    assert findings(lambda orders: orders.map(functools.partial(total)).write("b", TOTALS)) == [
        "map needs a name, because its function has none: add name="
    ]
    assert findings(lambda orders: orders.map(lambda order: Total(order.user, 1.0)).write("b", TOTALS)) == [
        "map needs a name, because its function has none: add name=",
        "<lambda> does not say what it returns: a lambda cannot, so add returns=Type",
    ]
    assert findings(lambda orders: orders.filter(lambda order: order.at > 0).write("b", ORDERS)) == [
        "filter needs a name, because its function has none: add name="
    ]


def test_returns_must_not_contradict_the_annotation() -> None:
    assert findings(lambda orders: orders.map(total, returns=Order).write("out", TOTALS)) == [
        "total returns Total, but returns= says Order"
    ]


def test_a_stream_keyed_twice_by_the_same_columns_is_one_keyed_stream() -> None:
    flow = Flow("test")
    orders = flow.read("orders", ORDERS)
    orders.key_by("user").write("a", kafka("a", json(Order)))
    orders.key_by("at").write("b", kafka("b", json(Order)))
    orders.key_by("user").write("c", kafka("c", json(Order)))
    orders.key_by("user", name="again").write("d", kafka("d", json(Order)))
    plan = compile_flow(flow, parallelism=1)
    assert [each.name for each in plan.vertices if each.is_exchange] == ["orders/by-user", "orders/by-at", "again"]
    orders.map(total, name="orders/by-user").write("e", TOTALS)
    messages = [finding.message for finding in Inference(flow).findings]
    assert any(message.startswith("this name is already used") for message in messages), messages


def test_a_name_is_taken_once_and_both_places_are_named() -> None:
    flow = Flow("test")
    orders = flow.read("orders", ORDERS)
    orders.map(total).write("a", TOTALS)
    orders.map(total).write("b", kafka("b", json(Total)))
    (finding,) = Inference(flow).findings
    first = sys._getframe().f_code.co_firstlineno + 3
    assert finding.message == f"this name is already used at {__file__}:{first}; rename one of the two with name="
    assert finding.site is not None
    assert finding.site.line == first + 1


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "ä", "a" * 101, "a b"])
def test_a_name_that_is_no_path_segment_is_refused(name: str) -> None:
    (finding,) = findings(lambda orders: orders.map(total, name=name).write("out", TOTALS))
    assert finding.startswith("not a valid step name")


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "ä", "a" * 101, "a b", 7])
def test_a_flow_whose_name_is_no_path_segment_is_refused_at_once_with_the_place(name: Any) -> None:
    with pytest.raises(FlowError, match="is not a valid flow name") as caught:
        Flow(name)
    assert caught.value.where == f"{__file__}:{sys._getframe().f_lineno - 1}"
    assert "use letters, digits" in caught.value.way_out


def test_the_name_of_the_dead_letters_is_taken() -> None:
    (finding,) = findings(lambda orders: orders.write("dead-letters", ORDERS))
    assert "this name is already used" in finding


def test_the_same_key_by_behind_two_steps_needs_no_name() -> None:
    def build(orders: Any) -> None:
        orders.key_by("user").write("a", ORDERS)
        orders.map(total).key_by("user").write("b", TOTALS)

    assert findings(build) == []


@dataclass(frozen=True)
class Odd:
    at: float
    tags: list[str]
    name: str


@pytest.mark.parametrize(("column", "kind"), [("at", "float"), ("tags", r"list[str]")])
def test_a_column_that_cannot_be_a_key_is_refused(column: str, kind: str) -> None:
    odds = kafka("odds", json(Odd))
    (finding,) = findings(lambda odd: odd.key_by(column).write("out", odds), odds)
    assert finding.startswith(f"{column!r} is {kind}, which cannot be a key")
    (finding,) = findings(lambda odd: odd.write("out", kafka("odds", json(Odd), key=column)), odds)
    assert finding.startswith("a message's key must be str, int, bytes or UUID")


def test_raw_records_bring_their_own_key() -> None:
    messages = kafka("in", raw())
    assert findings(lambda stream: stream.write("out", kafka("out", raw())), messages) == []
    assert findings(lambda stream: stream.write("out", kafka("out", raw(), key="key")), messages) == [
        "raw() records bring their own key; leave out key="
    ]


def test_dead_letters_are_raw() -> None:
    flow = Flow("test", dead_letters=kafka("dead", json(Order)))
    flow.read("orders", ORDERS).write("out", ORDERS)
    (finding,) = Inference(flow).findings
    assert finding.message.startswith("dead letters hold the failed message's bytes")


def test_a_flow_that_reads_nothing_is_refused() -> None:
    (finding,) = Inference(Flow("test")).findings
    assert finding.message.startswith("the flow reads nothing")


def test_map_batches_names_its_type() -> None:
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    assert findings(lambda orders: orders.map_batches(double, Order).write("out", ORDERS)) == []
    (finding,) = findings(lambda orders: orders.map_batches(double, int).write("out", ORDERS))
    assert finding == "double: a record must be a dataclass, found int"


def test_wrong_arguments_are_refused_at_once_with_the_place() -> None:
    flow = Flow("test")
    with pytest.raises(FlowError, match=r"read takes kafka\(topic, format\), found 'orders'") as caught:
        flow.read("orders", "orders")  # type: ignore[arg-type]
    assert caught.value.where == f"{__file__}:{sys._getframe().f_lineno - 1}"
    with pytest.raises(FlowError, match="a source has no key="):
        flow.read("orders", kafka("orders", json(Order), key="user"))
    orders = flow.read("orders", ORDERS)
    with pytest.raises(FlowError, match="expected a function, found 1"):
        orders.map(1)  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="key_by takes column names, found none"):
        orders.key_by()
    with pytest.raises(FlowError, match=r"(?s)key_by takes column names, found a function.*map it into a field first"):
        orders.key_by(lambda order: order.user)  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="write takes kafka"):
        orders.write("out", "out")  # type: ignore[arg-type]
    with pytest.raises(FlowError, match=r"(?s)kafka takes a format, found Order.*lt.kafka\('in', lt.json\(Order\)\)"):
        kafka("in", Order)  # type: ignore[arg-type]
    with pytest.raises(FlowError, match="kafka takes a format, found 'json'"):
        kafka("in", "json")  # type: ignore[arg-type]
    for taken, argument in signature(Flow.run_locally).parameters.items():
        if argument.kind is not Parameter.VAR_KEYWORD:
            with pytest.raises(FlowError, match=f'a source cannot be called "{taken}"'):
                flow.read(taken, ORDERS)
    with pytest.raises(FlowError, match="merge needs a name"):
        orders.merge(flow.read("more", ORDERS))
    with pytest.raises(FlowError, match="aggregate takes the dataclass of its results"):
        orders.key_by("user").aggregate("spent", n=lt.agg.count())


def test_words_of_other_systems_name_ours() -> None:
    flow = Flow("test")
    orders = flow.read("orders", ORDERS)
    for word, ours in (("groupBy", "key_by"), ("withColumn", "map"), ("union", "merge"), ("print", "run_locally")):
        with pytest.raises(FlowError, match=rf"(?s)has no {word}.*{ours}"):
            getattr(orders, word)
    with pytest.raises(FlowError, match=r"lowtide run flow\.py"):
        getattr(flow, "start")  # noqa: B009 - a checker knows that there is none
    with pytest.raises(FlowError, match=r"write lt\.agg\.mean"):
        getattr(lt.agg, "avg")  # noqa: B009
    for words, owner in ((OF_STREAMS, KeyedStream), (OF_FLOWS, Flow), (OF_AGGREGATES, lt.agg)):
        assert not words.keys() & set(dir(owner)), "a word that is ours, too, never gets there"
    assert dir(lt.agg) == sorted(lt.agg.__all__)


def test_importing_lowtide_loads_no_heavy_library() -> None:
    heavy = ["numpy", "pyarrow", "pyspark", "confluent_kafka", "click", "msgspec", "cloudpickle"]
    program = f"import sys, lowtide; sys.exit(' '.join(set({heavy}) & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_raw_is_a_record() -> None:
    def key(message: Raw) -> Raw:
        return message

    messages = kafka("in", raw())
    assert findings(lambda stream: stream.map(key).key_by("key").write("out", messages), messages) == []
