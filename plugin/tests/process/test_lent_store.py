"""The store in the service's memory, over its socket: the contract, forks, a service that is gone, strangers."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from hanging import HANGS_S
from store_contract import SMALL, StoreContract

from lowtide.process.doors import DoorKind, Doors
from lowtide.process.lent_store import LentStore
from lowtide.service.server import Service
from lowtide_snapshots.stores import Store, StoreSetting
from lowtide_snapshots.stores.errors import StoreFull, StoreRefused, StoreUnavailable

SECRET = bytes(range(32))


class Served:
    """A service's sockets in a thread of this process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.service: Service = self._done(self._serve())

    async def _serve(self) -> Service:
        self._doors = Doors(DoorKind.UNIX, "")
        service = Service(SECRET, {}, self._doors)
        self.address = service.serve()
        return service

    def _done(self, act: object) -> Service:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(HANGS_S)  # type: ignore[arg-type]

    def limit(self, memory_mb: int) -> None:
        self.service.open_snapshots(StoreSetting("memory:", memory_mb=memory_mb))

    async def _end(self) -> None:
        assert self.service._entrance is not None
        await self.service._entrance.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def end(self) -> None:
        self._done(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._doors.close()


@pytest.fixture(name="served")
def _served() -> Iterator[Served]:
    served = Served()
    served.limit(64)
    yield served
    if served._thread.is_alive():
        served.end()


@pytest.fixture
def store(served: Served) -> Iterator[Store]:
    store = LentStore(served.address, SECRET, HANGS_S)
    yield store
    store.close()


@pytest.fixture
def again(served: Served) -> Iterator[Store]:
    again = LentStore(served.address, SECRET, HANGS_S)
    yield again
    again.close()


class TestLentStore(StoreContract):
    """The contract."""


def test_what_does_not_fit_is_refused_with_the_way_out(served: Served, store: Store) -> None:
    served.limit(1)
    store.put("a", bytes(700_000))
    with pytest.raises(StoreFull, match=r"raise \[snapshots\].memory_mb") as raised:
        store.put("b", bytes(700_000))
    assert raised.value.where == "the memory of the job's service, b"
    store.delete(["a"])
    store.put("b", bytes(700_000))


def test_an_object_larger_than_a_message_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.process.lent_store.MAX_MESSAGE_BYTES", 1_000)
    with pytest.raises(StoreRefused, match="too large for a store in memory"):
        store.put("a", bytes(1_000))


def test_forks_and_their_process_use_it_at_once(store: Store) -> None:
    """As the process that writes a snapshot, and its host."""
    store.put("before", SMALL)
    ended = threading.Event()
    failed: list[int] = []

    def work() -> None:
        turn = 0
        while not ended.is_set() and not failed:
            turn += 1
            data = bytes([turn % 256]) * 5_000
            store.put(f"parent/{turn}", data)
            if store.get(f"parent/{turn}") != data:
                failed.append(turn)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(10):
            pid = os.fork()
            if pid == 0:
                try:
                    for turn in range(20):
                        store.put(f"{number}/{turn}", bytes([number]) * 3_000)
                        assert store.get(f"{number}/{turn}") == bytes([number]) * 3_000
                    os._exit(0)
                finally:
                    os._exit(1)
            deadline = time.monotonic() + HANGS_S
            while not (waited := os.waitpid(pid, os.WNOHANG))[0]:
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)
            assert os.waitstatus_to_exitcode(waited[1]) == 0
    finally:
        ended.set()
        thread.join()
    assert failed == []
    assert len(store.names("9/")) == 20


def test_a_service_that_is_gone_is_said(served: Served, store: Store) -> None:
    store.put("a", SMALL)
    served.end()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="snapshots in memory are gone with it"):
            store.get("a")


def test_a_stranger_gets_nothing(served: Served) -> None:
    with pytest.raises(StoreUnavailable):
        LentStore(served.address, bytes(32), 5.0).get("a")
