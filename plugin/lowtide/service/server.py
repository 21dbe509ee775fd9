"""The service's sockets: workers, executors and the driver talk to it here; its core is ``register.py``."""

import asyncio
import json
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

from lowtide.errors import LifeEnded, LowtideError
from lowtide.events import EventName
from lowtide.service import figures
from lowtide.service.executors import Executors
from lowtide.service.peer import Peer
from lowtide.service.reception import receive_on
from lowtide.service.register import Fork, Found, Refused, Register, Worker
from lowtide.service.running import Running
from lowtide.service.setting import unpack
from lowtide.wire import Kind
from lowtide.worker import welcome
from lowtide_snapshots.errors import SnapshotsError

FINISH_LIMIT_S = 5.0
"""How long workers may take to deliver what they hold; a little more than their own limit."""
KILL_LIMIT_S = 2.0
"""How long a worker may take to be gone after it was killed."""
FINISH_POLL_S = 0.01
DEATH_REPORT_WAIT_S = 0.3
"""How long a lost connection waits for the fork server to say how its worker died."""


class Service:
    """Serves the lives of one job, one after the other; each begins with its plan.

    Args:
        secret: The job's.
        python: The driver's Python and packages, which executors must have.
        host: Where what a life starts is to listen.
    """

    def __init__(self, secret: bytes, python: dict[str, str], host: str = "127.0.0.1") -> None:
        self.register = Register(-1)
        self._running: Running | None = None
        self._secret = secret
        self._host = host
        self._plan = b""
        self._links: dict[str, Peer] = {}
        self._welcomed: set[str] = set()
        self._deaths: dict[tuple[int, str], str] = {}
        self._gauges: dict[str, dict[str, Any]] = {}
        self._executors = Executors(python)
        self._watches: set[asyncio.Task[None]] = set()

    async def serve(self, host: str) -> asyncio.Server:
        """Starts to listen on a free port of ``host``."""
        return await receive_on(host, self._secret, self._talk)

    async def _talk(self, peer: Peer) -> None:
        while True:
            kind, payload = await peer.receive()
            if kind == Kind.PLAN:
                await peer.send(Kind.ASK, await self._begin(payload))
                continue
            question = json.loads(payload)
            match question["ask"]:
                case "forkserver":
                    await self._serve_fork_server(peer, question)
                case "worker":
                    await self._serve_worker(peer, question)
                case _:
                    await peer.send(Kind.ASK, await self._answer(question))

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any]
        match question["ask"]:
            case "find":
                answer = await self._find(question)
            case "seat":
                known = question["incarnation"] == self.register.incarnation
                seat = self.register.seat_of(question["index"], question["count"]) if known else ""
                answer = {"seat": seat}
            case "current":
                running = self._running
                over = (
                    "the life is over"
                    if running is None
                    else await running.current(question["incarnation"], question["worker"])
                )
                answer = {"refused": over}
            case "end":
                await self._end_unless_the_worker_says_why(question["incarnation"], question["cause"])
                answer = {"ended": self.register.cause}
            case "stopping":
                self._stopping(question["incarnation"])
                answer = {"stopping": True}
            case "finish":
                killed = await self._finish(question["incarnation"])
                answer = {"finished": not self._links, "killed": killed}
            case "status":
                answer = self.status()
            case other:
                answer = {"refused": f"the service knows no question {other!r}"}
        return answer

    # -- lives -----------------------------------------------------------------------------------------------------

    async def _begin(self, payload: bytes) -> dict[str, Any]:
        """A new life: its setting, and the deployment for its workers. Numbers of lives only grow.

        A life that still runs is not replaced; of one that has ended, the workers that are still there are killed.
        """
        setting, deployment = unpack(payload)
        incarnation = setting.incarnation
        before, links = self.register, self._links
        if incarnation <= before.incarnation:
            return {"refused": f"incarnation {incarnation} is not above {before.incarnation}"}
        if before.runs:
            return {"refused": f"incarnation {before.incarnation} still runs here", "running": before.incarnation}
        register = self.register = Register(incarnation)
        self._plan = deployment
        self._links, self._gauges, self._deaths = {}, {}, {}
        self._welcomed = set()
        for wrong in self._executors.refused:
            self._end(incarnation, wrong)
        await self._kill(before, links)
        for link in list(links.values()):
            link.close()
        await self.close()
        running = Running(
            setting,
            secret=self._secret,
            host=self._host,
            register=register,
            on_end=partial(self._end, incarnation),
            tell_worker=self._tell_worker,
        )
        try:
            control = await running.start()
        except (LowtideError, SnapshotsError, OSError) as error:
            register.end(str(error))
            return {"refused": str(error)}
        self._running = running
        return {"begun": incarnation, "control": control}

    async def close(self) -> None:
        """End what the last life has started here."""
        for watch in self._watches:
            watch.cancel()  # A life that is over has nothing to lose.
        running, self._running = self._running, None
        if running is not None:
            await running.close()

    def _tell_worker(self, name: str, message: dict[str, Any]) -> None:
        if name in self._welcomed and name in self._links:  # A worker's first message is its welcome.
            self._links[name].tell(message)

    def _stopping(self, incarnation: int) -> None:
        """Its query is being stopped: tasks that break off now are no failure."""
        if incarnation == self.register.incarnation:
            self.register.finished = True

    async def _finish(self, incarnation: int) -> list[str]:
        """Ends a life on purpose: workers deliver what they hold and go; those that do not are killed and named."""
        register, links = self.register, self._links
        if incarnation != register.incarnation:
            return []
        register.finished = True
        for link in list(links.values()):
            await link.send(Kind.ASK, {"stop": True})
        await _until_empty(links, FINISH_LIMIT_S)
        killed = await self._kill(register, links)
        await self.close()
        return killed

    async def _kill(self, register: Register, links: dict[str, Peer]) -> list[str]:
        """Lets the fork servers kill the workers that are still there, and waits for their end; returns their names."""
        left = sorted(links)
        await self._executors.kill(register.incarnation, ((name, register.workers[name].executor) for name in left))
        await _until_empty(links, KILL_LIMIT_S)
        return left

    async def _end_unless_the_worker_says_why(self, incarnation: int, cause: str) -> None:
        """A task failed. If its worker died or raised, that is the cause; the task merely saw its line break."""
        waited_s = 0.0
        while not self.register.cause and waited_s < 2 * DEATH_REPORT_WAIT_S:
            await asyncio.sleep(FINISH_POLL_S)
            waited_s += FINISH_POLL_S
        self._end(incarnation, cause)

    def _end(self, incarnation: int, cause: str) -> None:
        """Ends the life for a cause: the driver plugin is told, and cancels Spark's jobs."""
        if incarnation == self.register.incarnation and not self.register.cause and not self.register.finished:
            self.register.end(cause)
            self._tell_end()

    def _tell_end(self) -> None:
        """Tell the driver plugin that the life has ended."""
        say({"ended": self.register.cause, "incarnation": self.register.incarnation})
        self._event("life_ended", cause=self.register.cause)

    def _event(self, name: EventName, **fields: Any) -> None:
        if self._running is not None:
            self._running.events.event(name, **fields)

    # -- who talks to it -------------------------------------------------------------------------------------------

    async def _find(self, q: dict[str, Any]) -> dict[str, Any]:
        register = self.register
        if q["level"] == 0 and self._running is not None and q["incarnation"] == register.incarnation:
            try:
                await self._running.life.fronts.know(q["worker"].partition("/")[2])
            except (LowtideError, SnapshotsError) as error:
                self._end(register.incarnation, str(error))
            if "index" in q:
                register.seat(q["index"], q["count"], q["worker"])
        before = register.cause
        found = register.find(q["worker"], q["level"], q["epoch"], q["incarnation"], q["executor"])
        if register.cause != before:
            self._tell_end()
        match found:
            case Found(address):
                return {"at": address}
            case Fork(number):
                return {"fork": number}
            case Refused(reason):
                return {"refused": reason}

    async def _serve_fork_server(self, peer: Peer, hello: dict[str, Any]) -> None:
        """Compares the executor's Python with the driver's, then hears how its workers die."""
        executor = hello["executor"]
        wrong = self._executors.came(peer, hello)
        if wrong:
            self._end(self.register.incarnation, wrong)
        try:
            while True:
                _, payload = await peer.receive()
                died = json.loads(payload)
                self._deaths[died["incarnation"], died["worker"]] = died["how"]
                if died["incarnation"] == self.register.incarnation:
                    self._watch_end([died["worker"]], died["pid"])
        finally:
            self._executors.went(executor, peer)
            self._watch_end(w.name for w in self.register.workers.values() if w.executor == executor)

    def _watch_end(self, names: Iterable[str], pid: int = 0) -> None:
        """Workers have died. Children of theirs may hold their lines to the service open, so nobody waits for those."""
        register, links = self.register, self._links

        async def end(names: list[str]) -> None:
            await asyncio.sleep(DEATH_REPORT_WAIT_S)  # What a worker said last, and how it died, is heard first.
            for name in names:
                self._lost(register, name, pid)
                if name in links:
                    links[name].close()

        watch = asyncio.create_task(end(list(names)))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _serve_worker(self, peer: Peer, hello: dict[str, Any]) -> None:
        register, name = self.register, hello["worker"]
        worker: Worker | Refused = Refused(f"incarnation {hello['incarnation']} is over")
        if hello["incarnation"] == register.incarnation:
            worker = register.reported(name, hello["number"], hello["address"], hello["pid"])
        if isinstance(worker, Refused):
            await peer.send(Kind.ASK, {"refused": worker.reason})
            return
        links, gauges, running = self._links, self._gauges, self._running
        links[name] = peer
        self._event("worker_forked", worker=name, pid=hello["pid"], executor=worker.executor)
        try:
            assert running is not None, "whose worker was to be forked has begun"
            life = running.life
            greeting = welcome.pack(await life.welcome(name), self._plan)
            if register is self.register:
                self._welcomed.add(name)
            await peer.send(Kind.PLAN, greeting)
            while True:
                _, payload = await peer.receive()
                said = json.loads(payload)
                if "failed" in said:
                    self._end(register.incarnation, said["failed"])
                elif "gauges" in said:
                    gauges[name] = said["gauges"]
                else:
                    life.hear(name, said)
        except LifeEnded as error:
            self._end(register.incarnation, str(error))
        finally:
            del links[name]
            await asyncio.sleep(DEATH_REPORT_WAIT_S)
            self._lost(register, name)

    def _lost(self, register: Register, name: str, pid: int = 0) -> None:
        before = register.cause
        register.lost(name, self._deaths.get((register.incarnation, name), ""), pid)
        if register.cause != before and register is self.register:
            self._event("worker_lost", worker=name, pid=pid, why=register.cause)
            self._tell_end()

    # -- figures ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look after the life; to be called each second."""
        if self._running is not None:
            self._running.look(figures.workers(self.register, self._gauges))

    def totals(self) -> dict[str, int]:
        """The job's gauges."""
        return figures.totals(self.register, self._gauges, len(self._executors))

    def status(self) -> dict[str, Any]:
        """What the driver program is told of a running job."""
        return {
            "incarnation": self.register.incarnation,
            "cause": self.register.cause,
            "totals": self.totals(),
            "workers": figures.workers(self.register, self._gauges),
        }


async def _until_empty(links: dict[str, Peer], limit_s: float) -> None:
    deadline = asyncio.get_running_loop().time() + limit_s
    while links and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(FINISH_POLL_S)


def say(line: dict[str, Any]) -> None:
    """One line of JSON to the driver plugin."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
