"""A life's tracker on loopback, alone or in shards, as the service runs it but without Spark; and workers for it.

    with TrackerRig(shards=4, fronts={0: 0}) as rig:
        one = rig.worker(1)
        one.local.heartbeat(0, 5)
        one.turn()
        rig.cpu_s()                     # by process: the shards', and last the merge's

Workers of other processes connect with `rig.place`, which can be pickled: `SimulatedWorker(place, number)`.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from lowtide.process.descriptors import allow_descriptors
from lowtide.process.tracker_line import TrackerLine
from lowtide.service.tracker.messages import TrackerSetting
from lowtide.service.tracker.process import TrackerProcess
from lowtide.service.tracker.sharded import ShardedTracker
from lowtide.status.tracker_report import TrackerReport
from lowtide_snapshots.cause import Cause
from lowtide_tracker import LocalTracker, Notice

__all__ = ["Place", "SimulatedWorker", "TrackerRig"]

INCARNATION = 1
CAPACITY_TICKS = 1 << 20
CALL_LIMIT_S = 60.0
GRAPH: Mapping[int, Sequence[int]] = {1: (), 2: (1,)}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Address of a tracker, and the secret to connect to it.

    Attributes:
        address: `host:port` of the tracker or the merge.
        shards: Addresses of the shards, by number; empty if there are none.
        secret: The job's secret.
        start: The tick at which min time begins.
    """

    address: str
    shards: tuple[str, ...]
    secret: bytes
    start: int


class SimulatedWorker:
    """A worker without records: a local tracker, and its connection.

    Args:
        place: Address and secret of the tracker.
        number: From 0 to 65,534.
    """

    def __init__(self, place: Place, number: int) -> None:
        self.local = LocalTracker(number, INCARNATION, start=place.start)
        self.line = TrackerLine(
            place.address,
            secret=place.secret,
            incarnation=INCARNATION,
            local=self.local,
            name=f"simulated worker {number}",
            shards=place.shards,
        )
        self.line.connect()

    def turn(self) -> list[Notice]:
        """Do a host's turn: reconnect if needed, flush, receive; return the new notices."""
        if self.line.fileno() < 0:
            self.line.mend(time.monotonic())
        self.line.flush(self.local.flush())
        return [notice for notice in self.line.receive() if self.local.hear(notice)]

    def close(self) -> None:
        """Close its connection."""
        self.line.close()


class TrackerRig:
    """The processes of one life's tracker; they end with the `with` block.

    Args:
        shards: Number of shards; 1 for a single process that does everything.
        fronts: Every front with its opening floor.
        graph: Segments with the segments that feed them.
        dues: For each segment, the owners that report due ticks.
        start: The tick at which min time begins.
        workers: Their numbers; needed only if processes are killed, for rebuilding them.
    """

    def __init__(
        self,
        *,
        shards: int,
        fronts: Mapping[int, int],
        graph: Mapping[int, Sequence[int]] = GRAPH,
        dues: Mapping[int, Sequence[int]] | None = None,
        start: int = 0,
        workers: Sequence[int] = (),
    ) -> None:
        allow_descriptors()
        self.faults: list[Cause] = []
        """Reason of the life's end, if it has ended."""
        self._workers: list[SimulatedWorker] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        secret = secrets.token_bytes(32)
        setting = TrackerSetting(INCARNATION, graph, dict(fronts), start, CAPACITY_TICKS, dues or {})
        self._tracker: TrackerProcess | ShardedTracker
        if shards == 1:
            self._tracker = TrackerProcess(
                setting,
                secret,
                host="127.0.0.1",
                workers=lambda: workers,
                fronts=lambda: fronts,
                on_fault=self.faults.append,
            )
        else:
            self._tracker = ShardedTracker(
                setting,
                secret,
                host="127.0.0.1",
                shards=shards,
                workers=lambda: workers,
                fronts=lambda: fronts,
                on_fault=self.faults.append,
            )
        try:
            address = self._do(self._tracker.start())
        except BaseException:
            self._stop()
            raise
        self.place = Place(address, self._tracker.shards, secret, start)

    def __enter__(self) -> TrackerRig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()
        self._do(self._tracker.close())
        self._stop()

    @property
    def pids(self) -> tuple[int | None, ...]:
        """Process ids by shard, and last the merge's; of a tracker alone, its own."""
        tracker = self._tracker
        return tracker.pids if isinstance(tracker, ShardedTracker) else (tracker.pid,)

    @property
    def report(self) -> TrackerReport | None:
        """The newest report; there are two a second."""
        return self._tracker.report

    def worker(self, number: int) -> SimulatedWorker:
        """Return a worker of this process, connected; closed with the rig."""
        self._workers.append(SimulatedWorker(self.place, number))
        return self._workers[-1]

    def cpu_s(self) -> tuple[float, ...]:
        """The CPU time of each process so far, in the order of `pids`; 0 for one that has gone."""
        return tuple(map(_cpu_s, self.pids))

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(CALL_LIMIT_S)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _cpu_s(pid: int | None) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except OSError:
        return 0.0
