"""What a run plays on: Kafka, ZooKeeper, S3, the job's programs; and what may be asked and done of them."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from s3_server import ENVIRONMENT, S3Server
from tests.job_program import Program
from tests.judging import produce
from tests.kafka_proxy import KafkaProxy
from tests.shop import Shop

from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.embedded import EmbeddedServices
from lowtide.errors import LowtideError
from lowtide.jobs.state import JobState
from lowtide.status.control_client import ControlClient
from lowtide.status.job_view import JobView
from tests.driver import below

from .asked import Asked
from .clock import SteppedClock
from .cutting import cut
from .gate import Gate
from .processes import MARK, marked, of_program, send

LANES = 2
RATES = "rates"
FIRST_PERCENT = 7
KEPT_DAYS = 1_000
SESSION_S = 5.0
CALL_LIMIT_S = 4.0
MOST_STARTS = 120
"""Programs that are started in one run, at most."""
ENDED_WITHIN_S = 180.0
"""Time that a program may take to stop; a busy machine is slow."""
THERE_WITHIN_S = 10.0
TAKEN_WITHIN_S = 60.0
POLL_S = 0.05

Say = Callable[[str], None]


@dataclass(frozen=True)
class Play:
    """The job; by default the shop's.

    Attributes:
        name: The job's.
        sources: The topics that it reads, each with how many partitions it has.
        letters: The topic of its dead letters; empty for none.
        written_by: See `Shop`.
        settings: What its conf says besides the stage's, which it may contradict.
        asks: Whether the shop's flow asks an HTTP service about every order.
    """

    name: str = "chaos"
    sources: Mapping[str, int] = field(default_factory=lambda: {"orders": 2})
    letters: str = "letters"
    written_by: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    asks: bool = False


class Stuck(Exception):
    """The job does not go on, or does not do what a fault needs."""


class Stage:
    """All of it, for as long as the block lasts; nothing that was started is left behind.

    Attributes:
        shop: The job.
        services: Kafka and ZooKeeper.
        s3: The S3 server.
        gate: What stands before it.
        asked: The service that the flow asks, if it asks one.
        kafka: What stands before Kafka.
        clock: The broker's.
        hangs: While this file is there, a function of the flow does not return.
        raises: While this file is there, a function of the flow raises.
        killed: How many of the job's processes were killed.
        starts: How many programs were started.
        standbys: The programs that wait for the lease.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cluster: bool,
        say: Say,
        shards: int = 1,
        standbys: int = 0,
        play: Play = Play(),
    ) -> None:
        self.killed = 0
        self.starts = 0
        self.program: Program | None = None
        self.standbys: list[Program] = []
        self._ready: set[int] = set()
        self._most_standbys = standbys
        self.hangs = folder / "hangs"
        self.raises = folder / "raises"
        self._folder, self._cluster, self._say, self._shards, self._play = folder, cluster, say, shards, play
        self._programs: list[Program] = []
        self._mark = uuid.uuid4().hex
        self._stack = ExitStack()
        self._restarting = True

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._sweep)
            stack.enter_context(_environment({**ENVIRONMENT, MARK: self._mark}))
            self._say("starting ZooKeeper, Kafka and S3")
            self.clock = SteppedClock(self._folder / "clock")
            services = EmbeddedServices(self._folder / "services", kafka_classes=self.clock.classes)
            self.services = stack.enter_context(services)
            self.s3 = stack.enter_context(S3Server(self._folder / "s3"))
            self.kafka = stack.enter_context(KafkaProxy(self.services.kafka))
            self.gate = stack.enter_context(Gate(self.s3.port))
            self.asked = Asked()
            if self._play.asks:
                stack.enter_context(self.asked)
            self.shop = self._opened(self.s3.make_bucket())
            stack.callback(self._close_programs)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _opened(self, bucket: str) -> Shop:
        settings: dict[str, Any] = {
            "kafka.bootstrap_servers": self.kafka.address,
            "zookeeper.hosts": self.services.zookeeper,
            "zookeeper.session_timeout_s": SESSION_S,
            "epoch.duration_s": 5.0,
            "exchange.units": 16,
            # Of the seven slots that the job needs, one executor has all, until Spark has replaced the other.
            "spark.master": "local-cluster[2,7,1024]" if self._cluster else "local[14]",
            "spark.checkpoint_folder": str(self._folder / "checkpoints"),
            "job.folder": str(self._folder / "jobs"),
            "job.lanes": LANES,
            "job.restarts": 1000,
            "job.restarts_within_s": 5.0,
            "job.start_limit_s": 120.0,
            "snapshots.url": f"s3://{bucket}/snapshots",
            "snapshots.endpoint": self.gate.endpoint,
            "snapshots.region": "us-east-1",
            "snapshots.request_limit_s": 10.0,
            "snapshots.taking_limit_s": 30.0,
            "snapshots.max_commit_age_s": 6.0,
            "snapshots.keep": 3,
            "worker.call_limit_s": CALL_LIMIT_S,
            "tracker.shards": self._shards,
            **self._play.settings,
        }
        topics = Topics(Conf.load(None, {"kafka.bootstrap_servers": self.services.kafka}).kafka)
        play = self._play
        rates = "" if play.written_by else RATES
        for topic, partitions in {**play.sources, "out": LANES, "letters": 2, RATES: 1}.items():
            topics.create(topic, partitions=partitions)
        files = str(self.hangs), str(self.raises)
        shop = Shop(play.name, tuple(play.sources), "out", play.letters, settings, *files, play.written_by)
        asks = self.asked.url if play.asks else ""
        return replace(shop, rates=rates, bought_kept_days=KEPT_DAYS, asks=asks)

    # -- what the job reads and how it is written --------------------------------------------------------------------

    def rate(self, percent: int) -> None:
        """Write a record of the broadcast, which come seldom; nothing in a flow that has none."""
        if self.shop.rates:
            produce(self.shop.conf, self.shop.rates, {0: [(b'{"percent":%d}' % percent, None)]})

    def change_ttl(self) -> None:
        """Let the next program keep what users have bought for another time: far longer than any run."""
        self.shop = replace(self.shop, bought_kept_days=self.shop.bought_kept_days + 1)
        self._say(f"what users have bought is kept for {self.shop.bought_kept_days} days")

    # -- the job -----------------------------------------------------------------------------------------------------

    def start(self, commit: str = "") -> Program:
        """Start a program of the job, as if on another machine: in a folder of its own; from that commit, if any."""
        self.program = self._begun(commit)
        return self.program

    def _begun(self, commit: str = "", *, standby: bool = False) -> Program:
        if self.starts >= MOST_STARTS:
            raise Stuck(f"the job was started {self.starts} times")
        self.starts += 1
        program = Program(self.shop, self._folder / f"program-{self.starts:02}", commit, standby=standby)
        self._programs.append(program)
        return program

    def revive(self) -> None:
        """Start the job again if its program has ended, as a supervisor would."""
        program = self.program
        if program is None or not self._restarting:
            return
        if self._follow():
            return
        code = program.process.poll()
        if code is not None and not self.standbys:
            self._say_end(program, code)
            self.start()
        while len(self.standbys) < self._most_standbys and self.client() is not None:
            self.standbys.append(self._begun(standby=True))

    def _say_end(self, program: Program, code: int) -> None:
        state = program.jobs.state()
        cause = str(state.cause or "" if state else "").partition("\n")[0]
        self._say(f"the program ended with {code}: {cause}" if code >= 0 else f"the program was killed ({-code})")

    def taken_over(self) -> Program:
        """Wait until a standby has taken the place of the program, which has ended; that one is the program now."""
        deadline = time.monotonic() + TAKEN_WITHIN_S
        while not self._follow():
            if time.monotonic() > deadline or not self.standbys:
                raise Stuck(f"none of {len(self.standbys)} standbys takes over")
            time.sleep(POLL_S / 10)
        assert self.program is not None, "a standby is"
        return self.program

    def stand_ready(self) -> bool:
        """Return whether all standbys that there are to be wait for the lease."""
        self._look_at_standbys()
        waiting = [each for each in self.standbys if each.process.pid in self._ready]
        return len(waiting) >= self._most_standbys

    def _follow(self) -> bool:
        """Take the standby that leads for the program, which may only stand still; return whether there is one."""
        self._look_at_standbys()
        for each in self.standbys:
            state = each.jobs.state()
            phase = "" if state is None else state.phase
            if phase == "running" or (phase == "starting" and each.process.pid in self._ready):
                self._say(f"standby {each.process.pid} takes over")
                self.standbys.remove(each)
                self.program = each
                return True
        return False

    def _look_at_standbys(self) -> None:
        """Note which standbys are ready, and leave out those that have ended."""
        for each in list(self.standbys):
            state = each.jobs.state()
            if state is not None and state.phase == "standby":
                self._ready.add(each.process.pid)
            if (code := each.process.poll()) is not None:
                self._say_end(each, code)
                self.standbys.remove(each)

    def state(self) -> JobState | None:
        """The current program's notes; None before it has any."""
        program = self.program
        state = None if program is None else program.jobs.state()
        mine = state is not None and state.runner is not None and program is not None
        return state if mine and state.runner.pid == program.process.pid else None  # type: ignore[union-attr]

    def client(self) -> ControlClient | None:
        """The present life's control API; None while no life runs."""
        program, state = self.program, self.state()
        token = None if program is None else program.jobs.token()
        control = None if state is None else state.control_address()
        if state is None or state.phase != "running" or token is None or control is None:
            return None
        return ControlClient(control, token)

    def view(self) -> JobView | None:
        """The current life's own record; None if it has none."""
        client = self.client()
        try:
            return None if client is None else client.status()
        except LowtideError:
            return None

    def end(self, *, killed: bool) -> None:
        """Let the program end, and do not start it again yet; it may be killed, which the count leaves out."""
        assert self.program is not None
        process = self.program.process
        self._say(f"{'SIGKILL' if killed else 'SIGTERM'} to driver {process.pid}")
        send([process.pid], signal.SIGKILL if killed else signal.SIGTERM)
        process.wait(ENDED_WITHIN_S)

    def stop(self) -> int:
        """Ask the program to end, and wait; what it ended with. Standbys that still start would run a job that has."""
        assert self.program is not None
        self._restarting = False
        for standby in self.standbys:
            if standby.process.poll() is None:
                standby.waiting()
        self.program.process.terminate()
        codes = [each.ended(ENDED_WITHIN_S) for each in (self.program, *self.standbys)]
        return next(filter(None, codes), 0)

    # -- its processes -----------------------------------------------------------------------------------------------

    def pid(self, role: str, which: float = 0.0) -> int:
        """One of the present program's processes of a role, once there is one."""
        assert self.program is not None
        deadline = time.monotonic() + THERE_WITHIN_S
        while not (found := of_program(self.program.process.pid).get(role)):
            if time.monotonic() > deadline:
                raise Stuck(f"there is no {role}")
            time.sleep(POLL_S)
        return found[int(which * len(found))]

    def kill(self, role: str, which: float = 0.0) -> None:
        pid = self.pid(role, which)
        self._say(f"SIGKILL to {role} {pid}")
        send([pid], signal.SIGKILL)
        self.killed += 1

    @contextmanager
    def standing(self, pids: list[int], what: str) -> Iterator[None]:
        """Let processes stand still until the block ends."""
        self._say(f"SIGSTOP to {what} {' '.join(map(str, pids[:4]))}{' ...' if pids[4:] else ''}")
        send(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            self._say(f"SIGCONT to {what}")
            send(pids, signal.SIGCONT)

    def cut_off(self, role: str, which: float, lasts_s: float) -> int:
        """Keep one of the processes of a role, and all below it, off the broker for so long; how often it was cut."""
        pid, port = self.pid(role, which), int(self.kafka.address.rpartition(":")[2])
        count = cut(lambda: [pid, *below(pid)], port, lasts_s)
        self._say(f"cut {count} connections of {role} {pid} to the broker")
        return count

    @contextmanager
    def clock_off(self, by_ms: int) -> Iterator[None]:
        """Let the broker's clock be so much ahead, or behind, until the block ends."""
        self._say(f"the broker's clock is {by_ms / 60_000:+.1f} min off")
        with self.clock.stepped(by_ms):
            yield
        self._say("the broker's clock is right again")

    def everything(self, program: Program) -> list[int]:
        return [program.process.pid, *below(program.process.pid)]

    # -- the end -----------------------------------------------------------------------------------------------------

    def _close_programs(self) -> None:
        for program in self._programs:
            if program.process.poll() is None:
                send(self.everything(program), signal.SIGCONT)
            program.close()

    def _sweep(self) -> None:
        """Kill what is left of what this run has started: a killed program's processes may still be ending."""
        deadline = time.monotonic() + THERE_WITHIN_S
        while (left := marked(self._mark)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        send(left, signal.SIGKILL)


@contextmanager
def _environment(changed: dict[str, str]) -> Iterator[None]:
    """This process's environment, which its children inherit, with these variables and no others of AWS."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(changed)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
