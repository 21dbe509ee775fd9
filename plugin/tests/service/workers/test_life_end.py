"""A life ends when a worker dies, however long its children live, and no worker outlives its life."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest
from hanging import HANGS_S
from idle_stage import IdleHost, IdleStage, StageDeployment
from life_settings import setting

from lowtide.assignment.birth import Birth
from lowtide.assignment.client import ServiceClient
from lowtide.assignment.messages import End, ServiceStart
from lowtide.assignment.welcome import Welcome
from lowtide.errors import AlreadyRunning, FlowError, LifeEnded
from lowtide.process.doors import DoorKind
from lowtide.process.wire import Kind, connect
from lowtide.status.gauges import WorkerGauges
from lowtide.worker.protocol import Frames
from lowtide_snapshots.cause import Cause

if TYPE_CHECKING:
    from process_life import Life, Task

SECRET = b"the secret of a test, 32 bytes.."


class Wayward(IdleStage):
    """A stage that does what user code may do."""

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        if messages == [b"hang"]:
            time.sleep(10 * HANGS_S)
        answer = [(0, str(os.getpid()).encode())]
        if messages == [b"leave a child"]:
            child = os.fork()
            if not child:
                time.sleep(10 * HANGS_S)  # With copies of all the worker's sockets.
                os._exit(0)
            answer.append((0, str(child).encode()))
        return answer


class Delivering(IdleStage):
    """A stage whose delivered time moves with each frame."""

    delivered = 0

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        self.delivered += len(messages)
        return [(0, b"taken")]

    def gauges(self) -> WorkerGauges:
        return WorkerGauges(delivered_time=self.delivered)


class Misfit(StageDeployment):
    """Cannot make a stage."""

    def __init__(self, error: Exception) -> None:
        super().__init__(IdleStage)
        self.error = error

    def stage(self, birth: Birth, welcome: Welcome, host: IdleHost) -> IdleStage:
        raise self.error


class Unpicklable:
    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("open('/no/such/file')",)


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["Wayward"]))
pytestmark = pytest.mark.zookeeper


@pytest.fixture
def task(life: Life) -> Task:
    life.begin(StageDeployment(Wayward))
    answer = life.attach("1/0", 0)
    assert not isinstance(answer, str), answer
    return answer


def pid_of(task: Task, message: bytes = b"x") -> int:
    task.send(Kind.FRAME, message)
    return int(task.receive()[1][4:])


@contextmanager
def child_of(task: Task) -> Iterator[None]:
    """The child that a worker has left, until the block ends."""
    pid = int(task.receive()[1][4:])
    try:
        yield
        os.kill(pid, 0)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_worker_that_dies_ends_the_life_though_its_child_holds_its_sockets(
    task: Task, life: Life, kill: Callable[[int], None]
) -> None:
    pid = pid_of(task, b"leave a child")
    with child_of(task):
        kill(pid)
        assert f"worker 1/0 (pid {pid} on executor 0) died: killed by SIGKILL" in life.cause()


def test_an_executor_that_dies_ends_the_life_though_a_workers_child_holds_its_sockets(
    task: Task, life: Life, kill: Callable[[int], None]
) -> None:
    pid_of(task, b"leave a child")
    with child_of(task):
        kill(life.executors["0"].pid)
        assert "worker 1/0" in life.cause()


def test_a_worker_that_hangs_is_killed_at_the_end_of_its_life(
    task: Task, life: Life, alive: Callable[[int], bool]
) -> None:
    pid = pid_of(task)
    task.send(Kind.FRAME, b"hang")
    time.sleep(0.1)
    with ServiceClient(life.address, SECRET) as service:
        assert service.finish(life.incarnation) == ["1/0"]
    assert not alive(pid)


def test_a_worker_reports_before_it_ends_what_it_has_delivered(life: Life) -> None:
    life.begin(StageDeployment(Delivering))
    task = life.attach("1/0", 0)
    assert not isinstance(task, str), task
    with ServiceClient(life.address, SECRET) as service:
        for _ in range(3):
            task.send(Kind.FRAME, b"x")
            task.receive()
        assert service.finish(life.incarnation) == []
        (worker,) = service.status().workers
    assert worker.gauges is not None
    assert worker.gauges.delivered_time == 3


def test_a_worker_of_a_life_that_has_ended_is_killed_when_the_next_begins(
    task: Task, life: Life, alive: Callable[[int], bool]
) -> None:
    pid = pid_of(task)
    task.send(Kind.FRAME, b"hang")
    life.ask(End(life.incarnation, Cause("loss", "a task failed")))
    life.incarnation += 1
    life.begin(StageDeployment(Wayward))
    assert not alive(pid)


def test_a_second_life_is_refused_while_the_first_runs(task: Task, life: Life, zookeeper: str) -> None:
    with ServiceClient(life.address, SECRET) as service:
        with pytest.raises(AlreadyRunning, match="incarnation 7") as refused:
            service.begin(setting(zookeeper, 8), b"")
        assert "stop that job first" in str(refused.value)
        assert service.status().incarnation == 7
        service.finish(7)
        service.begin(setting(zookeeper, 8), b"")


def test_a_worker_that_cannot_load_the_flow_shows_where_it_failed(life: Life) -> None:
    life.begin(Unpicklable())
    life.attach_anyway("1/0", 0)
    cause = life.cause()
    assert "worker 1/0 could not load the flow: FileNotFoundError" in cause
    assert "Traceback" in cause


def test_an_error_of_ours_while_loading_is_said_as_it_is(life: Life) -> None:
    error = FlowError("the flow does not fit", way_out="correct it")
    life.begin(Misfit(error))
    life.attach_anyway("1/0", 0)
    assert life.cause() == str(error)


def test_a_fork_server_has_one_thread_and_its_workers_none_of_its_descriptors(task: Task, life: Life) -> None:
    assert len(os.listdir(f"/proc/{life.executors['0'].pid}/task")) == 1
    folder = f"/proc/{pid_of(task)}/fd"
    opened = [os.readlink(f"{folder}/{fd}") for fd in sorted(os.listdir(folder), key=int)]
    assert sum("eventpoll" in name for name in opened) == 1
    sockets = sum(name.startswith("socket:") for name in opened)
    assert sockets == 4, "the listener, the lines to service and fork server, the task"
    assert sum("pipe" in name for name in opened[3:]) == 0


def test_an_interrupt_from_the_terminal_ends_neither_service_nor_workers(task: Task, life: Life) -> None:
    pid = pid_of(task)
    for process in (life.service.pid, life.executors["0"].pid, pid):
        os.kill(process, signal.SIGINT)
    time.sleep(0.2)
    assert pid_of(task) == pid
    assert not life.status().cause


def test_a_service_may_listen_elsewhere_than_it_is_called(life: Life) -> None:
    start = ServiceStart(secret=SECRET.hex(), host="localhost", bind="127.0.0.1", doors=DoorKind.TCP)
    service = life._start("lowtide.service", start)
    try:
        address = life._hear(service)["address"]
        assert address.startswith("localhost:")
        connect(address, SECRET).close()
    finally:
        assert service.stdin is not None
        service.stdin.close()
        service.wait(HANGS_S)


def test_a_service_that_has_gone_is_said_so_whatever_is_asked(life: Life, kill: Callable[[int], None]) -> None:
    clients = [ServiceClient(life.address, SECRET) for _ in range(3)]
    kill(life.service.pid)
    life.service.wait()
    with pytest.raises(LifeEnded, match="service is gone"):
        clients[0].status()
    with pytest.raises(LifeEnded, match="service is gone"):
        clients[1].begin(setting(), bytes(1 << 24))
    with pytest.raises(LifeEnded, match="service is gone"):
        clients[2].finish(7)
    with pytest.raises(LifeEnded, match="service is gone"):
        clients[0].status()
    with pytest.raises(LifeEnded, match="service is gone"):
        ServiceClient(life.address, SECRET)


def test_a_service_with_another_secret_is_not_the_jobs(life: Life) -> None:
    with pytest.raises(LifeEnded, match="service is gone"):
        ServiceClient(life.address, b"another secret of 32 bytes......")


def test_a_silent_service_counts_as_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(LifeEnded, match="service is gone"):
        ServiceClient(f"127.0.0.1:{listener.getsockname()[1]}", SECRET, limit_s=0.2)
