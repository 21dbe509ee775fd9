"""A real ZooKeeper, and what all tests of a job's place need."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hanging import HANGS_S

from lowtide_snapshots.format.manifest import FrontAt, Manifest, Part, shape_of
from lowtide_snapshots.format.names import snapshot_id
from lowtide_snapshots.format.parts import PartHead, encode_part, sha256
from lowtide_snapshots.job.borrowed import Borrowed
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.stores import Store

if TYPE_CHECKING:
    from lowtide_snapshots.job.store import JobStore

LONG_S = 10.0
MULTI = 14
ENTRY = {"number": 0, "source": "documents", "topic_id": "x", "partition": 0, "offset": 0, "opening": 0}

WRITES: dict[str, Callable[[JobStore, int], None]] = {
    "add_fronts": lambda store, life: store.add_fronts(life, [ENTRY]),
    "add_sink_ids": lambda store, life: store.add_sink_ids(life, ["late"]),
    "set_lasts": lambda store, life: store.set_lasts(life, "late"),
    "set_steps": lambda store, life: store.set_steps(life, {"steps": ["late"], "since": 0}),
    "set_records": lambda store, life: store.set_records(life, {"source": {}, "sink": {"late": {}}}),
    "set_places": lambda store, life: store.set_places(life, {"late": {}}),
    "set_partitions": lambda store, life: store.set_partitions(life, {"late": 1}),
    "set_borrowed": lambda store, life: store.set_borrowed(life, Borrowed("late", 10**9)),
    "publish": lambda store, life: store.publish(life, 10**9),
    "set_life": lambda store, life: store.set_life(life, {"phase": "late"}),
}


class Proxy:
    """Stands before ZooKeeper, and ends a connection at the next transaction: before it, or with its answer.

    Attributes:
        drop: "request" or "answer": what is lost next.
        leaves: whether it lets nobody in any more once something was lost.
    """

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.drop: str | None = None
        self.leaves = False
        self.away = False
        self.dropped = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.away:
                    client.close()
                    continue
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server, contextlib.suppress(OSError):
            while True:
                for readable in select.select([client, server], [], [])[0]:
                    data = readable.recv(65536)
                    if not data:
                        return
                    transaction = (
                        readable is client and len(data) >= 12 and struct.unpack(">iii", data[:12])[2] == MULTI
                    )
                    drop, self.drop = (self.drop, None) if transaction else (None, self.drop)
                    self.dropped += drop is not None
                    self.away = self.away or (drop is not None and self.leaves)
                    if drop == "request":
                        return
                    (server if readable is client else client).sendall(data)
                    if drop == "answer":
                        server.recv(65536)
                        return


class Taker:
    """Takes snapshots of a count per word, as a coordinator would, in ticks of 10 ms."""

    def __init__(self, job: str, store: Store | None = None) -> None:
        self.job = job
        self.store = store
        self.record = JobRecord(job, 10, 128, 4, "log", 1, ("documents=docs",))
        self.key = pa.struct([("word", pa.string())])
        self._numbers: dict[int, int] = {}

    def take(
        self,
        tick: int,
        *units: int,
        base: Manifest | None = None,
        life: int = 1,
        name: str | None = None,
        deltas: bool = False,
    ) -> Manifest:
        """Seals a snapshot, in which these units have changed since the base; in the store, if there is one."""
        number = self._numbers[life] = self._numbers.get(life, 0) + 1
        identity = snapshot_id(life, number)
        since = base.tick if base and deltas else None
        kept = [part for part in base.parts if deltas or part.unit not in units] if base else []
        parts = (*kept, *(self._part(tick, unit, identity, since) for unit in units))
        manifest = Manifest(
            job=self.job,
            id=identity,
            name=name,
            tick=tick,
            incarnation=life,
            created="2026-01-31T12:00:00.000Z",
            base=base.id if base else None,
            record=self.record,
            flow=(shape_of("counts", "scan", self.key, pa.int64()),),
            fronts=(FrontAt(0, "documents", "x", 0, tick * 2, tick - 1),),
            floors=(),
            lasts=(),
            parts=tuple(sorted(parts, key=lambda part: (part.unit, part.tick))),
        )
        if self.store:
            self.store.put(manifest.path, manifest.to_json().encode())
        return manifest

    def commit(self, log: Any, manifest: Manifest) -> Any:
        """Commits it."""
        return log.commit(manifest, sha256(manifest.to_json().encode()))

    def _part(self, tick: int, unit: int, identity: str, since: int | None) -> Part:
        head = PartHead(self.job, "counts", "scan", unit, tick, self.record.slack_ms, identity, since)
        columns = {"key": pa.array([{"word": f"{unit}"}], self.key), "state": pa.array([tick])}
        data = encode_part(head, pa.table(columns if since is None else columns | {"gone": pa.array([False])}))
        if self.store:
            self.store.put(head.name, data)
        return Part("counts", "scan", unit, tick, identity, 1, len(data), sha256(data), since)


class Place:
    """One job's place on a ZooKeeper."""

    def __init__(self, hosts: str, opened: contextlib.ExitStack) -> None:
        self.hosts = hosts
        self.job = f"job-{uuid.uuid4().hex[:8]}"
        self._opened = opened

    def open(self, name: str | None = None, hosts: str | None = None, **settings: Any) -> JobStore:
        """A store, with a long session and a long patience unless given otherwise; closed after the test."""
        from lowtide_snapshots.job.store import JobStore

        settings = {"session_timeout_s": LONG_S, "limit_s": HANGS_S} | settings
        return self._opened.enter_context(JobStore(hosts or self.hosts, name or self.job, **settings))

    def proxy(self) -> Proxy:
        """What stands before the ZooKeeper, to lose what is sent or answered."""
        return Proxy(self.hosts)

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
        written = (store.fronts(), store.sink_ids(), store.lasts(), store.borrowed(), store.steps(), store.records())
        return (*written, store.places(), store.partitions(), store.published(), store.life())

    @staticmethod
    def nobody(text: str) -> None:
        """Takes what is said while waiting, where there is nothing to wait for."""
        raise AssertionError(text)

    @staticmethod
    def waits(store: JobStore, limit_s: float) -> None:
        """Lets a store's calls wait for ZooKeeper for so long from now on."""
        store._zk._limit_s = limit_s

    @staticmethod
    def session(store: JobStore) -> Any:
        """A store's session, which it forgets when it reaches nobody."""
        return store._zk._client.client_id

    def end_session(self, session: Any) -> None:
        """Ends a session behind its store's back, as the server does when a process stands still for too long."""
        from kazoo.client import KazooClient

        other = KazooClient(self.hosts, client_id=session)
        other.start(HANGS_S)
        other.stop()
        other.close()

    def expire(self, store: JobStore) -> None:
        """Ends a store's session likewise, and waits until it has another."""
        before = store._zk.session
        self.end_session(self.session(store))
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
    def eventually(true: Callable[[], object], timeout_s: float = HANGS_S) -> bool:
        """True if something becomes true in time."""
        deadline = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True
