"""Workers' stages in one process, with frames between them, a real tracker, and sinks that the test settles."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hanging import HANGS_S

from lowtide import Flow, kafka, raw
from lowtide import json as as_json
from lowtide.assignment.birth import Birth
from lowtide.assignment.messages import Grant
from lowtide.assignment.welcome import FrontStart, Welcome
from lowtide.connectors.sender import Outgoing
from lowtide.core.frames import open_frame
from lowtide.core.fronts.front import Window
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.rows import PackedRows
from lowtide.flow.formats.endpoints import KAFKA
from lowtide.flow.plan.compiler import compile_flow
from lowtide.process.tracker_line import TrackerLine
from lowtide.sinks.contract import Packet
from lowtide.sinks.kafka.claimant import Claimant
from lowtide.status.gauges import FrontGauges
from lowtide.worker.host import LevelHost
from lowtide.worker.level_deployment import LevelDeployment
from lowtide.worker.stage import LevelStage
from lowtide_tracker import Graph, Tracker, TrackerError, TrackerServer

SECRET = bytes(range(32))
INCARNATION = 3
NOW = 1_000_000_000
LIMIT_S = HANGS_S
PARTITIONS = 2


@dataclass(frozen=True)
class Order:
    user: str
    number: int


def checked(order: Order) -> Order:
    if order.number < 0:
        raise ValueError("negative")
    return Order(order.user * 1000, order.number) if order.number == 13 else order


def deployment(
    *, letters: bool = False, limits: Limits | None = None, parallelism: int = 2, **others: Any
) -> LevelDeployment:
    """Orders by user; 13 makes a record large, and numbers below 0 fail."""
    flow = Flow("stage", dead_letters=kafka("letters", raw()) if letters else None)
    stream = flow.read("orders", kafka("orders", as_json(Order))).map(checked).key_by("user")
    stream.write("out", kafka("out", as_json(Order), key="user"))
    plain: dict[str, Any] = {
        "plan": compile_flow(flow, parallelism=parallelism, lanes=parallelism, slack_ms=1),
        "sink_partitions": {"out": parallelism, "letters": 1},
        "producer": {},
        "limits": limits or Limits(200_000, 1 << 20, 8192),
        "delivery": "exactly_once",
        "window": Window(1000, 1 << 20),
        "optimism": None,
        "max_future_ms": 10_000,
        "max_bundle_records": 1000,
        "delivery_limit_ms": 1000,
        "max_queued_bytes": 1 << 20,
        "lasts_topic": "lasts",
    }
    return LevelDeployment(**plain | others)


def packed(records: Sequence[Mapping[str, Any] | bytes], partition: int = 1, first: int = 0, tick: int = 5) -> bytes:
    """Messages of one partition, as the JVM packs them."""
    values = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    n = len(values)
    offsets = list(range(first, first + n))
    return msgspec.msgpack.encode(
        PackedRows(NOW, NOW, "orders", partition, offsets, [tick] * n, [None] * n, list(values), None)
    )


def opened(frame: bytes) -> Any:
    """A frame of orders on their way to level 1: a `Head` with `rows`."""
    return open_frame(frame, dict.fromkeys(range(10), Order))


def orders(count: int, size: int = 3, first: int = 14) -> list[dict[str, Any]]:
    return [{"user": f"{n % 7}".rjust(size, "x"), "number": n} for n in range(first, first + count)]


class Kept:
    """Stands where Kafka stands: keeps what it is given, durable when the test says so."""

    def __init__(self, _settings: Mapping[str, Any], claimant: Claimant | None = None, **said: Any) -> None:
        self.claimant, self.said = claimant, said
        self.packets: list[Packet] = []
        self.in_flight: list[tuple[int, int]] = []
        self._ready: list[tuple[int, int]] = []

    def put(self, *packets: Packet) -> None:
        for packet in packets:
            assert (packet.sink, packet.lane) not in self.in_flight, "R13: one in flight per lane"
            self.packets.append(packet)
            self.in_flight.append((packet.sink, packet.lane))

    def settle(self) -> None:
        self._ready += self.in_flight
        self.in_flight = []

    @property
    def messages(self) -> list[Outgoing]:
        return [message for packet in self.packets for message in packet.messages]

    def fileno(self) -> int:
        return -1

    def durable(self) -> list[tuple[int, int]]:
        ready, self._ready = self._ready, []
        return ready

    @property
    def queued(self) -> int:
        return 0

    def gauges(self) -> dict[str, Any]:
        return {"transactions": 0, "records": 0, "commit": {}}

    def close(self, timeout_s: float) -> int:
        return 0


def kept(stage: LevelStage) -> Kept:
    found = kept_of(stage.host)
    assert found is not None
    return found


def kept_of(host: LevelHost) -> Kept | None:
    """What stands for a host's Kafka; None if the host never delivers there."""
    delivery = None if host._shared is None else host._shared.deliveries.get(KAFKA)
    return delivery if isinstance(delivery, Kept) else None


def id_of(stage: LevelStage) -> str:
    """The transactional id under which a worker's host delivers."""
    claimant = kept(stage).claimant
    assert claimant is not None
    return claimant.transactional_id


def gauges_of_front(stage: LevelStage) -> FrontGauges:
    """The position of its front."""
    front = stage.gauges().front
    assert front is not None
    return front


def line_of(stage: LevelStage) -> TrackerLine:
    """Its host's line to the tracker."""
    assert stage.host.line is not None
    return stage.host.line


def tick(stage: LevelStage, now_s: float) -> list[tuple[int, bytes]]:
    """Let a stage's host, in which it is alone, do what is due and what its sinks have settled; return its frames."""
    host = stage.host
    emitted = [*host.settle(), *host.tick(now_s)]
    host.send()
    return [frame for _, frames in emitted for frame in frames]


def stage_of(
    made: LevelDeployment, name: str, number: int, tracker: str, host: LevelHost | None = None, **start: Any
) -> LevelStage:
    """A worker's stage, in a host of its own if none is given; `start` are fields of its front that differ."""
    level, _, place = name.partition("/")
    front = None
    if level == "0":
        partition = int(place.rpartition("-")[2])
        plain: dict[str, Any] = {
            "number": partition,
            "topic": "orders",
            "partition": partition,
            "offset": 0,
            "opening": 0,
        }
        front = FrontStart(**plain | start)
    birth = Birth(name, int(level), number, INCARNATION, number, "0", "", SECRET)
    names = {number: f"orders-{number}" for number in range(PARTITIONS)}
    welcome = Welcome(tracker=tracker, now_ms=0, fronts=names, front=front)
    return made.stage(birth, welcome, host or made.host(birth, welcome))


class Served:
    """A tracker's server in a thread, which can be stopped and recreated on its port; or on a listener, once."""

    def __init__(
        self,
        levels: int = 2,
        fronts: Iterable[int] = range(PARTITIONS),
        dues: Mapping[int, Sequence[int]] | None = None,
        tls: ssl.SSLContext | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self._tls = tls
        self._listener = listener
        self._graph = Graph({level: [level - 1] if level > 1 else [] for level in range(1, levels + 1)})
        self._fronts = dict.fromkeys(fronts, 0)
        self._dues = dues
        self.faults: list[TrackerError] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server: TrackerServer | None = None
        self._era = 0
        self.address = ""

    def __enter__(self) -> Served:
        self.start()
        return self

    def start(self, workers: Iterable[int] = ()) -> None:
        """Serve; a second time it is rebuilt from what these workers report."""
        self._era += 1
        size: dict[str, Any] = {"start": 0, "capacity_ticks": 1 << 16, "dues": self._dues, "era": self._era}
        if self._era == 1:
            tracker = Tracker(self._graph, self._fronts, **size)
        else:
            tracker = Tracker(self._graph, self._fronts, **size).rebuilt_from(list(workers))

        async def serve() -> str:
            self._server = TrackerServer(
                tracker, tls=self._tls, secret=SECRET, incarnation=INCARNATION, on_fault=self.faults.append
            )
            return await self._server.start(port=int(self.address.rpartition(":")[2] or 0), sock=self._listener)

        self.address = asyncio.run_coroutine_threadsafe(serve(), self._loop).result(LIMIT_S)

    def stop(self) -> None:
        if self._server is not None:
            asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result(LIMIT_S)
            self._server = None

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()


@dataclass
class Rig:
    """Stages by name, and the frames that went between them; what is durable is durable at once if `settling`."""

    stages: dict[str, LevelStage]
    settling: bool = True
    frames: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, made: LevelDeployment, tracker: str = "", hosts: int = 0) -> Rig:
        """All workers of a plan, in so many hosts in turn; 0 for a host each."""
        names = [f"0/orders-{number}" for number in range(PARTITIONS)]
        names += [f"1/{place}" for place in range(made.plan.parallelism)]
        stages: dict[str, LevelStage] = {}
        for number, name in enumerate(names):
            host = stages[names[number % hosts]].host if hosts and number >= hosts else None
            stages[name] = stage_of(made, name, number, tracker, host)
        return cls(stages)

    @property
    def hosts(self) -> list[LevelHost]:
        """All hosts."""
        return list({id(stage.host): stage.host for stage in self.stages.values()}.values())

    def read(self, message: bytes, partition: int = 1) -> None:
        stage = self.stages[f"0/orders-{partition}"]
        self.route([(stage.name, stage.rows(message, NOW)), *stage.host.handed()])

    def route(self, emitted: Iterable[tuple[str, Iterable[tuple[int, bytes]]]]) -> None:
        for name, frames in emitted:
            for target, frame in frames:
                self.frames.append(frame)
                to = self.stages[f"{int(name[0]) + 1}/{target}"]
                self.route([(to.name, to.frames([frame], NOW)), *to.host.handed()])

    def turn(self) -> None:
        """One turn of all loops."""
        for host in self.hosts:
            if self.settling and (sink := kept_of(host)) is not None:
                sink.settle()
            self.route(host.settle())
            self.route(host.hear())
            self.route(host.came_round())
            self.route(host.tick(time.monotonic()))
            self.route(host.handed())
            host.send()

    def until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < deadline
            self.turn()
            time.sleep(0.001)

    def grant(self, tick: int) -> None:
        """Let all fronts say that they label nothing below a tick."""
        for name, stage in self.stages.items():
            if name.startswith("0/"):
                front = stage.core.front
                assert front is not None
                stage.follow(Grant(front.number, front.next_offset, tick, 0))

    @property
    def delivered(self) -> list[Any]:
        """All that the sinks were given for "out", parsed."""
        sinks = [sink for host in self.hosts if (sink := kept_of(host)) is not None]
        found = [message for sink in sinks for message in sink.messages]
        return [json.loads(message[3] or b"null") for message in found if message[0] == "out"]
