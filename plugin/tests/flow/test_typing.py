"""A type checker knows what a flow's streams hold: right flows pass it, wrong ones do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

FLOW = """\
from dataclasses import dataclass
from datetime import datetime

import lowtide as lt


@dataclass(frozen=True)
class Order:
    user: str
    amount: int
    at: datetime


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
by_user = orders.key_by("user")
totals = by_user.scan("add", add, 0)
clock = lt.event_time("at", wait=lt.seconds(1))


def same(one: Order, other: Order) -> Order:
    return one


def alone(one: Order, other: Order | None) -> Order:
    return one
"""
RIGHT = """\
reveal_type(orders)
reveal_type(avro)
reveal_type(raw)
reveal_type(totals)
reveal_type(by_user.window("w", lt.tumbling(lt.minutes(5)), time=clock).reduce(same))
reveal_type(by_user.join("j", by_user, same, time=(clock, clock)))
reveal_type(by_user.join_asof("a", by_user, alone, time=clock, back=lt.hours(1)))
totals.map(doubled).write("out", lt.kafka("out", lt.json(Total), key="user"))
"""
WRONG = """\
orders.map(doubled)
avro.map(doubled)
orders.key_by("user").scan("odd", add, "none")
totals.write("orders", lt.kafka("out", lt.json(Order)))
lt.event_time("at")
by_user.window("w", lt.tumbling(lt.minutes(5)), time="at")
by_user.window("w", lt.tumbling(lt.minutes(5)), time=(clock, clock))
by_user.window("w", lt.tumbling(lt.minutes(5)), wait=lt.seconds(1))
by_user.join("j", by_user, same, time=("at", "at"))
by_user.join("j", by_user, same, time=(clock, clock, clock))
by_user.join("j", by_user, same, wait=lt.seconds(1))
by_user.join_asof("a", by_user, alone, back=lt.hours(1))
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
    assert [re.sub(r"lowtide\.flow\.words\.\w+\.", "", text.strip('"')) for text in streams] == [
        "Stream[some_flow.Order]",
        "Stream[some_flow.Order]",
        "Stream[lowtide.flow.schema.raw_record.Raw]",
        "Stream[some_flow.Total]",
        "Stream[some_flow.Order]",
        "Joined[some_flow.Order, some_flow.Order, some_flow.Order]",
        "Joined[some_flow.Order, some_flow.Order, some_flow.Order]",
    ]


def test_a_checker_refuses_a_step_or_sink_of_other_records(tmp_path: Path) -> None:
    wrong = {text.partition(":")[0] for text in checked(tmp_path, WRONG)}
    assert wrong == {str(number + 1) for number in range(WRONG.count("\n"))}


pytestmark = pytest.mark.slow
