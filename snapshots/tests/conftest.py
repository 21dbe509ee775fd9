"""A real ZooKeeper, and what all tests of a job's place need."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lowtide_snapshots.job_store import JobStore

SHORT_S = 1.0
ENTRY = {"number": 0, "source": "documents", "topic_id": "x", "partition": 0, "offset": 0, "opening": 0}

WRITES: dict[str, Callable[[JobStore, int], None]] = {
    "add_fronts": lambda store, life: store.add_fronts(life, [ENTRY]),
    "add_sink_ids": lambda store, life: store.add_sink_ids(life, ["late"]),
    "set_lasts_id": lambda store, life: store.set_lasts_id(life, "late"),
    "tell": lambda store, life: store.tell(life, 10**9),
    "set_life": lambda store, life: store.set_life(life, {"phase": "late"}),
}


class Place:
    """One job's place on a ZooKeeper."""

    def __init__(self, hosts: str, opened: contextlib.ExitStack) -> None:
        self.hosts = hosts
        self.job = f"job-{uuid.uuid4().hex[:8]}"
        self._opened = opened

    def open(self, name: str | None = None, hosts: str | None = None, **settings: Any) -> JobStore:
        """A store, with a short session unless told otherwise; closed after the test."""
        from lowtide_snapshots.job_store import JobStore

        settings = {"session_timeout_s": SHORT_S} | settings
        return self._opened.enter_context(JobStore(hosts or self.hosts, name or self.job, **settings))

    def living(self, store: JobStore, holder: str = "test") -> int:
        """Begins a life."""
        store.take_lease(holder, 0, self.nobody)
        return store.raise_incarnation()

    def write(self, write: str, store: JobStore, life: int) -> None:
        """One of the writes that a life has."""
        WRITES[write](store, life)

    @staticmethod
    def content(store: JobStore) -> tuple[Any, ...]:
        """All that lives have written."""
        return (store.fronts(), store.sink_ids(), store.lasts_id(), store.told(), store.life())

    @staticmethod
    def nobody(text: str) -> None:
        """Takes what is said while waiting, where there is nothing to wait for."""
        raise AssertionError(text)

    def expire(self, store: JobStore) -> None:
        """Ends a store's session behind its back, as the server does when a process stands still for too long."""
        from kazoo.client import KazooClient

        before = store._zk.session
        other = KazooClient(store._zk.hosts, client_id=store._zk._client.client_id)
        other.start()
        other.stop()
        other.close()
        assert self.eventually(lambda: store._zk.connected and store._zk.session != before)

    @staticmethod
    def before_commit(monkeypatch: pytest.MonkeyPatch, store: JobStore, act: Callable[[], object]) -> None:
        """Lets something happen once, between what a store reads and its transaction."""
        commit = store._zk._commit

        def late(operations: Any) -> bool:
            monkeypatch.setattr(store._zk, "_commit", commit)
            act()
            return commit(operations)

        monkeypatch.setattr(store._zk, "_commit", late)

    @staticmethod
    def eventually(true: Callable[[], object], timeout_s: float = 15.0) -> bool:
        """Whether something becomes true in time."""
        deadline = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


@pytest.fixture(name="services", scope="session")
def _services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("kazoo.client", reason="kazoo is an extra")
    # Not imported by its name: nothing here may know of lowtide but for the embedded server.
    embedded = pytest.importorskip("lowtide.embedded", reason="the embedded ZooKeeper is lowtide's")
    with embedded.EmbeddedServices(tmp_path_factory.mktemp("zookeeper") / "services", only=["zookeeper"]) as services:
        yield services


@pytest.fixture
def place(services: Any) -> Iterator[Place]:
    """The place of a job that no other test has."""
    with contextlib.ExitStack() as opened:
        yield Place(services.zookeeper, opened)
