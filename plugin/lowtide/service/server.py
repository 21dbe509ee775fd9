"""The service's sockets: workers, executors and the driver talk to it here; see `lives.py` for what comes of it."""

import asyncio
import json
from typing import Any

import msgspec

from lowtide.assignment import welcome
from lowtide.errors import LifeEnded, LowtideError
from lowtide.process.wire import Kind
from lowtide.service.lives import Lives
from lowtide.service.reception import receive_on
from lowtide.service.workers.deaths import REPORT_WAIT_S
from lowtide.service.workers.executors import Executors
from lowtide.service.workers.peer import Peer
from lowtide.service.workers.register import Fork, Found, Refused, Register, Worker
from lowtide_snapshots.cause import Cause
from lowtide_tracker.entrance import Entrance


class Service:
    """Serves the lives of one job, one after the other; each begins with its plan.

    Args:
        secret: The job's.
        python: The driver's Python and packages, which executors must have.
        host: Where what a life starts is to listen.

    Attributes:
        lives: What comes of what is heard here.
    """

    def __init__(self, secret: bytes, python: dict[str, str], host: str = "127.0.0.1") -> None:
        self._secret = secret
        self._executors = Executors(python)
        self.lives = Lives(secret, self._executors, host)
        self._entrance: Entrance | None = None

    def serve(self, host: str) -> tuple[str, int]:
        """Starts to listen on a free port of ``host``; returns host and port."""
        self._entrance = receive_on(host, self._secret, self._talk)
        return self._entrance.address

    async def _talk(self, peer: Peer) -> None:
        while True:
            kind, payload = await peer.receive()
            if kind == Kind.PLAN:
                await peer.send(Kind.ASK, await self.lives.begin(payload))
                continue
            question = json.loads(payload)
            match question["ask"]:
                case "forkserver":
                    await self._serve_fork_server(peer, question)
                case "worker":
                    await self._serve_host(peer, question)
                case _:
                    await peer.send(Kind.ASK, await self._answer(question))

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any]
        match question["ask"]:
            case "find":
                answer = await self._find(question)
            case "seat":
                known = question["incarnation"] == self.lives.register.incarnation
                seat = self.lives.register.seat_of(question["index"], question["count"]) if known else ""
                answer = {"seat": seat}
            case "current":
                running = self.lives.running
                over = (
                    "the life is over"
                    if running is None
                    else await running.current(question["incarnation"], question["worker"])
                )
                answer = {"refused": over}
            case "end":
                cause = msgspec.convert(question["cause"], Cause)
                await self.lives.end_unless_the_worker_says_why(question["incarnation"], cause)
                answer = {"ended": str(self.lives.register.cause or "")}
            case "stopping":
                self.lives.stopping(question["incarnation"], Cause.of(question["cause"]))
                answer = {"stopping": True}
            case "finish":
                killed = await self.lives.finish(question["incarnation"])
                answer = {"finished": not self.lives.links, "killed": killed}
            case "status":
                answer = self.lives.status()
            case other:
                answer = {"refused": f"the service knows no question {other!r}"}
        return answer

    async def _find(self, q: dict[str, Any]) -> dict[str, Any]:
        register = self.lives.register
        if q["level"] == 0 and self.lives.running is not None and q["incarnation"] == register.incarnation:
            try:
                await self.lives.running.life.fronts.know(q["worker"].partition("/")[2])
            except LowtideError as error:
                self.lives.end(register.incarnation, error.cause())
            if "index" in q:
                register.seat(q["index"], q["count"], q["worker"])
        before = register.cause
        processes = self.lives.processes(q["executor"])
        found = register.find(q["worker"], q["level"], q["epoch"], q["incarnation"], q["executor"], processes)
        if register.cause != before:
            self.lives.tell_end()
        running = self.lives.running
        load_ms = 0 if running is None or not q["level"] else int(running.life.setting.load_limit_s * 1000)
        match found:
            case Found(address):
                return {"at": address, "load_ms": load_ms}
            case Fork(number, host):
                return {"fork": {"number": number, "host": host}, "load_ms": load_ms}
            case Refused(reason):
                return {"refused": reason}

    async def _serve_fork_server(self, peer: Peer, hello: dict[str, Any]) -> None:
        """Compares the executor's Python with the driver's, then hears how its hosts die."""
        executor = hello["executor"]
        wrong = self._executors.came(peer, hello)
        if wrong:
            self.lives.end(self.lives.register.incarnation, wrong)
        try:
            while True:
                _, payload = await peer.receive()
                died = json.loads(payload)
                if died["incarnation"] == self.lives.register.incarnation:
                    self.lives.deaths.reported(died["workers"], died["how"])
                    self.lives.watch_end(died["workers"], died["pid"])
        finally:
            self._executors.went(executor, peer)
            self.lives.watch_end(w.name for w in self.lives.register.workers.values() if w.executor == executor)

    async def _serve_host(self, peer: Peer, hello: dict[str, Any]) -> None:
        """Let a host's first worker in and those that follow, and hear what they say."""
        register, links = self.lives.register, self.lives.links
        said, refused = hello, ""
        try:
            while not refused:
                if "ask" in said:
                    refused = await self._let_in(register, peer, said)
                else:
                    self._hear(register, said)
                _, payload = await peer.receive()
                said = json.loads(payload)
        except LifeEnded as error:
            self.lives.end(register.incarnation, error.cause())
        finally:
            gone = [name for name, link in links.items() if link is peer]
            for name in gone:
                del links[name]
            if gone:
                await asyncio.sleep(REPORT_WAIT_S)
                self.lives.lost(register, gone)

    def _hear(self, register: Register, said: dict[str, Any]) -> None:
        """Take what a host says of itself or of its workers."""
        if "failed" in said:
            self.lives.end(register.incarnation, msgspec.convert(said["failed"], Cause))
        elif register is self.lives.register and self.lives.running is not None:
            self.lives.gauges.update(said.get("gauges", {}))
            for worker, message in said.get("said", ()):
                self.lives.running.life.hear(worker, message)

    async def _let_in(self, register: Register, peer: Peer, hello: dict[str, Any]) -> str:
        """Welcome a worker, or tell its host that it is refused; return why it is, empty if it is not."""
        name = hello["worker"]
        worker: Worker | Refused = Refused(f"incarnation {hello['incarnation']} is over")
        if hello["incarnation"] == register.incarnation and register is self.lives.register:
            worker = register.reported(name, hello["number"], hello["address"], hello["pid"])
        if isinstance(worker, Refused):
            await peer.send(Kind.ASK, {"refused": worker.reason})
            return worker.reason
        running = self.lives.running
        assert running is not None, "whose worker was to be forked has begun"
        self.lives.links[name] = peer
        self.lives.event("worker_forked", worker=name, pid=hello["pid"], executor=worker.executor)
        greeting = welcome.pack(await running.life.welcome(name), self.lives.plan if hello.get("plan") else b"")
        if register is self.lives.register:
            self.lives.welcomed.add(name)
        await peer.send(Kind.PLAN, greeting)
        return ""
