"""What a flow's functions print and log is in the job's log, in whole lines with the worker's name."""

# ruff: noqa: T201 - a flow's functions may print

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from threading import Thread

import pytest
from stage_rig import Kept, Order, Rig, Served, deployment, packed

import lowtide as lt
from lowtide.flow.plan.compiler import compile_flow
from lowtide.worker.speech import LONGEST, log_as

LINE = re.compile(r"[\d-]+ [\d:,]+ lowtide worker (\S+) \d+ (\w+): (.*)")
LOG = logging.getLogger("shop.orders")


def printed(order: Order) -> Order:
    print("order", order.number, end="")
    print(f" of {order.user}")
    return order


def warned(total: int, order: Order) -> tuple[int, Order]:
    LOG.warning("order %d", order.number)
    return total + 1, order


@contextmanager
def logging_as(first: str) -> Iterator[StringIO]:
    """What a worker's process writes meanwhile."""
    log, streams = StringIO(), (sys.stdout, sys.stderr)
    root = logging.root
    handlers, level = root.handlers, root.level
    sys.stderr = log
    root.setLevel(logging.INFO)
    try:
        log_as(first)
        yield log
        sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = streams
        root.handlers = handlers
        root.setLevel(level)


def said(log: StringIO) -> list[tuple[str, str, str]]:
    """Each line's worker, level and text."""
    found = [LINE.fullmatch(line) for line in log.getvalue().splitlines()]
    assert all(found), log.getvalue()
    return [(each[1], each[2], each[3]) for each in found if each]


def test_each_line_has_the_name_of_the_worker_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)
    flow = lt.Flow("stage")
    stream = flow.read("orders", lt.kafka("orders", lt.json(Order))).map(printed).key_by("user").scan("seen", warned, 0)
    stream.write("out", lt.kafka("out", lt.json(Order), key="user"))
    plan = compile_flow(flow, parallelism=1, lanes=1, slack_ms=1)
    with Served() as tracker, logging_as("0/orders-0") as log:
        made = deployment(plan=plan, parallelism=1, limits=None)
        rig = Rig.of(made, tracker.address, hosts=1)
        rig.read(packed([{"user": "ada", "number": 5}]), 1)
        rig.read(packed([{"user": "bob", "number": 7}], 0), 0)
        rig.grant(20)
        rig.until(lambda: len(rig.delivered) >= 2)
    assert [each for each in said(log) if each[1] == "INFO"] == [
        ("0/orders-1", "INFO", "order 5 of ada"),
        ("0/orders-0", "INFO", "order 7 of bob"),
    ]
    assert {each for each in said(log) if each[1] == "WARNING"} == {
        ("1/0", "WARNING", "order 5"),
        ("1/0", "WARNING", "order 7"),
    }


def test_what_is_printed_comes_in_whole_lines() -> None:
    with logging_as("0/orders-0") as log:
        print("one\ntwo", end="")
        assert [text for _, _, text in said(log)] == ["one"]
        print("", "and", "a half", file=sys.stderr)
        print("x" * (LONGEST + 1), end="")
        print("left", end="")
    texts = [text for _, _, text in said(log)]
    assert texts == ["one", "two and a half", "x" * LONGEST, "x", "left"]


def test_a_line_of_no_worker_has_the_name_of_the_first() -> None:
    with logging_as("1/3") as log:
        thread = Thread(target=LOG.warning, args=["cache refreshed"])
        thread.start()
        thread.join()
        LOG.debug("not shown")
    assert said(log) == [("1/3", "WARNING", "cache refreshed")]
