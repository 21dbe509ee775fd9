"""The lives of one job, one after the other: the beginning, the end and the lost workers of each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from lowtide.assignment.messages import (
    Begun,
    Ended,
    JobGauges,
    JobState,
    Refused,
    ServiceReady,
    StillRuns,
    Stop,
    ToWorker,
    WorkerOrder,
    line,
)
from lowtide.assignment.setting import LifeSetting, unpack
from lowtide.errors import LowtideError
from lowtide.events import EventLog, EventName
from lowtide.process.doors import Doors
from lowtide.service.life import Life
from lowtide.service.life_view import LifeView
from lowtide.service.workers import figures
from lowtide.service.workers.deaths import REPORT_WAIT_S, Deaths
from lowtide.service.workers.executors import Executors
from lowtide.service.workers.peer import Peer
from lowtide.service.workers.register import Register
from lowtide.status.gauges import StepStands, WorkerGauges, WorkerState
from lowtide.status.history import History
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.errors import cause_of

KILL_LIMIT_S = 2.0
"""The time within which a killed worker must be gone."""
FINISH_POLL_S = 0.01


class Lives:
    """The present life of a job, or none.

    Args:
        secret: The job's.
        executors: The connected executors.
        doors: Opens the doors of a life's tracker.

    Attributes:
        register: The workers of the current or last life.
        running: The parts of the current life that run here; None between two lives.
        plan: The deployment for its workers.
        links: The connection of each worker's host.
        welcomed: The workers that have got their welcome.
        gauges: The last gauges of each worker.
        stands: The step that a worker is in without returning; only of those that are in one.
        deaths: The deaths of its workers.
    """

    def __init__(self, secret: bytes, executors: Executors, doors: Doors) -> None:
        self.register = Register(-1)
        self.running: Running | None = None
        self.plan = b""
        self.links: dict[str, Peer] = {}
        self.welcomed: set[str] = set()
        self.gauges: dict[str, WorkerGauges] = {}
        self.stands: dict[str, StepStands] = {}
        self.deaths = Deaths()
        self._delivered_seen = False
        """True while a look at what workers report as durable is due."""
        self.executors = executors
        self._secret = secret
        self._doors = doors
        self._history = History()

    async def begin(self, payload: bytes) -> Begun | StillRuns | Refused:
        """Begin a life from its setting and the deployment for its workers. Numbers of lives only grow.

        A life that still runs is not replaced; remaining workers of one that has ended are killed.
        """
        try:
            setting, deployment = unpack(payload)
        except msgspec.MsgspecError as error:
            return Refused(f"the driver program and its plugin have different versions of Lowtide: {error}")
        incarnation = setting.incarnation
        before, links = self.register, self.links
        if incarnation <= before.incarnation:
            return Refused(f"incarnation {incarnation} is not above {before.incarnation}")
        if before.runs:
            return StillRuns(before.incarnation)
        register = self.register = Register(incarnation)
        self.plan = deployment
        self.links, self.gauges, self.stands, self.welcomed = {}, {}, {}, set()
        for wrong in self.executors.refused:
            self.end(incarnation, wrong)
        await self._kill(before, links)
        for link in set(links.values()):
            link.close()
        await self.close()
        self.deaths = Deaths()
        try:
            running = Running(
                setting,
                secret=self._secret,
                doors=self._doors,
                register=register,
                on_end=partial(self.end, incarnation),
                send=self._send,
                history=self._history,
            )
            begun = await running.start()
        except (LowtideError, OSError) as error:
            register.end(cause_of(error))
            return Refused(str(error))
        self.running = running
        return begun

    async def close(self) -> None:
        """End what the last life started here."""
        self.deaths.close()
        running, self.running = self.running, None
        if running is not None:
            await running.close()

    def _send(self, name: str, order: WorkerOrder) -> None:
        if name in self.welcomed and name in self.links:  # A worker's first message is its welcome.
            self.links[name].post(ToWorker(name, order))

    def processes(self, executor: str) -> int:
        """Return the number of hosts of an executor, if it has as many workers."""
        said = 0 if self.running is None else self.running.life.setting.processes
        return said or max(1, self.executors.cores(executor) // 2)

    def stopping(self, incarnation: int, cause: Cause | None) -> None:
        """Note that the life's query is being stopped: tasks that break off now are not failures.

        Args:
            incarnation: The life's number.
            cause: The cause of its end, if its program found that before the service; None for a stop on purpose.
        """
        if incarnation == self.register.incarnation:
            if cause and self.register.runs:
                self.event("life_ended", cause=str(cause))
            if cause and self.running is not None:
                self.running.life.hub.end(cause)
            self.register.finished = True

    async def finish(self, incarnation: int, limit_s: float) -> list[str]:
        """End a life on purpose: workers deliver what they hold; kill those that take too long and return them."""
        register, links = self.register, self.links
        if incarnation != register.incarnation:
            return []
        register.finished = True
        for link in set(links.values()):
            await link.answer(Stop())
        await _until_empty(links, limit_s)
        killed = await self._kill(register, links)
        if self.running is not None and not register.cause:
            await self.running.life.drain(figures.workers(self.register, self.gauges, self.stands))
        await self.close()
        return killed

    async def _kill(self, register: Register, links: dict[str, Peer]) -> list[str]:
        """Have the fork servers kill the remaining workers, and wait for their end; return their names."""
        left = sorted(links)
        await self.executors.kill(register.incarnation, ((name, register.workers[name].executor) for name in left))
        await _until_empty(links, KILL_LIMIT_S)
        return left

    async def end_unless_the_worker_says_why(self, incarnation: int, cause: Cause) -> None:
        """End the life as a task failed, unless its worker died or raised: then that is the cause."""
        waited_s = 0.0
        while not self.register.cause and waited_s < 2 * REPORT_WAIT_S:
            await asyncio.sleep(FINISH_POLL_S)
            waited_s += FINISH_POLL_S
        self.end(incarnation, cause)

    def end(self, incarnation: int, cause: Cause) -> None:
        """End the life for a cause: tell the driver plugin, which cancels Spark's jobs."""
        if incarnation == self.register.incarnation and not self.register.cause and not self.register.finished:
            self.register.end(cause)
            self.report_end()

    def report_end(self) -> None:
        """Tell the driver plugin that the life has ended."""
        assert self.register.cause is not None, "the life has ended for a cause"
        say(Ended(self.register.incarnation, self.register.cause))
        self.event("life_ended", cause=str(self.register.cause))

    def event(self, name: EventName, **fields: Any) -> None:
        """Write a line into the job's log of events."""
        if self.running is not None:
            self.running.events.event(name, **fields)

    def watch_end(self, names: Iterable[str], pid: int = 0) -> None:
        """Watch the end of workers that died. Children may hold their lines open, so do not wait for those."""
        register, links, dead = self.register, self.links, list(names)

        def look() -> None:
            self.lost(register, dead, pid)
            for link in {links[name] for name in dead if name in links}:
                link.close()

        self.deaths.look_soon(look)

    def lost(self, register: Register, names: Iterable[str], pid: int = 0) -> None:
        """End the life, as workers are gone together, unless it was over or they were to go."""
        before, gone = register.cause, list(names)
        how = self.deaths.how(gone[0]) if gone and register is self.register else ""
        register.lost(gone, how, pid)
        if register.cause != before and register is self.register:
            self.event("worker_lost", worker=", ".join(gone), pid=pid, why=str(register.cause))
            self.report_end()

    def look(self) -> None:
        """Look after the life; call it each second."""
        if self.running is not None:
            self.running.look(figures.workers(self.register, self.gauges, self.stands))

    def heard(self, gauges: Mapping[str, WorkerGauges]) -> None:
        """Take the gauges of a host's workers: its loop turns, so none of them is in a step without returning."""
        self.gauges.update(gauges)
        for worker in gauges:
            self.stands.pop(worker, None)

    def delivered(self, worker: str, tick: int) -> None:
        """Take the tick below which a worker's lanes are durable, reported at once while somebody listens."""
        gauges = self.gauges.get(worker)
        if gauges is None:
            return  # It has not sent gauges yet.
        self.gauges[worker] = replace(gauges, delivered_time=tick)
        if not self._delivered_seen:
            self._delivered_seen = True
            asyncio.get_running_loop().call_soon(self._look_at_delivered)

    def _look_at_delivered(self) -> None:
        """Look once for all reports that a host's workers sent together."""
        self._delivered_seen = False
        if self.running is not None and self.register.runs:
            self.running.life.look_at_delivered(figures.workers(self.register, self.gauges, self.stands))

    def totals(self) -> dict[str, int]:
        """Return the job's gauges."""
        return figures.totals(self.register, self.gauges, len(self.executors))

    def status(self) -> JobState:
        """Return the state of a running job for the driver program."""
        return JobState(
            incarnation=self.register.incarnation,
            cause=self.register.cause,
            totals=self.totals(),
            workers=figures.workers(self.register, self.gauges, self.stands),
            executors=self.executors.names,
            finished=self.running is not None and self.running.life.end.reached,
            stop_asked=self.running is not None and self.running.stop_asked,
        )


async def _until_empty(links: dict[str, Peer], limit_s: float) -> None:
    deadline = asyncio.get_running_loop().time() + limit_s
    while links and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(FINISH_POLL_S)


def say(message: ServiceReady | JobGauges | Ended) -> None:
    """Write one message to the driver plugin."""
    sys.stdout.write(line(message).decode())
    sys.stdout.flush()


class Running:
    """A life, its events and its control API.

    Args:
        setting: The driver program's setting.
        secret: The job's secret.
        doors: Opens the tracker's.
        register: The life's workers.
        on_end: Called with the cause when the life cannot go on.
        send: Sends a message to a worker, by name.
        history: The history of the lives before; continues with this one.

    Raises:
        ConfError: the control API's certificate cannot be used.
    """

    def __init__(
        self,
        setting: LifeSetting,
        *,
        secret: bytes,
        doors: Doors,
        register: Register,
        on_end: Callable[[Cause], None],
        send: Callable[[str, WorkerOrder], None],
        history: History,
    ) -> None:
        self.register = register
        self.events = EventLog(setting.job, setting.incarnation)
        self.life = Life(
            setting,
            secret=secret,
            doors=doors,
            register=register,
            events=self.events,
            on_end=on_end,
            send=send,
        )
        self._view = LifeView(self.life, self.events, register, history)

    async def start(self) -> Begun:
        """Start all of it; return its control API's address.

        Raises:
            LowtideError, OSError: what could not be started; nothing is left running.
        """
        try:
            await self.life.start()
            await self._view.start()
            self._view.look(())
        except BaseException:
            await self.close()
            raise
        self.events.event("life_begun", fronts=len(self.life.fronts.known))
        return Begun(self.register.incarnation, self._view.address, self._view.certificate)

    @property
    def stop_asked(self) -> bool:
        """True if somebody has asked the control API to stop the job."""
        return self._view.stop_asked

    async def close(self) -> None:
        """End all of it."""
        await self._view.close()
        await self.life.close()

    def look(self, workers: Sequence[WorkerState]) -> None:
        """Look after the life, and renew its view; call it each second."""
        if self.register.runs:
            self.life.look(workers)
        self._view.look(workers)

    async def current(self, incarnation: int, worker: str) -> str:
        """Return why a life is not the job's newest; empty if it is (W10)."""
        if incarnation != self.register.incarnation or self.register.cause:
            return str(self.register.cause or f"incarnation {incarnation} is over")
        return await self.life.current(worker)
