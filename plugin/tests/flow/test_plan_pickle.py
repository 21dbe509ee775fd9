import dataclasses
import runpy
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle
import pytest

from lowtide import Flow, json, kafka
from lowtide.errors import FlowError
from lowtide.flow.formats.formats import JsonFormat
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.plan.plan_pickle import dump_plan, load_plan

FLOWS = Path(__file__).parents[1] / "flows"


def test_a_flow_that_was_run_here_can_still_be_sent_to_workers() -> None:
    """Reading JSON leaves a cache at the dataclass, which cannot be pickled."""

    @dataclass(frozen=True)
    class Order:
        number: int

    def double(order: Order) -> Order:
        return Order(order.number * 2)

    flow = Flow("again")
    stream = flow.read("in", kafka("in", json(Order))).map(double, returns=Order)
    stream.write("out", kafka("out", json(Order)))
    assert flow.run_locally({"in": [b'{"number": 1}']})["out"] == [Order(2)]
    plan = load_plan(dump_plan(compile_flow(flow, parallelism=1)))
    assert [vertex.name for vertex in plan.vertices] == ["in", "double", "out/exchange", "out"]
    assert flow.run_locally({"in": [b'{"number": 2}']})["out"] == [Order(4)]


@dataclass(frozen=True)
class Basket:
    owner: str
    items: list[str] = field(default_factory=list)
    limit: int = 3
    shop: str = field(kw_only=True, default="here")


READ = """
import dataclasses, pickle, sys
import lowtide
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.flow.formats.formats import JsonFormat

Basket = pickle.load(open(sys.argv[1], "rb"))
owner, items, limit, _ = dataclasses.fields(Basket)
assert owner.default is owner.default_factory is limit.default_factory is dataclasses.MISSING
assert items.default is dataclasses.MISSING
rows = SourceRows(0, [0], [0], [None], [b'{"owner": "ann"}'])
decoded = JsonFormat(Basket).decode(rows)
assert not decoded.failures, decoded.failures
print(decoded.rows == [Basket("ann", [], 3, shop="here")], decoded.rows[0])
"""


def test_defaults_of_a_dataclass_are_the_same_in_a_worker(tmp_path: Path) -> None:
    """`dataclasses.MISSING` is compared by identity: a copy of it made each field one with a default."""
    file = tmp_path / "basket.pickle"
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        file.write_bytes(cloudpickle.dumps(Basket))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(file)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout.split(" ")[0]) == (0, "True"), done.stderr


def test_what_stands_for_nothing_is_pickled_by_name() -> None:
    for one in (dataclasses.MISSING, dataclasses.KW_ONLY):
        assert cloudpickle.loads(cloudpickle.dumps(one)) is one


RUN = """
import sys
from pathlib import Path
from lowtide.flow.schema.fields import decoder_of, encode_rows
from lowtide.flow.formats.formats import JsonFormat
from lowtide.local.run import run_plan
from lowtide.flow.plan.plan_pickle import load_plan

plan = load_plan(Path(sys.argv[1]).read_bytes())
assert "typed" not in sys.modules
out = run_plan(plan, {"readings": Path(sys.argv[2]).read_bytes().splitlines()})
record = next(vertex.gives for vertex in plan.vertices if vertex.name == "level")
assert decoder_of(record)(encode_rows(out["levels"])) == out["levels"]
print(out, JsonFormat(record).encode(out["levels"]))
"""


def test_a_flow_whose_module_workers_have_not_does_there_what_it_does_here(tmp_path: Path) -> None:
    """By value go enums, sentinels, defaults, annotations that are text, caches and new types: one of each, not two."""
    flow = load_flow(str(FLOWS / "typed.py"))
    assert isinstance(flow, Flow)
    readings: list[bytes] = runpy.run_path(str(FLOWS / "typed.py"))["READINGS"]
    plan, log = tmp_path / "plan", tmp_path / "readings"
    plan.write_bytes(dump_plan(compile_flow(flow, parallelism=1)))
    log.write_bytes(b"\n".join(readings))
    expected = flow.run_locally(readings=readings)
    assert (len(expected["levels"]), len(expected["dead-letters"])) == (6, 4)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(plan), str(log)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    written = JsonFormat(type(expected["levels"][0])).encode(expected["levels"])
    assert done.stdout.strip() == f"{expected} {written}", done.stderr


SENTINEL = """
from dataclasses import dataclass
from lowtide import Flow, json, kafka

@dataclass(frozen=True)
class Order:
    number: int

class Nothing:
    def __reduce__(self):
        return "NOTHING"

NOTHING = Nothing()

def same(order: Order) -> Order:
    return order if order is not NOTHING else Order(0)

flow = Flow("named")
flow.read("in", kafka("in", json(Order))).map(same).write("out", kafka("out", json(Order)))
"""


def test_what_is_pickled_by_a_name_that_workers_have_not_is_refused_and_named(tmp_path: Path) -> None:
    file = tmp_path / "named_flow.py"
    file.write_text(SENTINEL)
    plan = compile_flow(load_flow(str(file)), parallelism=1)
    with pytest.raises(FlowError, match="same > global 'NOTHING': NOTHING is pickled by its name, but workers have no"):
        dump_plan(plan)


LIMITED = """
import os
from dataclasses import dataclass

import lowtide as lt
from beside import SHOP

LIMIT = int(os.environ["ORDER_LIMIT"])


@dataclass(frozen=True)
class Order:
    shop: str
    amount: int


def capped(order: Order) -> Order:
    return Order(SHOP, min(order.amount, LIMIT))


flow = lt.Flow("limited")
flow.read("in", lt.kafka("in", lt.json(Order))).map(capped).write("out", lt.kafka("out", lt.json(Order)))
"""
CALLED = """
import sys
from pathlib import Path
from lowtide.flow.plan.plan_pickle import load_plan

(capped,) = [each.step.function for each in load_plan(Path(sys.argv[1]).read_bytes()).vertices if each.name == "capped"]
print(capped(capped.__globals__["Order"]("", 500)))
"""


def test_workers_have_the_environment_that_the_flows_file_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limited.py").write_text(LIMITED)
    (tmp_path / "beside.py").write_text('import os\n\nSHOP = os.environ["SHOP"]\n')
    monkeypatch.setenv("ORDER_LIMIT", "100")
    monkeypatch.setenv("SHOP", "here")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "plan").write_bytes(dump_plan(compile_flow(load_flow(str(tmp_path / "limited.py")), parallelism=1)))
    monkeypatch.setenv("ORDER_LIMIT", "7")
    monkeypatch.delenv("SHOP")
    done = subprocess.run(
        [sys.executable, "-c", CALLED, tmp_path / "plan"], check=False, capture_output=True, text=True, cwd="/"
    )
    assert done.stdout == "Order(shop='here', amount=100)\n", done.stderr
