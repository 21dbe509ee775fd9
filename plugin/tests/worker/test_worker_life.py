"""Workers outlive epochs, keep their state, and die with their job: with the real service and fork servers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import cloudpickle
import pytest
from idle_stage import IdleStage, StageDeployment

from lowtide.assignment.messages import ForkServerHello, encode
from lowtide.assignment.setting import pack
from lowtide.errors import UserCodeFailed
from lowtide.process.doors import DoorKind
from lowtide.process.wire import ConnectionClosed, Kind, connect, receive, send
from lowtide.status.gauges import WorkerGauges
from lowtide.worker.protocol import Frames
from lowtide_snapshots.cause import Cause
from lowtide_tracker.unix import UNIX

if TYPE_CHECKING:
    from process_life import Life, Task

FRAME = Kind.FRAME
Until = Callable[[Callable[[], bool]], bool]


class Counter(IdleStage):
    """A stage that counts its frames, and answers each with the count so far and its pid."""

    def __init__(self) -> None:
        self.count = 0
        self.due: list[tuple[float, bytes]] = []

    def frame(self, message: bytes) -> list[tuple[int, bytes]]:
        if message == b"raise":
            raise UserCodeFailed('step "double": raised ValueError: no', where="flow.py:3, record at in-0, offset 17")
        if message == b"bug":
            raise RuntimeError("a bug of ours")
        if message == b"hold":
            self.due.append((time.monotonic() + 0.3, b"held"))
            return []
        if message == b"exit":
            os._exit(3)
        if message == b"large":
            return [(0, bytes(1 << 20)) for _ in range(32)]
        self.count += 1
        return [(1, f"{self.count} {os.getpid()}".encode())]

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        return [answer for message in messages for answer in self.frame(message)]

    def tick(self, now_s: float) -> Frames:
        ready = [(0, frame) for at, frame in self.due if at <= now_s]
        self.due = [(at, frame) for at, frame in self.due if at > now_s]
        return ready

    def gauges(self) -> WorkerGauges:
        return WorkerGauges(records_in=self.count)


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["Counter"]))
pytestmark = pytest.mark.zookeeper


def attached(answer: Task | str) -> Task:
    assert not isinstance(answer, str), answer
    return answer


def one(task: Task, message: bytes = b"x") -> tuple[int, int]:
    """The count and the pid of the worker after one more frame."""
    task.send(FRAME, message)
    kind, payload = task.receive()
    assert kind == Kind.OUT, payload
    count, pid = payload[4:].split()
    return int(count), int(pid)


@pytest.fixture
def running(life: Life) -> Life:
    life.begin(StageDeployment(Counter))
    return life


@pytest.mark.parametrize("life", DoorKind, indirect=True)
def test_a_worker_keeps_its_state_over_epochs_wherever_its_tasks_run(running: Life) -> None:
    """Those of its own executor come by a Unix socket, whatever others come by."""
    pids = set()
    kinds = (DoorKind.UNIX, DoorKind.of(running.address))
    for epoch in range(4):
        task = attached(running.attach("1/0", epoch, executor=str(epoch % 2)))
        count, pid = one(task)
        pids.add(pid)
        assert count == epoch + 1
        assert DoorKind.of(task.at) == kinds[epoch % 2]
        task.end(epoch)
    assert len(pids) == 1


def test_frames_made_while_no_task_is_attached_wait_for_the_next(running: Life) -> None:
    """R8: an epoch ends while a worker still holds records back; what it emits then is not lost."""
    task = attached(running.attach("1/0", 0))
    task.send(FRAME, b"hold")
    assert task.end(0) == []
    time.sleep(0.5)
    after = attached(running.attach("1/0", 1))
    assert after.receive() == (Kind.OUT, (0).to_bytes(4, "little") + b"held")


def test_a_second_task_is_refused_while_the_first_is_attached(running: Life) -> None:
    first = attached(running.attach("1/0", 0))
    assert "still attached" in str(running.attach("1/0", 1))
    assert one(first)[0] == 1


def test_after_a_task_that_broke_off_the_next_is_refused(running: Life, until: Until) -> None:
    task = attached(running.attach("1/0", 0))
    one(task)
    task.close()
    assert until(lambda: "broke off" in str(running.attach("1/0", 1)))


def test_a_task_of_an_older_life_is_refused(running: Life) -> None:
    attached(running.attach("1/0", 0)).end(0)
    assert "incarnation 7" in str(running.attach("1/0", 1, incarnation=6))


def test_a_worker_lost_between_epochs_ends_the_life(running: Life, kill: Callable[[int], None]) -> None:
    """R10, W8: no task fails, and yet no empty worker takes the place of the lost one."""
    task = attached(running.attach("1/0", 0))
    _, pid = one(task)
    task.end(0)
    kill(pid)
    assert f"worker 1/0 (pid {pid} on executor 0) died: killed by SIGKILL" in running.cause()
    assert "died" in str(running.attach("1/0", 1))


def test_a_worker_that_ends_by_itself_is_said_with_its_status(running: Life) -> None:
    task = attached(running.attach("1/0", 0))
    task.send(FRAME, b"exit")
    assert "ended with status 3" in running.cause()


def test_an_executor_lost_between_epochs_ends_the_life_and_leaves_no_worker(
    running: Life,
    kill: Callable[[int], None],
    alive: Callable[[int], bool],
    until: Until,
) -> None:
    task = attached(running.attach("1/0", 0, executor="1"))
    _, pid = one(task)
    task.end(0)
    kill(running.executors["1"].pid)
    assert "worker 1/0" in running.cause()
    assert until(lambda: not alive(pid))


def test_a_users_exception_reaches_task_and_service_as_it_was_said(running: Life) -> None:
    task = attached(running.attach("1/0", 0))
    task.send(FRAME, b"raise")
    kind, payload = task.receive()
    assert kind == Kind.FAILED
    assert str(Cause.of(json.loads(payload))) == running.cause()
    assert "record at in-0, offset 17" in running.cause()


def test_a_bug_of_ours_comes_with_its_traceback(running: Life) -> None:
    task = attached(running.attach("1/0", 0))
    task.send(FRAME, b"bug")
    assert "RuntimeError: a bug of ours" in running.cause()
    assert "Traceback" in running.cause()


def test_a_slow_task_stops_the_worker_from_reading(running: Life) -> None:
    """Bounded memory: output that is not taken is not made."""
    task = attached(running.attach("1/0", 0))
    task.connection.settimeout(0.5)
    sent: list[int] = []

    def send_until_blocked() -> None:
        for number in range(1000):
            task.send(FRAME, b"large" if number < 8 else bytes(1 << 20))
            sent.append(number)

    with pytest.raises(TimeoutError):
        send_until_blocked()
    assert len(sent) < 100
    with open(f"/proc/{running.pids()['1/0']}/status", encoding="ascii") as status:
        resident_kb = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    assert resident_kb < 400_000


def test_full_sinks_stop_the_worker_from_reading(life: Life) -> None:
    """What Kafka does not take is not read on: the way back to the source is held up, not filled."""

    class Full(Counter):
        def full(self) -> bool:
            return True

    life.begin(StageDeployment(Full))
    task = attached(life.attach("1/0", 0))
    task.send(FRAME, b"x")
    task.connection.settimeout(0.5)
    with pytest.raises(TimeoutError):
        task.receive()


def test_nothing_is_left_after_a_normal_stop(life: Life, alive: Callable[[int], bool], tmp_path: Path) -> None:
    class Closing(Counter):
        """Writes a file when asked to end."""

        def close(self, timeout_s: float) -> int:
            (tmp_path / "delivered").write_text("delivered")
            return 0

    life.begin(StageDeployment(Closing))
    task = attached(life.attach("1/0", 0))
    one(task)
    task.end(0)
    pids = [*life.pids().values(), *(process.pid for process in life.executors.values()), life.service.pid]
    folders = {Path(each.removeprefix(UNIX)).parent for each in (life.address, task.at)}
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700, 0o700]
    life.close()
    assert [folder for folder in folders if folder.exists()] == []
    assert [pid for pid in pids if alive(pid)] == []
    assert (tmp_path / "delivered").read_text() == "delivered"


def test_no_worker_is_left_after_the_fork_server_is_killed_while_user_code_hangs(
    life: Life, alive: Callable[[int], bool], kill: Callable[[int], None], until: Until
) -> None:
    class Hanging(Counter):
        def frame(self, message: bytes) -> list[tuple[int, bytes]]:
            while True:
                time.sleep(1)

    life.begin(StageDeployment(Hanging))
    task = attached(life.attach("1/0", 0))
    task.send(FRAME, b"x")
    pid = life.pids()["1/0"]
    kill(life.executors["0"].pid)
    assert "worker 1/0" in life.cause()
    assert until(lambda: not alive(pid))


def test_a_new_life_finds_no_worker_of_the_one_before(
    running: Life, alive: Callable[[int], bool], until: Until
) -> None:
    task = attached(running.attach("1/0", 0))
    _, pid = one(task)
    task.end(0)
    running.finish()
    running.incarnation += 1
    running.begin(StageDeployment(Counter))
    after = attached(running.attach("1/0", 0))
    count, other = one(after)
    assert (count, other != pid) == (1, True)
    assert until(lambda: not alive(pid))
    assert not running.status().cause


def test_a_life_that_was_finished_has_no_cause_and_takes_no_task(running: Life) -> None:
    task = attached(running.attach("1/0", 0))
    task.end(0)
    running.finish()
    assert "was stopped" in str(running.attach("1/0", 1))
    assert not running.status().cause


def test_numbers_of_lives_only_grow(running: Life) -> None:
    connection = connect(running.address, b"the secret of a test, 32 bytes..")
    with connection:
        send(connection, Kind.PLAN, pack(running.setting(), b""))
        assert b"is not above 7" in receive(connection)[1]


def test_another_python_than_the_drivers_is_named(life: Life) -> None:
    python = {"python": "3.10.1"}
    hello = ForkServerHello(executor="9", host="elsewhere", executable="/usr/bin/python3", python=python)
    life.begin(StageDeployment(Counter))
    with connect(life.address, b"the secret of a test, 32 bytes..") as connection:
        send(connection, Kind.ASK, encode(hello))
        cause = life.cause()
    assert "executor 9 on elsewhere has a different Python from the driver's, /usr/bin/python3: python 3.10.1" in cause
    assert "PYSPARK_PYTHON" in cause


def test_a_stranger_cannot_attach(running: Life) -> None:
    task = attached(running.attach("1/0", 0))
    address = running.status().workers[0].address
    with pytest.raises(ConnectionClosed):
        connect(address, b"another secret of 32 bytes......")
    assert one(task)[0] == 1
