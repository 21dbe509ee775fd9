"""Type checkers, mypy and pyright, know what a flow's streams hold: right flows pass them, wrong ones do not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from mypy import api

Checker = Callable[[Path, str], list[tuple[int, str]]]

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


async def asked(order: Order, session: int, key: str) -> Total:
    return Total(key, session)


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
reveal_type(orders.call("c", asked, timeout=lt.seconds(1)))
totals.map(doubled).write("out", lt.kafka("out", lt.json(Total), key="user"))
"""
WRONG = """\
orders.map(doubled)
avro.map(doubled)
orders.key_by("user").scan("odd", add, "none")
totals.write("orders", lt.kafka("out", lt.json(Order)))
lt.event_time("at")
totals.call("c", asked, timeout=lt.seconds(1))
by_user.window("w", lt.tumbling(lt.minutes(5)), time="at")
by_user.window("w", lt.tumbling(lt.minutes(5)), time=(clock, clock))
by_user.window("w", lt.tumbling(lt.minutes(5)), wait=lt.seconds(1))
by_user.join("j", by_user, same, time=("at", "at"))
by_user.join("j", by_user, same, time=(clock, clock, clock))
by_user.join("j", by_user, same, wait=lt.seconds(1))
by_user.join_asof("a", by_user, alone, back=lt.hours(1))
"""


def mypy(tmp_path: Path, rest: str) -> list[tuple[int, str]]:
    """mypy's findings in the rest, each with its line there."""
    file = tmp_path / "some_flow.py"
    file.write_text(FLOW + rest)
    said, trouble, _ = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), "--no-error-summary", str(file)])
    assert not trouble
    found = [line.split(":", 3) for line in said.splitlines() if " note: Error" not in line]
    return [(_line(int(number)), text) for _, number, kind, text in found if kind in (" error", " note")]


def pyright(tmp_path: Path, rest: str) -> list[tuple[int, str]]:
    """pyright's findings in the rest, each with its line there."""
    (tmp_path / "some_flow.py").write_text(FLOW + rest)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, "-p", tmp_path], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [(_line(each["range"]["start"]["line"] + 1), each["message"]) for each in found]


def _line(number: int) -> int:
    return number - FLOW.count("\n")


def _streams(said: Sequence[tuple[int, str]]) -> list[str]:
    """The types that a checker has revealed, without their modules."""
    types = [re.split(" is ", text, maxsplit=1)[1].strip('"') for _, text in said]
    return [re.sub(r"\b(lowtide(\.\w+)+|some_flow)\.", "", each) for each in types]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_checker_knows_the_records_of_each_stream(tmp_path: Path, checker: Checker) -> None:
    assert _streams(checker(tmp_path, RIGHT)) == [
        "Stream[Order]",
        "Stream[Order]",
        "Stream[Raw]",
        "Stream[Total]",
        "Stream[Order]",
        "Joined[Order, Order, Order]",
        "Joined[Order, Order, Order]",
        "Stream[Total]",
    ]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_checker_refuses_a_step_or_sink_of_other_records(tmp_path: Path, checker: Checker) -> None:
    assert {line for line, _ in checker(tmp_path, WRONG)} == set(range(1, WRONG.count("\n") + 1))


pytestmark = pytest.mark.slow
