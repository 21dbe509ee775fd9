"""The service's sockets, to which workers, executors and the driver connect; `lives.py` acts on what they send."""

import asyncio
import logging
from functools import partial

import msgspec

from lowtide.assignment import welcome
from lowtide.assignment.messages import (
    Answer,
    Current,
    Delivered,
    Done,
    End,
    Failed,
    Find,
    Finish,
    Finished,
    Fork,
    ForkServerHello,
    Found,
    FromHost,
    Gauges,
    Leads,
    Malformed,
    News,
    Question,
    Refused,
    Seat,
    Seated,
    Stands,
    Status,
    Stopping,
    WorkerHello,
    read_by_service,
    read_death,
    read_from_host,
)
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.errors import LifeEnded, LowtideError
from lowtide.process.credentials import server_tls
from lowtide.process.doors import Doors
from lowtide.process.lent_store import answered
from lowtide.process.wire import Kind
from lowtide.service.driver_end import DriverEnd, freed
from lowtide.service.lives import Lives
from lowtide.service.reception import receive_on
from lowtide.service.workers.deaths import REPORT_WAIT_S
from lowtide.service.workers.executors import Executors
from lowtide.service.workers.peer import Peer
from lowtide.service.workers.register import Register, Worker
from lowtide_snapshots.stores import Store, StoreSetting
from lowtide_snapshots.stores.memory import MIB, MemoryStore
from lowtide_tracker.entrance import Entrance

LOG = logging.getLogger(__name__)


class Service:
    """Serves the lives of one job, one after the other; each begins with its plan.

    Args:
        secret: The job's.
        python: The driver's Python and packages, which executors must have.
        doors: Opens the doors of this process and of a life's tracker.

    Attributes:
        lives: Acts on what comes in here.
    """

    def __init__(self, secret: bytes, python: dict[str, str], doors: Doors) -> None:
        self._secret = secret
        self._doors = doors
        self._executors = Executors(python)
        self.lives = Lives(secret, self._executors, doors)
        self._snapshots = MemoryStore(0)
        self._entrance: Entrance | None = None
        self._drivers: dict[int, DriverEnd] = {}
        """The driver program by its process, as it has named a lease."""

    async def close(self) -> None:
        """End what the lives and the driver program started here."""
        await self.lives.close()
        for driver in self._drivers.values():
            await driver.close()

    def serve(self) -> str:
        """Start listening; return the address."""
        listener, address = self._doors.open("service")
        tls = server_tls(self._secret) if self._doors.tls else None
        self._entrance = receive_on([listener], self._secret, self._talk, tls)
        return address

    def open_snapshots(self, setting: StoreSetting) -> Store:
        """Return the store of snapshots in this process' memory, with the limit that a life's setting has for it."""
        self._snapshots.limit_bytes = setting.memory_mb * MIB
        return self._snapshots

    async def _talk(self, peer: Peer) -> None:
        while True:
            kind, payload = await peer.receive()
            if kind == Kind.PLAN:
                await peer.answer(await self.lives.begin(payload))
                continue
            if kind == Kind.STORE:
                await peer.send(Kind.STORE, answered(self._snapshots, payload))
                continue
            try:
                message = read_by_service(payload)
            except Malformed as error:
                LOG.warning("%s", error)
                await peer.answer(Refused(str(error)))
                continue
            match message:
                case ForkServerHello():
                    await self._serve_fork_server(peer, message)
                case WorkerHello():
                    await self._serve_host(peer, message)
                case _:
                    await peer.answer(await self._answer(message))

    async def _answer(self, question: Question) -> Answer:
        lives = self.lives
        answer: Answer = Done()
        match question:
            case Find():
                answer = await self._find(question)
            case Seat(incarnation=incarnation, index=index, count=count):
                known = incarnation == lives.register.incarnation
                answer = Seated(lives.register.seat_of(index, count) if known else "")
            case Current(incarnation, worker):
                running = lives.running
                over = "the life is over" if running is None else await running.current(incarnation, worker)
                answer = Refused(over) if over else Done()
            case End(incarnation, cause):
                await lives.end_unless_the_worker_says_why(incarnation, cause)
            case Stopping(incarnation, cause):
                lives.stopping(incarnation, cause)
            case Finish(incarnation, limit_s):
                answer = Finished(await lives.finish(incarnation, limit_s))
            case Leads():
                answer = self._watch(question)
            case Status():
                answer = lives.status()
        return answer

    def _watch(self, leads: Leads) -> Done | Refused:
        """Watch over the driver program, for the lease that it is about to take."""
        try:
            access = msgspec.convert(leads.zookeeper, ZooKeeperAccess)
        except msgspec.ValidationError as error:
            return Refused(str(error))
        driver = self._drivers.get(leads.pid)
        if driver is None:
            driver = self._drivers[leads.pid] = DriverEnd(leads.pid)
            driver.start()
        driver.frees(partial(freed, access, leads.job, leads.lease))
        return Done()

    async def _find(self, question: Find) -> Found | Fork | Refused:
        lives, register, level = self.lives, self.lives.register, question.level
        if level == 0 and lives.running is not None and question.incarnation == register.incarnation:
            try:
                await lives.running.life.fronts.know(question.worker.partition("/")[2])
            except LowtideError as error:
                lives.end(register.incarnation, error.cause())
            register.seat(question.index, question.count, question.worker)
        before = register.cause
        found = register.find(
            question.worker,
            level,
            question.epoch,
            question.incarnation,
            question.executor,
            lives.processes(question.executor),
        )
        if register.cause != before:
            lives.report_end()
        if isinstance(found, Refused) or lives.running is None or not level:
            return found
        return msgspec.structs.replace(found, load_ms=int(lives.running.life.setting.load_limit_s * 1000))

    async def _serve_fork_server(self, peer: Peer, hello: ForkServerHello) -> None:
        """Compare the executor's Python with the driver's, then take reports of how its hosts die."""
        executor = hello.executor
        wrong = self._executors.came(peer, hello)
        if wrong:
            self.lives.end(self.lives.register.incarnation, wrong)
        try:
            while True:
                _, payload = await peer.receive()
                died = read_death(payload)
                if died.incarnation == self.lives.register.incarnation:
                    self.lives.deaths.reported(died.workers, died.how)
                    self.lives.watch_end(died.workers, died.pid)
        except Malformed as error:
            self.lives.end(self.lives.register.incarnation, error.cause().prefixed(f"executor {executor}: "))
        finally:
            self._executors.went(executor, peer)
            self.lives.watch_end(w.name for w in self.lives.register.workers.values() if w.executor == executor)

    async def _serve_host(self, peer: Peer, hello: WorkerHello) -> None:
        """Let a host's first worker in and those that follow, and take their reports."""
        register, links = self.lives.register, self.lives.links
        message: FromHost = hello
        refused = ""
        try:
            while not refused:
                if isinstance(message, WorkerHello):
                    refused = await self._let_in(register, peer, message)
                else:
                    self._hear(register, message)
                _, payload = await peer.receive()
                message = read_from_host(payload)
        except Malformed as error:
            self.lives.end(register.incarnation, error.cause().prefixed(f"worker {hello.worker}: "))
        except LifeEnded as error:
            self.lives.end(register.incarnation, error.cause())
        finally:
            gone = [name for name, link in links.items() if link is peer]
            for name in gone:
                del links[name]
            if gone:
                await asyncio.sleep(REPORT_WAIT_S)
                self.lives.lost(register, gone)

    def _hear(self, register: Register, report: Failed | Gauges | Stands | News) -> None:
        """Take a host's report of itself or of its workers."""
        if isinstance(report, Failed):
            self.lives.end(register.incarnation, report.cause)
        elif register is self.lives.register and self.lives.running is not None:
            if isinstance(report, Gauges):
                self.lives.heard(report.gauges)
            elif isinstance(report, Stands):
                self.lives.stands[report.worker] = report.stands
            else:
                for worker, news in report.news:
                    if isinstance(news, Delivered):
                        self.lives.delivered(worker, news.tick)
                    else:
                        self.lives.running.life.hear(worker, news)

    async def _let_in(self, register: Register, peer: Peer, hello: WorkerHello) -> str:
        """Welcome a worker, or tell its host that it is refused; return the reason, empty if it is not."""
        name = hello.worker
        worker: Worker | Refused = Refused(f"incarnation {hello.incarnation} is over")
        if hello.incarnation == register.incarnation and register is self.lives.register:
            worker = register.reported(name, hello.number, hello.address, hello.near, hello.pid)
        if isinstance(worker, Refused):
            await peer.answer(worker)
            return worker.cause
        running = self.lives.running
        assert running is not None, "a life that forks workers has begun"
        self.lives.links[name] = peer
        self.lives.event("worker_forked", worker=name, pid=hello.pid, executor=worker.executor)
        greeting = welcome.pack(await running.life.welcome(name), self.lives.plan if hello.plan else b"")
        if register is self.lives.register:
            self.lives.welcomed.add(name)
        await peer.send(Kind.PLAN, greeting)
        return ""
