"""A carrier's process: started, watched, started again (R20: another one takes over wherever it was)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from lowtide.assignment.messages import line
from lowtide.assignment.setting import StagedSetting
from lowtide.core.fronts.end import end_tick
from lowtide.errors import LowtideError
from lowtide.events import EventLog
from lowtide.service.carriers.messages import (
    Carried,
    CarrierFailed,
    CarrierStart,
    Drain,
    Drained,
    Found,
    FromCarrier,
    read_from_carrier,
)
from lowtide.sinks.errors import CarrierStopped
from lowtide.sinks.staged.contract import Progress, visible_ms
from lowtide.sinks.staged.log import Backlog
from lowtide_snapshots.cause import Cause

LOG = logging.getLogger(__name__)
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
"""The time from the end of a process to the next: the first, and doubled for each that has moved nothing."""
END_LIMIT_S = 3.0
"""The time that a process has to end by itself before it is killed: its store may not answer."""
LINE_BYTES = 1 << 20
PROGRAM = ("-m", "lowtide.service.carriers.main")


class CarrierProcess:
    """The carrier of one staged sink; belongs to one event loop. It never ends the life.

    Args:
        setting: The sink.
        kafka: librdkafka's settings, secrets included.
        events: Receives its restarts.
        moved: Called when more has become visible.

    Attributes:
        backlog: What its log still holds, as last reported.
        restarts: Number of processes so far, without the first.
        trouble: Why it does not carry, and since when; empty while it does.
        way_out: What to do about the last reason.
        pid: The process id; None while there is no process.
    """

    def __init__(
        self, setting: StagedSetting, kafka: Mapping[str, Any], events: EventLog, moved: Callable[[], None]
    ) -> None:
        self.backlog = Backlog()
        self.restarts = 0
        self.trouble = ""
        self.way_out = ""
        self.pid: int | None = None
        self._setting = setting
        self._kafka = kafka
        self._events = events
        self._moved = moved
        self._lanes: dict[int, Progress] = {}
        self._visible_ms: int | None = None
        self._counted: Mapping[str, int] = {}
        """The counts of the processes before this one."""
        self._counts: Mapping[str, int] = {}
        self._process: Process | None = None
        self._cause: Cause | None = None
        """The last reason of a process for its end."""
        self._drained = asyncio.Event()
        self._closing = asyncio.Event()
        self._wait_s = FIRST_WAIT_S
        self._watch: asyncio.Task[None] | None = None

    @property
    def sink(self) -> str:
        """The sink's name in the flow."""
        return self._setting.sink

    @property
    def counts(self) -> dict[str, int]:
        """The counts of its processes, see `Carrier.counts`; without what a killed one did last."""
        found = Counter(self._counted)
        found.update(self._counts)
        return dict(found)

    def visible(self, slack_ms: int) -> int | None:
        """Return the tick below which readers of the store see everything: the end of time after the last mark."""
        visible_ms = self.visible_ms
        if visible_ms is None:
            return None
        tick = visible_ms // slack_ms
        return end_tick(slack_ms) if tick >= self._setting.last_mark else tick

    @property
    def visible_ms(self) -> int | None:
        """The log time below which readers of the store see everything; None while unknown (R21)."""
        return self._visible_ms

    def start(self) -> None:
        """Start the first process, in the background."""
        self._watch = asyncio.get_running_loop().create_task(self._watch_over())

    async def drain(self, limit_s: float) -> bool:
        """Make visible what the log has now, as far as it can be; return whether that was done in time."""
        self._drained.clear()
        process = self._process
        if process is None or process.stdin is None:
            return False
        process.stdin.write(line(Drain()))
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._drained.wait()
        return self._drained.is_set()

    async def close(self) -> None:
        """End the process."""
        self._closing.set()
        await self._end_process()
        if self._watch is not None:
            await asyncio.wait([self._watch])

    # -- one process -----------------------------------------------------------------------------------------------

    async def _spawn(self) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *PROGRAM, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES
        )
        self._process, self.pid = process, process.pid
        assert process.stdin is not None
        first = CarrierStart(parent=os.getpid(), setting=self._setting, kafka=dict(self._kafka))
        process.stdin.write(line(first))
        if self._closing.is_set():
            process.stdin.close()
        return process

    async def _listen(self, process: Process) -> str:
        """Take a process's messages until it ends; return how it ended."""
        assert process.stdout is not None
        async for each in process.stdout:
            if each.endswith(b"\n"):  # A killed process may leave half a line.
                self._hear(read_from_carrier(each))
        code = await process.wait()
        self._process = self.pid = None
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

    def _hear(self, message: FromCarrier) -> None:
        match message:
            case Found(lanes, backlog):
                self.backlog = backlog
                self._counted, self._counts = self.counts, {}
                self._lanes = self._lanes or dict(lanes)
                self._see(lanes)
            case Carried(lanes, backlog, counts):
                self._counts = counts
                before, visible_ms = self._lanes, self._visible_ms
                self.backlog = backlog
                self._lanes = dict(lanes)
                self._see(lanes)
                if self._lanes != before or backlog == Backlog():
                    self._carries()
                if self._visible_ms != visible_ms:
                    self._moved()
            case Drained():
                self._drained.set()
            case CarrierFailed(cause):
                self._cause = cause

    def _carries(self) -> None:
        """Note that the process does what it is for."""
        self._wait_s = FIRST_WAIT_S
        if self.trouble:
            self.trouble = ""
            self._events.event("carrier_resumed", sink=self.sink)

    def _see(self, lanes: Mapping[int, Progress]) -> None:
        """Note what one process says of all lanes: what is visible stays so."""
        said = visible_ms(lanes)
        if said is not None:
            self._visible_ms = max(said, self._visible_ms or 0)

    async def _end_process(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(END_LIMIT_S):
                await process.wait()
        except TimeoutError:
            LOG.warning("killing the carrier of sink %s, process %d: it does not end", self.sink, process.pid)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    # -- one after the other ---------------------------------------------------------------------------------------

    async def _watch_over(self) -> None:
        """Replace each process that ends, until `close` is called."""
        while not self._closing.is_set():
            try:
                how = await self._listen(await self._spawn())
            except (LowtideError, OSError) as error:
                how = f"could not be used: {error}"
                await self._end_process()
            if self._closing.is_set():
                return
            self._failed(how)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s):
                    await self._closing.wait()
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
            self.restarts += 1

    def _failed(self, how: str) -> None:
        """Note why a process ended; as an event if that is news."""
        cause = (
            self._cause
            or CarrierStopped(
                f'the process that takes records of sink "{self.sink}" to their store {how}',
                where=f'topic "{self._setting.topic}"',
                way_out="nothing is lost, and another one takes over; if it happens again, see the job's log",
            ).cause()
        )
        self._cause = None
        LOG.error("the carrier of sink %s stopped, the next one starts in %g s: %s", self.sink, self._wait_s, cause)
        self._events.event("carrier_stopped", sink=self.sink, cause=str(cause))
        since = self.trouble.partition(" UTC")[0] or f"since {datetime.now(UTC):%H:%M:%S}"
        self.trouble = f"{since} UTC: records are not moving to sink {self.sink}: {cause.story}"
        self.way_out = cause.way_out
