"""A tracker's process as the service has it, in a loop of its own thread, and lines of workers to it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from hanging import HANGS_S

from lowtide.process.credentials import client_tls, plain
from lowtide.process.doors import DoorKind, Doors
from lowtide.process.tracker_line import TrackerLine
from lowtide.service.tracker.messages import TrackerSetting
from lowtide.service.tracker.process import Part, TrackerHooks, TrackerProcess
from lowtide.status.tracker_report import TrackerReport
from lowtide_snapshots.cause import Cause
from lowtide_tracker import LocalTracker, Notice, TrackerClient

SECRET = bytes(range(32))
INCARNATION = 3
GRAPH = {1: (), 2: (1,)}
LIMIT_S = HANGS_S

T = TypeVar("T")


def wait(done: Callable[[], object]) -> None:
    """Wait until it is so."""
    until = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < until
        time.sleep(0.002)


def lives(pid: int) -> bool:
    """True if a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class TrackerLife:
    """A running tracker's process; `workers` and `fronts` are what the life's registers say."""

    def __init__(
        self,
        graph: dict[int, tuple[int, ...]] | None = None,
        workers: Callable[[], list[int]] | None = None,
        fronts: dict[int, int] | None = None,
        dues: dict[int, list[int]] | None = None,
        *,
        kind: DoorKind = DoorKind.UNIX,
    ) -> None:
        self.doors = Doors(kind, "127.0.0.1")
        self.workers = [1, 2]
        self.fronts = fronts or {0: 0}
        self.faults: list[Cause] = []
        self.restarts: list[tuple[int, str]] = []
        """The era of each new process, other than a shard's, and how the one before ended."""
        self.shard_restarts: list[tuple[int, int, str]] = []
        self.setting = TrackerSetting(INCARNATION, graph or GRAPH, self.fronts, 0, 1 << 16, dues or {})
        self.hooks = TrackerHooks(workers or (lambda: self.workers), self.faults.append, self._restarted)
        self.process = self.make()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._open: list[TrackerLine | TrackerClient] = []

    def make(self) -> TrackerProcess:
        return TrackerProcess(self.setting, SECRET, self.hooks, self.doors)

    def _restarted(self, part: Part, era: int, how: str) -> None:
        if part.shard is None:
            self.restarts.append((era, how))
        else:
            self.shard_restarts.append((part.shard, era, how))

    def __enter__(self) -> Self:
        self.address = self.do(self.process.start())
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open:
            each.close()
        self.do(self.process.close())
        self.stop()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.doors.close()

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        """Do something in the process's loop."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(LIMIT_S)

    def do_soon(self, what: Callable[[], object]) -> None:
        """Do something in the process's loop, and wait until it is done."""

        async def in_loop() -> None:
            what()

        self.do(in_loop())

    def kill(self) -> int:
        """Kill the process, and return who it was."""
        pid = self.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait(lambda: self.process.pid != pid)
        return pid

    def reported(self, done: Callable[[TrackerReport], object]) -> TrackerReport:
        """Wait for a report of which it is so."""
        wait(lambda: self.process.report is not None and done(self.process.report))
        assert self.process.report is not None
        return self.process.report

    def line(self, local: LocalTracker, *, connect: bool = True) -> TrackerLine:
        line = TrackerLine(
            self.address,
            secret=SECRET,
            incarnation=INCARNATION,
            local=local,
            name=f"1/{local.worker}",
            shards=self.process.shards,
        )
        self._open.append(line)
        if connect:
            line.connect()
        return line

    def client(self) -> TrackerClient:
        """A subscriber's connection."""
        tls = client_tls(SECRET) if self.doors.tls else None
        client = TrackerClient(plain(self.address), secret=SECRET, incarnation=INCARNATION, tls=tls)
        self._open.append(client)
        client.connect()
        return client


class Worker:
    """A worker's share of a loop: its local tracker, and its line."""

    def __init__(self, life: TrackerLife, number: int) -> None:
        self.local = LocalTracker(number, INCARNATION, start=0)
        self.line = life.line(self.local)
        self.heard: list[Notice] = []

    def turn(self) -> None:
        """One turn of the loop: mend, flush, hear."""
        if self.line.fileno() < 0:
            self.line.mend(time.monotonic())
        self.line.flush(self.local.flush())
        for notice in self.line.receive():
            assert self.local.hear(notice), "nobody but the worker lets its local tracker hear"
            self.heard.append(notice)

    def hears(self, *workers: Worker, done: Callable[[], object]) -> None:
        """Let this and others turn until it is so."""
        until = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < until, f"heard only {self.heard[-3:]}"
            for worker in (self, *workers):
                worker.turn()
            time.sleep(0.001)
