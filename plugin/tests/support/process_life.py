"""A life without Spark: the real service and the real fork server, and tasks as the JVM would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cloudpickle
from hanging import HANGS_S
from life_settings import setting

from lowtide.assignment.messages import (
    Answer,
    Attach,
    Begun,
    Find,
    Finish,
    Finished,
    Fork,
    ForkServerStart,
    Found,
    JobState,
    MakeWorker,
    Message,
    Question,
    Refused,
    ServiceStart,
    Status,
    encode,
    line,
    read_answer,
)
from lowtide.assignment.setting import LifeSetting, pack
from lowtide.process.doors import DoorKind
from lowtide.process.wire import ConnectionClosed, Kind, connect, receive, send
from lowtide_tracker.tls import Connection

SECRET = b"the secret of a test, 32 bytes.."


class Task:
    """A task attached to a worker, at an address."""

    def __init__(self, connection: Connection, at: str) -> None:
        self.connection = connection
        self.at = at

    def send(self, kind: Kind, payload: bytes) -> None:
        send(self.connection, kind, payload)

    def receive(self) -> tuple[int, bytes]:
        return receive(self.connection)

    def end(self, epoch: int) -> list[tuple[int, bytes]]:
        """Tells the end of the input, and returns all that comes before the worker's own end."""
        self.send(Kind.END, epoch.to_bytes(8, "little"))
        messages: list[tuple[int, bytes]] = []
        while True:
            kind, payload = self.receive()
            if kind != Kind.OUT:
                assert kind == Kind.ENDED, payload.decode()
                return messages
            messages.append((int.from_bytes(payload[:4], "little"), payload[4:]))

    def close(self) -> None:
        self.connection.close()


class Life:
    """The processes of one life, with doors of a kind; `executors` are fork servers by name."""

    def __init__(self, zookeeper: str, incarnation: int = 7, doors: DoorKind = DoorKind.UNIX) -> None:
        self.incarnation = incarnation
        self.processes = 1
        """Hosts of each executor."""
        self._zookeeper = zookeeper
        self.service = self._start("lowtide.service", ServiceStart(secret=SECRET.hex(), host="127.0.0.1", doors=doors))
        self.address: str = self._hear(self.service)["address"]
        self.executors: dict[str, subprocess.Popen[str]] = {}
        self._control = connect(self.address, SECRET)

    def executor(self, name: str, python: str = sys.executable) -> None:
        """Starts an executor's fork server."""
        first = ForkServerStart(service=self.address, secret=SECRET.hex(), executor=name, host="127.0.0.1", store="")
        self.executors[name] = self._start("lowtide.worker.forkserver", first, python)
        self._hear(self.executors[name])

    def begin(self, deployment: object) -> None:
        """Begins the life with a deployment."""
        send(self._control, Kind.PLAN, pack(self.setting(), cloudpickle.dumps(deployment)))
        answer = read_answer(receive(self._control)[1])
        assert isinstance(answer, Begun), answer

    def setting(self) -> LifeSetting:
        """The driver program's settings of the life."""
        return setting(self._zookeeper, self.incarnation, processes=self.processes)

    def finish(self) -> None:
        """Ends the life on purpose; its workers go by themselves."""
        assert self.ask(Finish(self.incarnation, HANGS_S)) == Finished([])

    def ask(self, question: Question) -> Answer:
        send(self._control, Kind.ASK, encode(question))
        return read_answer(receive(self._control)[1])

    def status(self) -> JobState:
        """The service's record of the job."""
        state = self.ask(Status())
        assert isinstance(state, JobState)
        return state

    def attach(self, worker: str, epoch: int, executor: str = "0", incarnation: int | None = None) -> Task | str:
        """Takes a task to its worker as the executor's plugin does; returns the reason if it is refused."""
        life = self.incarnation if incarnation is None else incarnation
        level = int(worker.partition("/")[0])
        question = Find(worker=worker, level=level, epoch=epoch, incarnation=life, index=0, count=1, executor=executor)
        found = self.ask(question)
        if isinstance(found, Refused):
            return found.cause
        if isinstance(found, Fork):
            place = {"number": found.number, "host": found.host}
            address = self._fork(executor, MakeWorker(worker=worker, level=level, incarnation=life, **place))
        else:
            assert isinstance(found, Found)
            address = found.at
        connection = connect(address, SECRET)
        connection.settimeout(HANGS_S)
        send(connection, Kind.ATTACH, encode(Attach(worker=worker, incarnation=life, epoch=epoch)))
        answer = read_answer(receive(connection)[1])
        return answer.cause if isinstance(answer, Refused) else Task(connection, address)

    def attach_anyway(self, worker: str, epoch: int) -> None:
        """The same for a worker that ends before it takes a task."""
        with suppress(ConnectionClosed, OSError):
            self.attach(worker, epoch)

    def _fork(self, executor: str, order: MakeWorker) -> str:
        process = self.executors[executor]
        assert process.stdin is not None
        process.stdin.write(line(order).decode())
        process.stdin.flush()
        return str(self._hear(process)["at"])

    def cause(self, wait_s: float = HANGS_S) -> str:
        """The life's cause of death, waited for."""
        return str(until(lambda: self.status().cause, wait_s) or "")

    def pids(self) -> dict[str, int]:
        """The pids of all workers that have reported, by name."""
        return {worker.worker: worker.pid for worker in self.status().workers if worker.pid}

    def close(self) -> None:
        for process in [*self.executors.values(), self.service]:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(HANGS_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._control.close()

    @staticmethod
    def _start(module: str, first: Message, python: str = sys.executable) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        pipe = subprocess.PIPE
        process = subprocess.Popen([python, "-m", module], stdin=pipe, stdout=pipe, text=True, env=environment)
        assert process.stdin is not None
        process.stdin.write(line(first).decode())
        process.stdin.flush()
        return process

    @staticmethod
    def _hear(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        while True:
            message: dict[str, Any] = json.loads(process.stdout.readline())
            if message["type"] != "jobgauges":
                return message


def until(look: Callable[[], Any], wait_s: float = HANGS_S) -> Any:
    """What `look` returns once that is true, or at the end of the time."""
    deadline = time.monotonic() + wait_s
    while not (seen := look()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return seen
