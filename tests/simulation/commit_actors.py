"""Actors that stop before whatever they read or write, and the ZooKeeper and the store that they share.

The real functions run, each actor on a thread of its own; only one of all threads runs at a time, and the world says
which and for how long. So a run is the same again for the same seed, whatever the threads do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from lowtide_snapshots.errors import WriteUnknown
from lowtide_snapshots.stores import Entry
from lowtide_snapshots.stores.errors import AlreadyThere, NotThere, StoreUnavailable
from lowtide_snapshots.zookeeper.memory_nodes import MemoryNodes
from lowtide_snapshots.zookeeper.nodes import Node, Operation

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


class Killed(BaseException):
    """An actor is killed where it stands."""


class Actor:
    """Somebody who does one thing after the other, and may be stopped for ever before each."""

    def __init__(self, name: str, act: Callable[[Actor], None]) -> None:
        self.name = name
        self.ended = False
        self._act = act
        self._error: BaseException | None = None
        self._killed = False
        self._allowed = 0
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self, stops: int) -> None:
        """Let it go on for so many reads and writes."""
        self._allowed = stops
        self._turn.release()
        self._back.acquire()
        if self.ended:
            self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def kill(self) -> None:
        """End it where it stands."""
        if not self.ended:
            self._killed = True
            self.resume(0)

    def stop(self) -> None:
        """Called by the actor itself before it reads or writes."""
        self._allowed -= 1
        if self._allowed <= 0 and not self._killed:
            self._back.release()
            self._turn.acquire()
        if self._killed:
            raise Killed

    def rest(self) -> None:
        """Called by the actor itself while it waits for others."""
        self._allowed = 0
        self.stop()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self._killed:
                self._act(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the world raises it
            self._error = error
        self.ended = True
        self._back.release()


class SharedNodes(MemoryNodes):
    """A ZooKeeper: reads of several nodes come one by one, and an answer may be lost.

    Attributes:
        stop: called before each read and write.
        lost: called at each transaction: None, or "request" or "answer", whatever is lost of it.
        gives_up: whether ZooKeeper then stays away for longer than the caller waits.
        written: told of each transaction that was done, with the nodes before it.
    """

    def __init__(
        self,
        stop: Callable[[], None],
        lost: Callable[[], str | None],
        gives_up: Callable[[], bool],
        written: Callable[[Sequence[Operation]], None],
    ) -> None:
        super().__init__()
        self._stop = stop
        self._lost = lost
        self._gives_up = gives_up
        self._written = written

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        found = []
        for path in paths:
            self._stop()
            found += super().get_all([path])
        return found

    def children(self, path: str) -> list[str] | None:
        self._stop()
        return super().children(path)

    def now(self, path: str) -> Node | None:
        """A node, for the world to look at."""
        return super().get_all([path])[0]

    def write(self, plan: Callable[[], Sequence[Operation]]) -> None:
        while operations := plan():
            self._stop()
            lost = self._lost()
            done = lost != "request" and self.commit(operations)
            if done:
                self._written(operations)
            self._stop()
            if lost is None and done:
                return
            if lost is not None and self._gives_up():
                raise WriteUnknown("the answer was lost")


class SharedStore:
    """A store: what is put if absent; and at times it fails, before or after it has done what was asked."""

    where = "the simulated store"

    def __init__(self, stop: Callable[[], None], fails: Callable[[], bool], deleting: Callable[[str], None]) -> None:
        self.objects: dict[str, bytes] = {}
        self._stop = stop
        self._fails = fails
        self._deleting = deleting

    def put(self, name: str, data: bytes | bytearray | memoryview) -> None:
        self._ask()
        if self.objects.setdefault(name, bytes(data)) != bytes(data):
            raise AlreadyThere("other bytes", where=name)
        self._ask()

    def get(self, name: str) -> bytes:
        self._ask()
        if name not in self.objects:
            raise NotThere("it is not there", where=name)
        return self.objects[name]

    def names(self, prefix: str) -> list[Entry]:
        self._ask()
        return [
            Entry(name, len(self.objects[name]), LONG_AGO) for name in sorted(self.objects) if name.startswith(prefix)
        ]

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._ask()
            self._deleting(name)
            self.objects.pop(name, None)

    def sweep(self, prefix: str) -> None: ...

    def check(self) -> None: ...

    def close(self) -> None: ...

    def _ask(self) -> None:
        self._stop()
        if self._fails():
            raise StoreUnavailable("it did not answer")
