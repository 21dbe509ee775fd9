"""`python -m lowtide.service.tracker.main`: the tracker of a life, or a part of it, in a process of its own.

The service starts it and exchanges `service/tracker/messages.py` with it over its standard input and output.

It ends when its standard input closes, however its parent ended, and after a fault once all know of it. Every record
depends on it, so nothing blocks its loop: a report that standard output does not take is made again later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from typing import Any

from lowtide.assignment.messages import Refused, line
from lowtide.logs import log_to_stderr
from lowtide.process.descriptors import allow_descriptors
from lowtide.process.interpreter import set_up_collector
from lowtide.service.tracker.messages import (
    Fault,
    ForgetFloors,
    FromTracker,
    Ready,
    Requested,
    ToTracker,
    TrackerStart,
    read_by_tracker,
    read_tracker_start,
)
from lowtide.service.tracker.reports import QUIET_S, Reports
from lowtide.service.tracker.served import Served, served_of
from lowtide_snapshots.cause import Cause
from lowtide_tracker import Notice, StillRebuilding, TrackerError
from lowtide_tracker.life_server import LifeServer

LOG = logging.getLogger(__name__)
LAST_WORDS_S = 3.0
"""The time for clients to learn that the life is over: a little more than each of them has."""
POLL_S = 0.01
FORGET_AT_ONCE = 2_000
"""The number of floors dropped in one turn of the loop: less than 1 ms."""
FORGET_EVERY_S = 0.005


class _Input(asyncio.Protocol):
    """Standard input after its first line."""

    def __init__(self, asked: Callable[[ToTracker], None], ended: asyncio.Event) -> None:
        self._asked = asked
        self._ended = ended
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for each in lines:
            self._asked(read_by_tracker(each))

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


class TrackerMain:
    """The process, from its first line to its end."""

    def __init__(self, first: TrackerStart) -> None:
        self._first = first
        self._closed = asyncio.Event()
        """Set when the parent has gone, or wants the end."""
        self._over = asyncio.Event()
        """Set when the life is over."""
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._served: Served | None = None
        self._reports: Reports | None = None

    async def run(self) -> None:
        """Serve until standard input closes, or the life is over and all know of it."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._break)
        await loop.connect_read_pipe(lambda: _Input(self._hear, self._closed), sys.stdin)
        self._out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
        try:
            served = served_of(self._first, self._fault, self._moved)
        except TrackerError as error:
            self._fault(error)
            return
        self._served = served
        if await self._start(served):
            self._say(Ready(os.getpid()))
            set_up_collector()
            await self._report(served)
        await self._let_all_read(served.server)
        await served.server.close()

    async def _start(self, served: Served) -> bool:
        """Listen; a shard reports meanwhile, as it waits for its merge. Return False if the end comes first."""
        starting = asyncio.create_task(served.server.start(sock=socket.socket(fileno=self._first.listener)))
        ends = self._ends()
        while not any(end.done() for end in (starting, *ends)):
            await asyncio.wait([starting, *ends, self._broken], timeout=QUIET_S, return_when=FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            if not starting.done():
                self._say(served.report())
        for end in ends:
            end.cancel()
        if not starting.done():
            starting.cancel()
            return False
        try:
            LOG.info("%s of incarnation %d at %s", served, served.server.incarnation, starting.result())
        except TrackerError:
            return False  # The life is over, which is already reported.
        return True

    def _ends(self) -> list[asyncio.Future[Any]]:
        return [asyncio.create_task(event.wait()) for event in (self._closed, self._over)]

    async def _report(self, served: Served) -> None:
        """Report until the end of the life or of this process."""

        def say() -> bool:
            if self._out.get_write_buffer_size():
                return False
            self._say(served.report())
            return True

        ends = self._ends()
        self._reports = Reports(say)
        await asyncio.wait([*ends, self._broken], return_when=FIRST_COMPLETED)
        self._reports.close()
        if self._broken.done():
            self._broken.result()
        for end in ends:
            end.cancel()

    def _moved(self, _notice: Notice) -> None:
        """Note that min time has moved."""
        if self._reports is not None:
            self._reports.moved()

    async def _let_all_read(self, server: LifeServer) -> None:
        """Give clients time to read why the life is over, and the parent all it needs, as it would go on otherwise."""
        deadline = asyncio.get_running_loop().time() + LAST_WORDS_S
        while not self._closed.is_set():
            waits = server.connected[1] and asyncio.get_running_loop().time() < deadline
            if not (waits or self._out.get_write_buffer_size()):
                return
            await asyncio.sleep(POLL_S)

    def _hear(self, asked: ToTracker) -> None:
        """Follow the service's orders."""
        served = self._served
        if served is None or self._over.is_set():
            return
        if isinstance(asked, ForgetFloors):
            self._forget(served, asked.front, asked.offset)
            return
        try:
            tick = served.request(asked.number)
        except StillRebuilding as error:
            self._say(Requested(asked.number, Refused(str(error))))
            return
        self._say(Requested(asked.number, tick))

    def _forget(self, served: Served, front: int, offset: int) -> None:
        """Drop some floors at a time: records wait meanwhile."""
        if served.forget_floors(front, offset, FORGET_AT_ONCE):
            asyncio.get_running_loop().call_later(FORGET_EVERY_S, self._forget, served, front, offset)

    def _fault(self, error: TrackerError) -> None:
        self._say(Fault(Cause("loss", str(error))))
        self._over.set()

    def _say(self, message: FromTracker) -> None:
        self._out.write(line(message))

    def _break(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the process after an unexpected error, which may leave half a flush: workers rebuild a new one."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if error is not None and not isinstance(error, OSError) and not self._broken.done():
            self._broken.set_exception(error)


async def serve(first: TrackerStart) -> None:
    """Run the process as the first line says."""
    await TrackerMain(first).run()


def main() -> None:
    """Read the first line, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal's Ctrl-C reaches all; the service ends its own.
    log_to_stderr("tracker")
    allow_descriptors()
    first = sys.stdin.readline()
    if first:
        asyncio.run(serve(read_tracker_start(first)))


if __name__ == "__main__":
    main()
