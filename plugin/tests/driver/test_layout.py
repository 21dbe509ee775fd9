"""What a leader writes beside its lease, and by what a standby knows its own flow and conf in it."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lowtide.conf import Conf
from lowtide.driver.layout import layout_of
from lowtide.flow.plan.compiler import compile_job
from lowtide_snapshots.job.layout import Layout

FLOW = """
from dataclasses import dataclass
import lowtide as lt

@dataclass
class Order:
    item: str
    pieces: int

def total(so_far: int, order: Order) -> tuple[int, Order]:
    return so_far + order.pieces, Order(order.item, so_far + order.pieces)

flow = lt.Flow("orders")
orders = flow.read("orders", lt.kafka("orders", lt.json(Order))).key_by("item").scan("total", total, 0)
orders.write("totals", lt.kafka("totals", lt.json(Order)))
"""


def layout(where: Path, text: str = FLOW, **settings: Any) -> Layout:
    where.mkdir(exist_ok=True)
    file = where / "orders.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"orders_{where.name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    conf = replace(Conf(), job=replace(Conf().job, **settings))
    return layout_of(compile_job(module.flow, conf), conf)


def test_the_same_flow_elsewhere_is_the_same(tmp_path: Path) -> None:
    here, there = layout(tmp_path / "here"), layout(tmp_path / "there", folder="/elsewhere", stop_limit_s=7.0)
    assert here == there
    assert (here.levels, here.parallelism, here.lanes) == (2, 2, 32)
    assert Layout.of(here.fields()) == here


@pytest.mark.parametrize(
    ("changed", "settings", "what"),
    [
        (FLOW.replace('"totals",', '"sums",'), {}, "the flow's steps or the text of its files"),
        (FLOW.replace("so_far + order.pieces)", "order.pieces)"), {}, "the flow's steps or the text of its files"),
        (FLOW, {"parallelism": 3}, "parallelism (2 there, 3 here)"),
        (FLOW, {"slack_ms": 5}, "job.slack_ms (2 there, 5 here)"),
        (FLOW, {"delivery": "at_least_once"}, "job.delivery (exactly_once there, at_least_once here)"),
    ],
)
def test_another_flow_or_conf_is_named(tmp_path: Path, changed: str, settings: dict[str, Any], what: str) -> None:
    assert what in layout(tmp_path / "here").differences(layout(tmp_path / "there", changed, **settings))


def test_a_parameter_is_compared_and_not_shown(tmp_path: Path) -> None:
    one, other = (layout(tmp_path / value, parameters={"key": value}) for value in ("secret", "another"))
    assert len(one.differences(other)) == 1
    assert "secret" not in str(one.fields())
