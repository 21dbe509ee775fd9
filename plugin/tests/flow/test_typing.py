"""A type checker knows what a flow's streams hold: right flows pass it, wrong ones do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

FLOW = """\
from dataclasses import dataclass

import lowtide as lt


@dataclass(frozen=True)
class Order:
    user: str
    amount: int


@dataclass(frozen=True)
class Total:
    user: str
    amount: int


def add(total: int, order: Order) -> tuple[int, Total]:
    return total + order.amount, Total(order.user, total + order.amount)


def doubled(total: Total) -> Total:
    return Total(total.user, 2 * total.amount)


flow = lt.Flow("totals")
orders = flow.read("orders", lt.kafka("orders", lt.json(Order)))
avro = flow.read("avro", lt.kafka("avro", lt.avro(Order)))
raw = flow.read("raw", lt.kafka("raw", lt.raw()))
totals = orders.key_by("user").scan("add", add, 0)
"""
RIGHT = """\
reveal_type(orders)
reveal_type(avro)
reveal_type(raw)
reveal_type(totals)
totals.map(doubled).write("out", lt.kafka("out", lt.json(Total), key="user"))
"""
WRONG = """\
orders.map(doubled)
avro.map(doubled)
orders.key_by("user").scan("odd", add, "none")
totals.write("orders", lt.kafka("out", lt.json(Order)))
"""


def checked(tmp_path: Path, rest: str) -> list[str]:
    """What mypy says of each line of the rest, in order."""
    file = tmp_path / "some_flow.py"
    file.write_text(FLOW + rest)
    said, trouble, _ = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), "--no-error-summary", str(file)])
    assert not trouble
    first = FLOW.count("\n")
    found = [line.split(":", 3) for line in said.splitlines() if " note: Error" not in line]
    return [f"{int(number) - first}:{text}" for _, number, kind, text in found if kind in (" error", " note")]


def test_a_checker_knows_the_records_of_each_stream(tmp_path: Path) -> None:
    streams = [text.partition("Revealed type is ")[2] for text in checked(tmp_path, RIGHT)]
    assert [text.strip('"').replace("lowtide.flow.words.streams.", "") for text in streams] == [
        "Stream[some_flow.Order]",
        "Stream[some_flow.Order]",
        "Stream[lowtide.flow.schema.raw_record.Raw]",
        "Stream[some_flow.Total]",
    ]


def test_a_checker_refuses_a_step_or_sink_of_other_records(tmp_path: Path) -> None:
    wrong = {text.partition(":")[0] for text in checked(tmp_path, WRONG)}
    assert wrong == {"1", "2", "3", "4"}


pytestmark = pytest.mark.slow
