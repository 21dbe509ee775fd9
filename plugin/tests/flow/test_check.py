"""`lowtide check` without its command line: files are loaded, faults named, plans pickled."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from lowtide import Flow, json, kafka
from lowtide.errors import FlowError
from lowtide.flow.plan.check import check_flow, dump_plan, load_flow, load_plan, render
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.explain import explain
from lowtide.flow.plan.plan_pickle import PLAN_LIMIT_BYTES

FLOWS = Path(__file__).parents[1] / "flows"


@dataclass(frozen=True)
class Order:
    user: str


def test_a_sound_file_has_no_findings() -> None:
    for name in ("passthrough", "words"):
        flow = load_flow(str(FLOWS / f"{name}.py"))
        assert (flow.name, check_flow(flow)) == (name, [])
    assert render(flow, []) == 'flow "words" is sound: 8 steps'


def test_every_fault_of_a_file_is_found_with_its_line() -> None:
    file = FLOWS / "faults.py"
    flow = load_flow(f"{file}:flow")
    findings = check_flow(flow)
    lines = file.read_text().splitlines()
    found = [(lines[finding.site.line - 1].split("(")[0], finding.message) for finding in findings if finding.site]
    taken = next(index for index, line in enumerate(lines, 1) if line.startswith("orders = "))
    unnamed = "map needs a name, because its function has none: add name="
    mixed = 'sink "unnamed" is written to topic "out", too: their order would be by chance; merge the streams before '
    mixed += "one sink, or give each a place of its own"
    assert found == [
        ("orders.map", unnamed),
        ("again = orders.map", "total takes Order, but Total arrives"),
        ("again.write", "a message's key must be str, int, bytes or UUID, but 'sums' is dict[str, float]"),
        ("orders.map", "spent: a record must be a dataclass, found float"),
        ("orders.key_by", "Order has no column 'usr'; it has user, at"),
        ("orders.key_by", f"this name is already used at {file}:{taken}; rename one of the two with name="),
        ("orders.key_by", "the sink takes Total, but Order arrives"),
        ("orders.map", "nothing takes these records; end the stream with .write(...), or remove the step"),
        ("orders.key_by", mixed),
    ]
    text = render(flow, findings)
    assert text.splitlines()[-1] == 'flow "faults" has 9 faults'
    assert f'{file}:{taken + 1}: "map": {unnamed}' in text


def test_what_cannot_be_pickled_is_named_with_function_and_global() -> None:
    (finding,) = check_flow(load_flow(str(FLOWS / "faults.py") + ":held"))
    assert finding.step == "locked"
    assert "cannot be sent to workers: locked > global 'lock': cannot pickle '_thread.lock' object" in finding.message


class Holder:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def step(self, order: Order) -> Order:
        return order


def capturing() -> Callable[[Order], Order]:
    connection = Holder()

    def inner(order: Order) -> Order:
        return connection.step(order)

    def outer(order: Order) -> Order:
        return inner(order)

    return outer


@pytest.mark.parametrize(
    ("function", "trail"),
    [
        (capturing(), "outer > captured 'inner' > captured 'connection' > attribute 'lock': cannot pickle"),
        (Holder().step, "Holder.step > the object 'Holder' > attribute 'lock': cannot pickle"),
    ],
)
def test_the_way_to_what_cannot_be_pickled_is_named(function: Any, trail: str) -> None:
    flow = Flow("test")
    stream = flow.read("orders", kafka("orders", json(Order)))
    stream.map(function, name="step", returns=Order).write("out", kafka("out", json(Order)))
    (finding,) = check_flow(flow)
    assert trail in finding.message
    with pytest.raises(FlowError, match="cannot be sent to workers"):
        dump_plan(compile_flow(flow, parallelism=1))


def test_a_plan_that_holds_a_table_of_data_is_refused() -> None:
    table = bytes(PLAN_LIMIT_BYTES)
    flow = Flow("test")
    stream = flow.read("orders", kafka("orders", json(Order)))
    stream.map(lambda order: Order(order.user + str(len(table))), name="step", returns=Order).write(
        "out", kafka("out", json(Order))
    )
    with pytest.raises(FlowError, match=f"the limit is {PLAN_LIMIT_BYTES}"):
        dump_plan(compile_flow(flow, parallelism=1))


def test_a_pickled_plan_is_the_same_plan() -> None:
    plan = compile_flow(load_flow(str(FLOWS / "words.py")), parallelism=2)
    loaded = load_plan(dump_plan(plan))
    assert explain(loaded) == explain(plan)
    assert [vertex.gives for vertex in loaded.vertices] == [vertex.gives for vertex in plan.vertices]


WORKER = """
import sys
from lowtide.flow.plan.plan_pickle import load_plan
from lowtide.core.operators.program import Program
from lowtide.core.fronts.source_rows import SourceRows
plan = load_plan(open(sys.argv[1], "rb").read())
rows = SourceRows(0, [0], [0], [None], [b'{"name": "a", "text": "To be!"}'], ticks=[0])
parcel = Program(plan, 0).feed_source(0, rows).parcels[0]
sys.stdout.write(repr(parcel.batch.rows))
"""


@pytest.fixture
def nothing_by_value() -> Iterator[None]:
    """As in a program of one's own: no module is pickled by value yet."""
    registered = [sys.modules[name] for name in cloudpickle.list_registry_pickle_by_value()]
    for module in registered:
        cloudpickle.unregister_pickle_by_value(module)
    yield
    for module in registered:
        cloudpickle.register_pickle_by_value(module)


@pytest.mark.usefixtures("nothing_by_value")
def test_a_worker_needs_neither_the_flows_file_nor_the_modules_beside_it(tmp_path: Path) -> None:
    plan = compile_flow(load_flow(str(FLOWS / "words.py")), parallelism=1)
    (tmp_path / "plan").write_bytes(dump_plan(plan))
    command = [sys.executable, "-c", WORKER, str(tmp_path / "plan")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout == "[Word(word='to', document='a'), Word(word='be', document='a')]"


def write(folder: Path, text: str) -> str:
    file = folder / "some_flow.py"
    file.write_text(text)
    return str(file)


def test_a_file_without_a_flow_or_with_several_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="does not exist"):
        load_flow(str(tmp_path / "nothing.py"))
    with pytest.raises(FlowError, match="makes no flow"):
        load_flow(write(tmp_path, "x = 1"))
    two = "from lowtide import Flow\na = Flow('a')\nb = Flow('b')\nagain = a\n"
    with pytest.raises(FlowError, match=r"makes 2 flows") as caught:
        load_flow(write(tmp_path, two))
    assert caught.value.way_out == "choose one: some_flow.py:a, some_flow.py:b, some_flow.py:again"
    assert load_flow(write(tmp_path, two) + ":b").name == "b"
    with pytest.raises(FlowError, match="has no flow named c"):
        load_flow(write(tmp_path, two) + ":c")
    assert load_flow(write(tmp_path, "from lowtide import Flow\na = Flow('a')\nb = a\n")).name == "a"


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("x = 1\n1 / 0\n", "raised ZeroDivisionError: division by zero", 2),
        ("x = 1\nx = = 2\n", "raised SyntaxError: invalid syntax", 2),
        ("import nothing_of_this_name\n", "raised ModuleNotFoundError", 1),
        ("import sys\nsys.exit('enough')\n", "raised SystemExit: enough", 2),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_its_line(tmp_path: Path, text: str, what: str, line: int) -> None:
    with pytest.raises(FlowError, match=what) as caught:
        load_flow(write(tmp_path, text))
    assert caught.value.where == f"{tmp_path / 'some_flow.py'}:{line}"


def test_a_file_named_like_a_loaded_module_is_loaded_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "json.py"
    file.write_text("from lowtide import Flow\nflow = Flow('mine')\n")
    assert load_flow(str(file)).name == "mine"
    import json as of_python

    assert of_python.loads("1") == 1


CHECK = """
import sys, time
from lowtide.flow.plan.check import check_flow, load_flow
check_flow(load_flow(sys.argv[1]))
sys.stdout.write(f"{time.process_time()} {' '.join({'pyspark', 'confluent_kafka'} & set(sys.modules))}")
"""


def test_a_check_takes_under_two_seconds_and_no_spark() -> None:
    command = [sys.executable, "-c", CHECK, str(FLOWS / "words.py")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, _, heavy = done.stdout.partition(" ")
    assert float(seconds) < 2  # of the processor, as other tests may keep it from us
    assert heavy == ""
