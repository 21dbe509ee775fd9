"""Losses on a running job: a frame that never arrives, and a zero that is none; the next life makes up for it.

And what is none: a function that takes long.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import HANGS_S, wait_until

from lowtide import Flow, kafka
from lowtide import json as as_json
from lowtide.assignment.client import ServiceClient
from lowtide.driver.job import Job
from lowtide.errors import LifeEnded
from lowtide.process.role import is_worker

if TYPE_CHECKING:
    from tests.conftest import Spark

    from lowtide.assignment.setting import LifeSetting

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

AT = 13
"""The record at which it happens."""


@dataclass(frozen=True)
class Order:
    user: str
    number: int


def once(marker: Path, harm: Callable[[], None]) -> Callable[[Order], Order]:
    """A step that lets something happen to what its worker sends next, in the first life."""

    def step(order: Order) -> Order:
        if order.number == AT and is_worker():
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                return order
            harm()
        return order

    return step


def lose_frames() -> None:
    """From now on no frame that leaves this process arrives, and nobody is notified."""
    from lowtide.process.wire import Kind
    from lowtide.worker.link import Link

    real = Link.send

    def send(self: Link, kind: Kind, *parts: bytes) -> None:
        if kind is not Kind.OUT:
            real(self, kind, *parts)

    Link.send = send  # type: ignore[method-assign]


def lose_frame() -> None:
    """The next frame that leaves this process is lost without an error."""
    from lowtide.process.wire import Kind
    from lowtide.worker.link import Link

    real = Link.send

    def send(self: Link, kind: Kind, *parts: bytes) -> None:
        if kind is not Kind.OUT:
            real(self, kind, *parts)
            return
        Link.send = real  # type: ignore[method-assign]

    Link.send = send  # type: ignore[method-assign]


def force_zero() -> None:
    """The next frame is not folded, so that the tracker sees a zero, and is under way until another one follows it."""
    from lowtide.process.wire import Kind
    from lowtide.worker.link import Link
    from lowtide_tracker import LocalTracker

    real, fold = Link.send, LocalTracker.fold
    held: list[tuple[bytes, ...]] = []

    def skip(self: LocalTracker, segment: int, ticks: Any, value: int) -> None:
        LocalTracker.fold = fold  # type: ignore[method-assign]

    def send(self: Link, kind: Kind, *parts: bytes) -> None:
        if kind is Kind.OUT and not held:
            held.append(tuple(map(bytes, parts)))
            return
        if kind is Kind.OUT:
            Link.send = real  # type: ignore[method-assign]
            real(self, kind, *held[0])
        real(self, kind, *parts)

    LocalTracker.fold, Link.send = skip, send  # type: ignore[method-assign]


def total(state: int, order: Order) -> tuple[int, Order]:
    return state + order.number, Order(order.user, state + order.number)


def same(order: Order) -> Order:
    return order


@pytest.fixture
def topics(spark: Spark) -> tuple[str, str]:
    return spark.kafka.topic("orders"), spark.kafka.topic("out")


def flow_of(topics: tuple[str, str], step: Callable[[Order], Order]) -> Flow:
    flow = Flow(f"losses-{uuid.uuid4().hex[:8]}")
    orders = flow.read("orders", kafka(topics[0], as_json(Order))).map(step, name="step").key_by("user")
    orders.scan("total", total, 0).write("out", kafka(topics[1], as_json(Order), key="user"))
    return flow


def orders(*numbers: int) -> list[dict[str, Any]]:
    return [{"user": "ann", "number": number} for number in numbers]


SETTINGS = {"job__parallelism": 1, "worker__processes": 2, "job__stall_limit_ms": 3000, "epoch__duration_s": 60.0}
"""Each worker in a process of its own; an epoch does not end meanwhile, which would count the frames."""


STANDS = ("min time has not moved", "has an open ack at tick", "A frame or its ack was lost")
GAP = ("a frame was lost on the way from worker number", "expected number")


@pytest.mark.parametrize(
    ("harm", "expected"), [(lose_frames, STANDS), (lose_frame, GAP)], ids=["nothing follows it", "another follows it"]
)
def test_a_lost_frame_is_named_and_replayed(
    spark: Spark,
    topics: tuple[str, str],
    tmp_path: Path,
    harm: Callable[[], None],
    expected: tuple[str, ...],
) -> None:
    """T9, H5, R10: min time stands until the stall is named, or the gap is; the next life delivers all."""
    flow = flow_of(topics, once(tmp_path / "lost", harm))
    with spark.job(flow, **SETTINGS) as job:
        spark.kafka.produce(topics[0], orders(1, 2))
        assert spark.kafka.records(topics[1], 2) == orders(1, 3)
        spark.kafka.produce(topics[0], orders(AT))
        if expected is GAP:
            wait_until((tmp_path / "lost").exists, HANGS_S, "the record was read")
            spark.kafka.produce(topics[0], orders(4))
        else:
            wait_until(lambda: "an open ack of segment 1" in job.client().status().holder, HANGS_S, "status says so")
        with pytest.raises(LifeEnded) as caught:
            job.wait()
    assert all(words in str(caught.value) for words in expected), str(caught.value)
    assert spark.kafka.records(topics[1], 2) == orders(1, 3)
    with spark.job(flow, **SETTINGS):
        if expected is STANDS:
            spark.kafka.produce(topics[0], orders(4))
        assert spark.kafka.records(topics[1], 4) == orders(1, 3, 3 + AT, 7 + AT)


def test_a_false_zero_ends_the_life_before_anything_wrong_is_delivered(
    spark: Spark, topics: tuple[str, str], tmp_path: Path
) -> None:
    """T9: min time passes a frame that is under way; when it comes the life ends, and what it held back is not late."""
    flow = flow_of(topics, once(tmp_path / "forced", force_zero))
    with spark.job(flow, **SETTINGS) as job:
        spark.kafka.produce(topics[0], orders(1, 2))
        assert spark.kafka.records(topics[1], 2) == orders(1, 3)
        spark.kafka.produce(topics[0], orders(AT))
        # The front is idle then, so floors move min time on; the next frame brings the one that is held.
        passed_ms = spark.kafka.messages(topics[0], 3)[-1].timestamp()[1] + 10
        wait_until(lambda: (job.client().status().min_time_ms or 0) > passed_ms, HANGS_S, "min time passes the frame")
        spark.kafka.produce(topics[0], orders(4))
        with pytest.raises(LifeEnded) as caught:
            job.wait()
    said = str(caught.value)
    assert "a record of tick" in said
    assert "had been released" in said
    assert "nothing wrong has been delivered" in said
    assert spark.kafka.records(topics[1], 2) == orders(1, 3)
    with spark.job(flow, **SETTINGS):
        spark.kafka.produce(topics[0], orders(5))
        assert spark.kafka.records(topics[1], 5) == orders(1, 3, 3 + AT, 7 + AT, 12 + AT)


LIMIT_S = 8
"""Longer than the service takes gauges for true that nothing follows."""


def test_a_function_that_takes_longer_than_a_stall_may_is_none(
    spark: Spark, topics: tuple[str, str], tmp_path: Path
) -> None:
    """The front in its process does not read on meanwhile, though the service sees that there is something to read."""
    entered, gate = tmp_path / "entered", tmp_path / "gate"

    def wait() -> None:
        entered.touch()
        wait_until(gate.exists, HANGS_S, "the gate is opened")

    flow = flow_of(topics, once(tmp_path / "waited", wait))
    settings = SETTINGS | {"worker__processes": 1, "job__stall_limit_ms": LIMIT_S * 1000}
    with spark.job(flow, **settings) as job:
        spark.kafka.produce(topics[0], orders(1, AT))
        wait_until(entered.exists, HANGS_S, "the function has begun")
        spark.kafka.produce(topics[0], orders(2))
        ends = time.monotonic() + 2 * LIMIT_S
        job.wait(lambda: time.monotonic() < ends)
        gate.touch()
        assert spark.kafka.records(topics[1], 3) == orders(1, 1 + AT, 3 + AT)


def test_a_life_whose_service_was_slow_to_begin_it_is_over(
    spark: Spark, topics: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has given up on the answer; the life that the service then begins would refuse every later one."""
    begin = ServiceClient.begin

    def impatient(self: ServiceClient, setting: LifeSetting, deployment: bytes) -> tuple[str, str]:
        self._connection.settimeout(1e-6)
        return begin(self, setting, deployment)

    flow = flow_of(topics, same)
    monkeypatch.setattr(ServiceClient, "begin", impatient)
    with pytest.raises(LifeEnded, match="Lowtide's service is gone"):
        Job.start(flow, spark.conf(**SETTINGS))
    monkeypatch.undo()
    spark.kafka.produce(topics[0], orders(1, 2))
    with spark.job(flow, **SETTINGS):
        assert spark.kafka.records(topics[1], 2) == orders(1, 3)
