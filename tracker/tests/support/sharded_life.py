"""A life's merge and shards, each a server of its own in one loop, killed and replaced at the same addresses."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from hanging import HANGS_S

from lowtide_tracker import Graph, LocalTracker, Notice, TrackerClient, TrackerError
from lowtide_tracker.errors import ConnectionLost
from lowtide_tracker.messages import Joined
from lowtide_tracker.shards.merge import Merge
from lowtide_tracker.shards.merge_server import MergeServer
from lowtide_tracker.shards.shard import Shard
from lowtide_tracker.shards.shard_server import ShardServer
from lowtide_tracker.shards.sharded_client import ShardedClient

SECRET = bytes(range(32))
INCARNATION = 3
LIMIT_S = HANGS_S
CAPACITY = 1 << 16

T = TypeVar("T")


class ShardedLife:
    """What the service does for a life, with servers in the place of processes."""

    def __init__(
        self,
        graph: Graph,
        fronts: dict[int, int],
        *,
        shards: int,
        start: int = 0,
        dues: dict[int, list[int]] | None = None,
        workers: Iterable[int] = (),
    ) -> None:
        self.graph, self.fronts, self.count, self.start, self.dues = graph, fronts, shards, start, dues or {}
        self.workers = list(workers)
        self.faults: list[TrackerError] = []
        self.notices: list[Notice] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._listeners = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(shards + 1)]
        self.address, *self.addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in self._listeners]
        self.merge_era = 0
        self.eras = [0] * shards
        self.shards: list[ShardServer | None] = [None] * shards
        self._clients: list[ShardedClient | TrackerClient] = []
        self.start_merge()
        for shard in range(shards):
            self.start_shard(shard)

    def __enter__(self) -> "ShardedLife":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        for shard in range(self.count):
            self.stop_shard(shard)
        self.stop_merge()
        self.do(asyncio.sleep(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()
        for listener in self._listeners:
            listener.close()

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(LIMIT_S)

    def start_merge(self) -> None:
        self.merge_era += 1
        merge = Merge(
            self.graph,
            dict(self.fronts),
            shards=self.count,
            start=self.start,
            capacity_ticks=CAPACITY,
            era=self.merge_era,
        )
        self.merge = MergeServer(
            merge,
            shards=self.count,
            secret=SECRET,
            incarnation=INCARNATION,
            on_fault=self.faults.append,
            on_notice=self.notices.append,
        )
        self.do(self.merge.start(sock=self._listeners[0].dup()))

    def core(self, shard: int) -> Shard | None:
        """The shard, once it has joined the merge."""
        server = self.shards[shard]
        return None if server is None else server.shard

    def missing(self, shard: int) -> tuple[int, ...] | None:
        """Whose reports it waits for."""
        core = self.core(shard)
        return None if core is None else core.missing

    def stop_merge(self) -> None:
        self.do(self.merge.close())

    def start_shard(self, shard: int) -> None:
        """It listens once it has joined the merge, which nobody waits for."""
        self.eras[shard] += 1
        workers = list(self.workers) if self.eras[shard] > 1 else None

        def make(joined: Joined) -> Shard:
            return Shard.joining(
                self.graph,
                joined,
                shard=shard,
                shards=self.count,
                start=self.start,
                dues=self.dues,
                workers=workers,
            )

        async def begin() -> None:
            server = self.shards[shard] = ShardServer(
                make,
                shard=shard,
                shards=self.count,
                merge=self.address,
                era=self.eras[shard],
                secret=SECRET,
                incarnation=INCARNATION,
                on_fault=self.faults.append,
            )
            starting = asyncio.create_task(server.start(sock=self._listeners[1 + shard].dup()))
            server.starting = starting  # type: ignore[attr-defined]

        self.do(begin())

    def stop_shard(self, shard: int) -> None:
        server = self.shards[shard]
        self.shards[shard] = None
        if server is not None:

            async def stop() -> None:
                server.starting.cancel()  # type: ignore[attr-defined]
                await server.close()

            self.do(stop())

    def kill_merge(self) -> None:
        self.stop_merge()
        self.start_merge()

    def kill_shard(self, shard: int) -> None:
        self.stop_shard(shard)
        self.start_shard(shard)

    def cut(self, rng: Random) -> None:
        """A shard's line to the merge breaks."""
        self.cut_shard(rng.randrange(self.count))

    def cut_shard(self, shard: int) -> None:
        """Its line to the merge breaks."""

        async def cut() -> None:
            server = self.shards[shard]
            if server is not None and server._line is not None:
                server._line.close()

        self.do(cut())

    def worker(self, local: LocalTracker) -> ShardedClient:
        client = ShardedClient(
            self.address,
            self.addresses,
            secret=SECRET,
            incarnation=INCARNATION,
            local=local,
            name=f"worker {local.worker}",
            timeout_s=LIMIT_S,
        )
        self._clients.append(client)
        client.connect()
        return client

    def listener(self) -> TrackerClient:
        client = TrackerClient(self.address, secret=SECRET, incarnation=INCARNATION, name="listener")
        self._clients.append(client)
        client.connect()
        return client


def mend(client: ShardedClient | TrackerClient) -> None:
    """Connects what has no line."""
    while not client.connected:
        with suppress(ConnectionLost):
            client.connect()


def turn(client: ShardedClient | TrackerClient) -> None:
    """Hears, mends and flushes."""
    local = client._local
    assert isinstance(local, LocalTracker)
    with suppress(ConnectionLost):
        for notice in client.receive():
            local.hear(notice)
    mend(client)
    with suppress(ConnectionLost):
        client.flush()


def wait(done: Callable[[], object], *clients: ShardedClient | TrackerClient) -> None:
    until = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < until
        for client in clients:
            turn(client)
        time.sleep(0.001)
