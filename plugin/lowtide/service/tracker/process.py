"""The tracker of a life, or a part of it, as a process of its own: started, watched, rebuilt when it dies (R10)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from lowtide.assignment.messages import Refused, line
from lowtide.errors import LifeEnded, ServiceUnavailable
from lowtide.process.doors import Doors
from lowtide.service.tracker.lookout import Lookout
from lowtide.service.tracker.messages import (
    Fault,
    ForgetFloors,
    FromTracker,
    Ready,
    Report,
    Request,
    Requested,
    ShardSaid,
    ToTracker,
    TrackerSetting,
    TrackerStart,
    read_from_tracker,
)
from lowtide.status.tracker_report import ShardReport, TrackerReport
from lowtide_snapshots.cause import Cause
from lowtide_tracker.unix import forget

LOG = logging.getLogger(__name__)
START_LIMIT_S = 60.0
"""The time within which the first process must be ready."""
END_LIMIT_S = 3.0
"""The time that a process has to end by itself before it is killed."""
MAX_DEATHS = 5
DEATHS_WITHIN_S = 30.0
"""The time within which more deaths than these end the life: a new process does not cure their cause."""
SILENT_LIMIT_S = 10.0
"""Seconds for which a process that reports several times a second may be silent before it counts as hanging."""
LINE_BYTES = 1 << 20
"""The largest size of a line: a report has some bytes for each level."""
ANSWER_LIMIT_S = 5.0
PROGRAM = ("-m", "lowtide.service.tracker.main")
"""The code that the interpreter runs."""
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1"}
"""Keeps numpy from starting threads that the tracker does not use."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a sharded tracker that a process is.

    Attributes:
        shards: The number of shards.
        shard: The shard's number; None for the merge.
        merge: The merge's address, for a shard.
    """

    shards: int = 1
    shard: int | None = None
    merge: str = ""

    def __str__(self) -> str:
        if self.shards == 1:
            return "the tracker"
        return "the tracker's merge" if self.shard is None else f"shard {self.shard} of the tracker"

    @property
    def door(self) -> str:
        """The name of its door."""
        if self.shards == 1:
            return "tracker"
        return "merge" if self.shard is None else f"shard-{self.shard}"

    @property
    def process(self) -> str:
        """The name of its process, for people."""
        return "the tracker's process" if self.shards == 1 else f"the process of {self}"


@dataclass(frozen=True, slots=True)
class TrackerHooks:
    """The calls of a life's tracker to its life.

    Attributes:
        workers: Called when a process has died: returns the numbers of all hosts that may have flushed, which are all
            that the life has let in. A host that is let in later is not waited for.
        on_fault: Called once, with the reason why the life is over; no process is started after it.
        on_restart: Called with the process's part, its new era and how the process before ended, after `workers`.
        on_report: Called with each report.
    """

    workers: Callable[[], Iterable[int]]
    on_fault: Callable[[Cause], None]
    on_restart: Callable[[Part, int, str], None] = lambda *_: None
    on_report: Callable[[TrackerReport], None] = lambda *_: None


class TrackerProcess:
    """The life's tracker; belongs to one event loop.

    A process that died is replaced by one of the next era, which every worker reports to before it announces anything.
    The listening socket is kept here, so its address stays, and peers that connect meanwhile wait.

    Args:
        setting: The tracker's setting. Each process gets its fronts and feeds as they are by then. A front that a
            tracker has opened and that is just being registered may be among them; if not, it must be opened again.
        secret: The job's secret.
        hooks: The calls to the life.
        doors: Opens its door.
        part: Its part of a sharded tracker; by default the whole.

    Attributes:
        report: The newest of its reports; None before the first, and for a shard.
        shard_report: The newest of a shard's reports.
        pid: The process id; None while there is no process.
    """

    def __init__(
        self,
        setting: TrackerSetting,
        secret: bytes,
        hooks: TrackerHooks,
        doors: Doors,
        part: Part = Part(),
    ) -> None:
        self.part = part
        self.shard_report: ShardReport | None = None
        self.report: TrackerReport | None = None
        self._requests: dict[int, asyncio.Future[int | Refused]] = {}
        self.pid: int | None = None
        self._setting = setting
        self._secret = secret
        self._hooks = hooks
        self._doors = doors
        self._era = 0
        self._deaths: deque[float] = deque(maxlen=MAX_DEATHS + 1)
        self._listener: socket.socket | None = None
        self._address = ""
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._heard_s = 0.0
        """The time at which a process last reported, or began."""
        self._lookout = Lookout()
        self._fault: Cause | None = None
        self._closing = False

    async def start(self) -> str:
        """Start the process; return its address.

        Raises:
            LifeEnded: the tracker refused its setting.
            ServiceUnavailable: it did not start.
        """
        assert self._listener is None, "a tracker is started once"
        self._ready = asyncio.get_running_loop().create_future()
        try:
            self._listener, self._address = self._doors.open(self.part.door)
            await self._spawn(None)
            self._watch = asyncio.create_task(self._watch_over())
            async with asyncio.timeout(START_LIMIT_S):
                await self._ready
        except (OSError, TimeoutError) as error:
            await self.close()
            why = f"took more than {START_LIMIT_S:g} s" if isinstance(error, TimeoutError) else str(error)
            raise ServiceUnavailable(
                f"could not start {self.part.process}: {why}",
                way_out="check the log and the machine's load",
            ) from error
        except BaseException:
            await self.close()
            raise
        return self._address

    @property
    def era(self) -> int:
        """The number of processes so far, with this one."""
        return self._era

    @property
    def silent_s(self) -> float:
        """Seconds since the running process last reported; 0 while there is none."""
        return 0.0 if self.pid is None else time.monotonic() - self._heard_s

    @property
    def shards(self) -> tuple[str, ...]:
        """The addresses of shards: there are none."""
        return ()

    @property
    def troubles(self) -> list[str]:
        """Return faults that do not stop the life: none, as one process can only be silent, and that ends by itself."""
        return []

    def end_if_silent(self) -> None:
        """Kill a live process that has been silent for `SILENT_LIMIT_S`: another one takes its place.

        Call it each second. If this process itself was stalled, it cannot tell which others were silent: the time
        starts again.
        """
        now, process = time.monotonic(), self._process
        if self._lookout.late(now):
            self._heard_s = now
        if self.pid is None or process is None or now - self._heard_s < SILENT_LIMIT_S:
            return
        LOG.error("killing %s, process %d: it has been silent for %g s", self.part, self.pid, SILENT_LIMIT_S)
        self._heard_s = time.monotonic()
        with suppress(ProcessLookupError):
            process.kill()

    async def request(self, number: int) -> int:
        """Ask all workers to keep what they hold below the current global min time (R14), and return that tick.

        Raises:
            ServiceUnavailable: no tracker can ask them now; it is unknown whether they were asked.
        """
        answer = self._requests[number] = asyncio.get_running_loop().create_future()
        self._send(Request(number))
        tick: int | Refused
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                tick = await answer
        except TimeoutError:
            tick = Refused(f"it did not answer within {ANSWER_LIMIT_S:g} s")
        finally:
            del self._requests[number]
        if isinstance(tick, Refused):
            raise ServiceUnavailable(
                f"the tracker takes no request for a snapshot: {tick.cause}", way_out="try again in a few seconds"
            )
        return tick

    def forget_floors(self, front: int, offset: int) -> None:
        """Have the tracker drop floors that a commit makes unnecessary; a restarted one may still have them."""
        self._send(ForgetFloors(front, offset))

    def _send(self, message: ToTracker) -> None:
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            process.stdin.write(line(message))

    async def close(self) -> None:
        """End the process and stop listening, without a notice."""
        self._closing = True
        await self._end_process()
        if self._watch is not None:
            await asyncio.wait([self._watch])
        if self._listener is not None:
            forget(self._address)
            self._listener.close()

    # -- one process -----------------------------------------------------------------------------------------------

    async def _spawn(self, workers: list[int] | None) -> None:
        assert self._listener is not None
        setting = replace(self._setting, fronts=dict(self._setting.fronts), feeds=dict(self._setting.feeds))
        self._era += 1
        descriptor = self._listener.fileno()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *PROGRAM,
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=(descriptor,),
            env=os.environ | SINGLE_THREADED,
            limit=LINE_BYTES,
        )
        self.pid = self._process.pid
        self._heard_s = time.monotonic()
        first = TrackerStart(
            secret=self._secret.hex(),
            listener=descriptor,
            setting=setting,
            era=self._era,
            workers=workers,
            shards=self.part.shards,
            shard=self.part.shard,
            merge=self.part.merge,
            tls=self._doors.tls,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(line(first))
        if self._closing:
            self._process.stdin.close()

    async def _end_process(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(END_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            LOG.warning("killing %s, process %d: it does not end", self.part, self._process.pid)
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _listen(self, process: Process) -> str:
        """Take a process's messages until it ends; return how it ended."""
        assert process.stdout is not None
        async for each in process.stdout:
            if each.endswith(b"\n"):  # A killed process may leave half a line.
                self._hear(read_from_tracker(each))
        code = await process.wait()
        self.pid = None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

    def _hear(self, message: FromTracker) -> None:
        self._heard_s = time.monotonic()
        match message:
            case Report(report):
                self.report = report
                self._hooks.on_report(report)
            case ShardSaid(shard_report):
                self.shard_report = shard_report
            case Requested(number, tick):
                answer = self._requests.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(tick)
            case Ready():
                self._is_ready()
            case Fault(cause):
                self._report_fault(cause)

    # -- one after the other ---------------------------------------------------------------------------------------

    async def _watch_over(self) -> None:
        """Replace each process that ends, until the life is over or `close` is called."""
        try:
            while True:
                assert self._process is not None
                how = await self._listen(self._process)
                if self._fault or self._closing:
                    return
                LOG.error("%s of era %d, pid %d, %s", self.part, self._era, self._process.pid, how)
                if self._dies_too_often():
                    what = (
                        f"{self.part.process} died {MAX_DEATHS + 1} times within {DEATHS_WITHIN_S:g} s; the last, "
                        f"pid {self._process.pid}, {how}"
                    )
                    way_out = "find the cause in the log, then start the job again"
                    self._report_fault(Cause("loss", what, way_out=way_out))
                    return
                workers = sorted(set(self._hooks.workers()))
                self._hooks.on_restart(self.part, self._era + 1, how)
                await self._spawn(workers)
        except Exception as error:
            LOG.exception("stopped watching %s", self.part.process)
            what = f"{self.part.process} cannot be restarted: {type(error).__name__}: {error}"
            self._report_fault(Cause("loss", what))
        finally:
            await self._end_process()
            if self._listener is not None:
                self._listener.close()  # Peers that still try to connect are refused.

    def _dies_too_often(self) -> bool:
        now = time.monotonic()
        self._deaths.append(now)
        return len(self._deaths) > MAX_DEATHS and now - self._deaths[0] <= DEATHS_WITHIN_S

    def _is_ready(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _report_fault(self, cause: Cause) -> None:
        """Report once why the life is over: to the caller of `start`, or to `on_fault`."""
        if self._fault or self._closing:
            return
        self._fault = cause
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(LifeEnded(cause.what, where=cause.where, way_out=cause.way_out))
        else:
            self._hooks.on_fault(cause)
