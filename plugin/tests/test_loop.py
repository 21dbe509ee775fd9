"""The worker's loop looks up from its work: nobody who connects, and no long backlog, keeps it from what is due."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

from lowtide.errors import UserCodeFailed
from lowtide.wire import Kind, head

if TYPE_CHECKING:
    from tests.conftest import Life, Task

FRAMES = 300
NAP_S = 0.01


class Napping:
    """A stage that takes `NAP_S` for a frame."""

    raising = False

    def frames(self, messages: list[bytes], _now: int) -> list[tuple[int, bytes]]:
        if b"raise" in messages:
            self.raising = True
            return []
        if b"large" in messages:
            return [(0, bytes(1 << 20)) for _ in range(32)]
        time.sleep(NAP_S * len(messages))
        return [(0, message) for message in messages]

    def end(self, _epoch: int, _now: int) -> list[tuple[int, bytes]]:
        return []

    def tick(self, _now: int) -> list[tuple[int, bytes]]:
        if self.raising:
            time.sleep(0.5)
            raise UserCodeFailed("it raised late")
        return []

    def full(self) -> bool:
        return False

    def gauges(self) -> dict[str, Any]:
        return {}

    def close(self, _timeout_s: float) -> int:
        return 0


class Deployment:
    max_queued_bytes = 1 << 20
    max_frame_rows = 100

    def stage(self, _level: int, _name: str, _number: int) -> Napping:
        return Napping()


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["Napping"]))


@pytest.fixture
def task(life: Life) -> Task:
    life.begin(Deployment())
    answer = life.attach("1/0", 0)
    assert not isinstance(answer, str), answer
    return answer


def many(count: int) -> bytes:
    return b"".join(head(Kind.FRAME, 4) + number.to_bytes(4, "little") for number in range(count))


def test_output_goes_out_while_what_came_with_it_is_still_worked_off(task: Task) -> None:
    begun = time.monotonic()
    task.connection.sendall(many(FRAMES) + head(Kind.END, 8) + bytes(8))
    came = [task.receive()]
    assert time.monotonic() - begun < FRAMES * NAP_S / 2
    while came[-1][0] != Kind.ENDED:
        came.append(task.receive())
    assert [int.from_bytes(payload[4:], "little") for _, payload in came[:-1]] == list(range(FRAMES))


def test_a_worker_that_is_to_end_does_not_work_its_backlog_off_first(task: Task, life: Life) -> None:
    begun = time.monotonic()
    task.connection.sendall(many(FRAMES))
    task.receive()
    life.finish()
    assert time.monotonic() - begun < FRAMES * NAP_S * 0.8


def test_a_worker_whose_task_takes_nothing_hears_that_it_is_to_end(task: Task, life: Life) -> None:
    task.send(Kind.FRAME, b"large")
    time.sleep(0.3)
    begun = time.monotonic()
    life.finish()
    assert time.monotonic() - begun < 2.0


def test_silent_connections_hold_no_worker_up(task: Task, life: Life) -> None:
    host, _, port = life.ask({"ask": "status"})["workers"][0]["address"].rpartition(":")
    silent = [socket.create_connection((host, int(port)), 1.0) for _ in range(10)]
    task.connection.settimeout(2.0)
    task.send(Kind.FRAME, b"abcd")
    assert task.receive()[0] == Kind.OUT
    task.end(0)
    assert not isinstance(life.attach("1/0", 1), str)
    for connection in silent:
        connection.close()


def test_a_failure_that_the_task_cannot_be_told_is_still_the_cause(
    task: Task, life: Life, alive: Callable[[int], bool]
) -> None:
    task.send(Kind.FRAME, b"raise")
    time.sleep(0.2)
    reset = struct.pack("ii", 1, 0)
    task.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    task.close()
    assert life.cause() == "it raised late"
    time.sleep(0.3)
    assert alive(life.pids()["1/0"])
