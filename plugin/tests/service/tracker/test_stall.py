"""R10: min time that stands for no reason ends the life, and only that does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lowtide.service.tracker.stall import Stall
from lowtide.status.gauges import CallGauges, FrontGauges, WorkerGauges, WorkerState
from lowtide.status.tracker_report import TrackerReport
from lowtide_snapshots.cause import Cause
from lowtide_tracker import Holder, Traffic

ACK = Holder(5, 2, None)


def worker(**gauges: Any) -> WorkerState:
    """One that has sent such gauges."""
    return WorkerState(worker="1/0", level=1, gauges=WorkerGauges(**gauges))


IDLE = worker(busy=False)


def report(held: Holder | None) -> TrackerReport:
    return TrackerReport(1, 1, {1: 5, 2: 5}, 5, str(held), held, (), 0, 2, Traffic())


def text(cause: Cause | None) -> str:
    return str(cause or "")


def stood(held: Holder | None, workers: list[WorkerState], *, limit_s: float = 10.0) -> list[str]:
    """What is said each second for twice the limit."""
    stall = Stall(limit_s)
    return [text(stall.look(report(held), workers, 100.0 + second)) for second in range(21)]


def test_an_ack_that_nobody_works_on_is_named_after_the_limit() -> None:
    said = stood(ACK, [IDLE, IDLE])
    assert said[:10] == [""] * 10
    assert "not moved for 10 s" in said[10]
    assert "segment 2 has an open ack at tick 5" in said[10]


def test_a_call_that_is_not_open_excuses_nothing() -> None:
    waits = worker(busy=False, calls={"score": CallGauges(waiting=3, first=5)})
    assert "not moved for 10 s" in stood(ACK, [waits])[10]


def test_a_service_that_stood_still_itself_blames_nobody() -> None:
    stall = Stall(10.0)
    assert [text(stall.look(report(ACK), [IDLE], at_s)) for at_s in (100.0, 101.0, 170.0)] == [""] * 3
    assert (
        "not moved for 10 s" in [text(stall.look(report(ACK), [IDLE], 170.0 + second)) for second in range(1, 11)][-1]
    )


@pytest.mark.parametrize(
    ("held", "workers"),
    [
        (ACK, [IDLE, worker(busy=True)]),
        (ACK, [IDLE, worker(busy=False, calls={"score": CallGauges(open=1)})]),
        (ACK, [IDLE, WorkerState(worker="1/0", level=1)]),
        (Holder(5, 1, 3, at_front=True), [IDLE]),
        (None, [IDLE]),
    ],
    ids=[
        "a busy worker",
        "an open call",
        "a worker that has not said",
        "a slow front",
        "a tracker that is being rebuilt",
    ],
)
def test_what_has_a_reason_is_no_stall(held: Holder | None, workers: list[WorkerState]) -> None:
    assert set(stood(held, workers)) == {""}


def test_each_tick_and_each_work_begins_the_time_anew() -> None:
    stall = Stall(10.0)
    said = [text(stall.look(report(replace(ACK, tick=second // 5)), [IDLE], float(second))) for second in range(50)]
    said += [text(stall.look(report(ACK), [worker(busy=second % 8 == 0)], 50.0 + second)) for second in range(50)]
    assert set(said) == {""}


FRONT = FrontGauges(front=3, heartbeat=5, next_offset=7)
LIES = {3: ("orders-1", 7, 0.5)}


def unread(records: dict[int, tuple[str, int, float]], **front: object) -> list[str]:
    reading = worker(attached=True, busy=False, front=msgspec.structs.replace(FRONT, **front))
    stall = Stall(10.0)
    return [text(stall.unread(records, [IDLE, reading], 100.0 + second)) for second in range(21)]


def test_a_front_that_is_not_given_what_lies_in_its_partition_is_named_after_the_limit() -> None:
    said = unread(LIES)
    assert set(said[:10]) == {""}
    assert "min time is stuck at front orders-1: its worker has not received the record at offset 7" in said[12]


def test_a_front_that_is_stopped_or_has_read_on_waits_for_nothing() -> None:
    assert set(unread(LIES, pulling=False)) == {""}
    assert set(unread(LIES, next_offset=8)) == {""}
    assert set(unread({})) == {""}


def test_a_front_between_two_epochs_is_given_time() -> None:
    stall = Stall(10.0)
    given = (worker(attached=second % 9 != 0, front=FRONT) for second in range(60))
    said = [text(stall.unread(LIES, [each], float(second))) for second, each in enumerate(given)]
    assert set(said) == {""}
