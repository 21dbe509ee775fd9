"""The worker's loop looks up from its work: nobody who connects, and no long backlog, keeps it from what is due."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import cloudpickle
import pytest
from hanging import HANGS_S
from idle_stage import IdleStage, StageDeployment

from lowtide.errors import UserCodeFailed
from lowtide.process.wire import Kind, head
from lowtide.worker.protocol import Frames
from lowtide_tracker.unix import connected

if TYPE_CHECKING:
    from process_life import Life, Task

FRAMES = 150
NUMBER_BYTES = 4
NAP_S = 0.01
LONG_FRAMES = 10_000
"""Work for far longer than a worker that is to end is given."""


class Napping(IdleStage):
    """A stage that takes `NAP_S` for a frame."""

    raising = False

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        if b"raise" in messages:
            self.raising = True
            return []
        if b"large" in messages:
            return [(0, bytes(1 << 20)) for _ in range(32)]
        return [(0, message) for message in messages if self.work(message)]

    def work(self, message: bytes) -> bool:
        """Take time, or wait until there is a file; whether there is an answer."""
        if len(message) > NUMBER_BYTES:
            while not os.path.exists(message):
                time.sleep(NAP_S)
            return False
        time.sleep(NAP_S)
        return True

    def tick(self, now_s: float) -> Frames:
        if self.raising:
            time.sleep(0.5)
            raise UserCodeFailed("it raised late")
        return []


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["Napping"]))
pytestmark = pytest.mark.zookeeper


@pytest.fixture
def task(life: Life) -> Task:
    life.begin(StageDeployment(Napping, max_group_rows=100))
    answer = life.attach("1/0", 0)
    assert not isinstance(answer, str), answer
    return answer


def many(count: int) -> bytes:
    return b"".join(head(Kind.FRAME, NUMBER_BYTES) + number.to_bytes(NUMBER_BYTES, "little") for number in range(count))


def gate(file: Path) -> bytes:
    """A frame that is worked on until the file is there."""
    name = bytes(file)
    return head(Kind.FRAME, len(name)) + name


def test_output_goes_out_while_what_came_with_it_is_still_worked_off(task: Task, tmp_path: Path) -> None:
    task.connection.sendall(many(FRAMES) + gate(tmp_path / "open") + head(Kind.END, 8) + bytes(8))
    came = [task.receive()]
    (tmp_path / "open").touch()
    while came[-1][0] != Kind.ENDED:
        came.append(task.receive())
    assert [int.from_bytes(payload[4:], "little") for _, payload in came[:-1]] == list(range(FRAMES))


def test_a_worker_that_is_to_end_does_not_work_its_backlog_off_first(task: Task, life: Life) -> None:
    task.connection.sendall(many(LONG_FRAMES))
    task.receive()
    life.finish()  # Else it is killed, and named.


def test_a_worker_whose_task_takes_nothing_hears_that_it_is_to_end(task: Task, life: Life) -> None:
    task.send(Kind.FRAME, b"large")
    time.sleep(0.3)
    life.finish()


def test_silent_connections_hold_no_worker_up(task: Task, life: Life) -> None:
    silent = [connected(life.status().workers[0].address, HANGS_S) for _ in range(10)]
    task.send(Kind.FRAME, b"abcd")
    assert task.receive()[0] == Kind.OUT
    task.end(0)
    assert not isinstance(life.attach("1/0", 1), str)
    for connection in silent:
        connection.close()


def test_a_failure_that_the_task_does_not_learn_is_still_the_cause(
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


class Hanging(Napping):
    """A stage with a function of the flow that never returns."""

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        never_returns()
        return []


def never_returns() -> None:
    while True:
        time.sleep(3600)


def test_a_function_that_never_returns_ends_the_life_and_is_named(life: Life) -> None:
    life.begin(StageDeployment(Hanging, call_limit_s=2.0))
    task = life.attach("1/0", 0)
    assert not isinstance(task, str), task
    task.send(Kind.FRAME, b"abcd")
    cause = life.cause()
    assert "never_returns" in cause
    assert "has not returned for 2 s" in cause
    assert "test_loop.py" in cause


class Overdue(Napping):
    """A stage that is always due, and fails when it is served."""

    def due_s(self, now_s: float) -> float:
        return 0.0 if self.raising else 1.0


def test_a_worker_that_has_failed_rests_until_it_is_ended(life: Life) -> None:
    """The service may stand still; those of the next life need the cores."""
    life.begin(StageDeployment(Overdue))
    task = life.attach("1/0", 0)
    assert not isinstance(task, str), task
    pid = life.pids()["1/0"]
    life.service.send_signal(signal.SIGSTOP)
    try:
        task.send(Kind.FRAME, b"raise")
        time.sleep(1.0)
        before_s = cpu_s(pid)
        time.sleep(1.0)
        assert cpu_s(pid) - before_s < 0.3
    finally:
        life.service.send_signal(signal.SIGCONT)
    assert life.cause() == "it raised late"


def cpu_s(pid: int) -> float:
    """Time that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stopping(IdleStage):
    """A front that is stopped by rows with a file's name until it is there; its output is one frame per message."""

    until = b""

    def rows(self, message: bytes, now_ns: int) -> Frames:
        if message.startswith(b"/"):
            self.until = message
        return [(0, message)]

    def pulling(self) -> bool:
        return not self.until or os.path.exists(self.until)

    def end(self, epoch: int, now_ns: int) -> Frames:
        return [(0, b"mark")]


def stopped(life: Life, until: Path) -> Task:
    life.begin(StageDeployment(Stopping))
    answer = life.attach("0/in-0", 0)
    assert not isinstance(answer, str), answer
    answer.send(Kind.ROWS, b"go")
    assert [answer.receive()[0] for _ in range(2)] == [Kind.OUT, Kind.TAKEN]
    for _ in range(2):
        answer.send(Kind.ROWS, bytes(until))
    assert [answer.receive()[0] for _ in range(2)] == [Kind.OUT] * 2
    return answer


def test_rows_of_a_stopped_front_are_owed_until_min_time_moves(life: Life, tmp_path: Path) -> None:
    """R8: their task sends no more rows meanwhile; then it gets each."""
    task = stopped(life, tmp_path / "moved")
    task.connection.settimeout(0.5)
    with pytest.raises(TimeoutError):
        task.receive()
    task.connection.settimeout(HANGS_S)
    (tmp_path / "moved").touch()
    assert [task.receive()[0] for _ in range(2)] == [Kind.TAKEN] * 2


def test_an_end_is_answered_while_rows_are_owed(life: Life, tmp_path: Path) -> None:
    """R8: nothing that the end of an epoch waits for depends on min time."""
    task = stopped(life, tmp_path / "moved")
    assert [payload for _, payload in task.end(0)] == [b"mark"]
    after = life.attach("0/in-0", 1)
    assert not isinstance(after, str), after
    (tmp_path / "moved").touch()
    after.send(Kind.ROWS, b"go")
    assert [after.receive()[0] for _ in range(2)] == [Kind.OUT, Kind.TAKEN]
    after.connection.settimeout(0.2)
    with pytest.raises(TimeoutError):
        after.receive()  # Nothing is owed to a task that has ended.


class Mended(IdleStage):
    """A line that breaks when it is first heard, and is recreated at once, with the same descriptor's number."""

    def __init__(self) -> None:
        self.line = self.pipe()
        self.heard = 0

    @staticmethod
    def pipe() -> int:
        reading, writing = os.pipe()
        os.write(writing, b"x")
        os.close(writing)
        return reading

    def descriptors(self) -> tuple[int, ...]:
        return () if self.line < 0 else (self.line,)

    def hear(self) -> Frames:
        self.heard += 1
        if self.heard == 1:
            os.close(self.line)
            self.line = -1
        return []

    def tick(self, now_s: float) -> Frames:
        if self.line < 0:
            self.line = self.pipe()
        return []

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        return [(0, str(self.heard).encode())]


def test_a_line_that_is_made_anew_is_heard_again_whatever_its_number(
    life: Life, until: Callable[[Callable[[], bool]], bool]
) -> None:
    life.begin(StageDeployment(Mended))
    task = life.attach("1/0", 0)
    assert not isinstance(task, str), task

    def heard() -> int:
        task.send(Kind.FRAME, b"how often?")
        return int(task.receive()[1][4:])

    assert until(lambda: heard() > 1)
