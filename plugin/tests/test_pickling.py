from dataclasses import dataclass

from lowtide import Flow, json, kafka
from lowtide.compiler import compile_flow
from lowtide.pickling import dump_plan, load_plan


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
    assert flow.run_locally(**{"in": [b'{"number": 1}']})["out"] == [Order(2)]
    plan = load_plan(dump_plan(compile_flow(flow, parallelism=1)))
    assert [vertex.name for vertex in plan.vertices] == ["in", "double", "out/exchange", "out"]
    assert flow.run_locally(**{"in": [b'{"number": 2}']})["out"] == [Order(4)]
