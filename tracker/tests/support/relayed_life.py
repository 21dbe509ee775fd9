"""A life's tracker and relays, each a server of its own in one loop, killed and replaced at the same addresses."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from hanging import HANGS_S
from sharded_life import CAPACITY, INCARNATION, SECRET

from lowtide_tracker import Graph, LocalTracker, Notice, Tracker, TrackerClient, TrackerError, TrackerServer
from lowtide_tracker.relay_server import RelayServer, relay

T = TypeVar("T")
FLUSH_S = 0.002


class RelayedLife:
    """What the service and fork servers do for a life, with servers in the place of processes.

    Args:
        graph: Of its segments.
        fronts: With their opening floors.
        relays: How many there are.
        by: The relay of each worker; one that is not named connects to the tracker itself.
        dues: As of `Tracker`.
    """

    def __init__(
        self,
        graph: Graph,
        fronts: dict[int, int],
        *,
        relays: int,
        by: Mapping[int, int],
        dues: dict[int, list[int]] | None = None,
    ) -> None:
        self.graph, self.fronts, self.by, self.dues = graph, fronts, by, dues or {}
        self.workers: Iterable[int] = ()
        self.faults: list[TrackerError] = []
        self.notices: list[Notice] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._listeners = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(relays + 1)]
        self.address, *self.addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in self._listeners]
        self.era = 0
        self.relays: list[RelayServer | None] = [None] * relays
        """The present one of each."""
        self._running: list[asyncio.Task[TrackerError] | None] = [None] * relays
        self._clients: list[TrackerClient] = []
        self.start_tracker()
        for number in range(relays):
            self.start_relay(number)

    def __enter__(self) -> "RelayedLife":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        for number in range(len(self.relays)):
            self.stop_relay(number)
        self.do(self.server.close())
        self.do(asyncio.sleep(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANGS_S)
        self._loop.close()
        for listener in self._listeners:
            listener.close()

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(HANGS_S)

    def start_tracker(self) -> None:
        self.era += 1
        tracker = Tracker(self.graph, dict(self.fronts), start=0, capacity_ticks=CAPACITY, dues=self.dues, era=self.era)
        if self.era > 1:
            tracker = tracker.rebuilt_from(self.workers)
        self.server = TrackerServer(
            tracker,
            secret=SECRET,
            incarnation=INCARNATION,
            on_fault=self.faults.append,
            on_notice=self.notices.append,
        )
        self.do(self.server.start(sock=self._listeners[0].dup()))

    def kill_tracker(self) -> None:
        self.do(self.server.close())
        self.start_tracker()

    def start_relay(self, number: int) -> None:
        def make() -> RelayServer:
            server = self.relays[number] = RelayServer(
                self.address,
                secret=SECRET,
                incarnation=INCARNATION,
                flush_s=FLUSH_S,
                name=f"relay {number}",
                on_fault=lambda _: None,
            )
            return server

        async def begin() -> None:
            self._running[number] = asyncio.create_task(relay(make, self._listeners[1 + number]))

        self.do(begin())

    def stop_relay(self, number: int) -> None:
        async def stop() -> None:
            task = self._running[number]
            assert task is not None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        self.do(stop())

    def kill_relay(self, number: int) -> None:
        self.stop_relay(number)
        self.start_relay(number)

    def over(self, number: int) -> TrackerError:
        """Wait until a relay has ended, and return why."""

        async def ended() -> TrackerError:
            task = self._running[number]
            assert task is not None
            return await task

        return self.do(ended())

    def cut(self, rng: Random) -> None:
        """A relay's line to the tracker breaks."""
        number = rng.randrange(len(self.relays))

        async def cut() -> None:
            server = self.relays[number]
            if server is not None and server._line is not None:
                server._line.close()

        self.do(cut())

    def worker(self, local: LocalTracker) -> TrackerClient:
        number = self.by.get(local.worker)
        client = TrackerClient(
            self.address if number is None else self.addresses[number],
            secret=SECRET,
            incarnation=INCARNATION,
            local=local,
            name=f"worker {local.worker}",
            timeout_s=HANGS_S,
        )
        self._clients.append(client)
        client.connect()
        return client
