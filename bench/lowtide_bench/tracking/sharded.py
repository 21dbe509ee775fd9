"""A life's tracker in shards as the service has it, a process for each and one for their merge."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from types import TracebackType
from typing import Any

from msgspec import convert, to_builtins

from lowtide.process.doors import DoorKind, Doors
from lowtide.service.tracker.messages import TrackerSetting
from lowtide.service.tracker.process import TrackerHooks
from lowtide.service.tracker.sharded import ShardedTracker
from lowtide.status.tracker_report import TrackerReport
from lowtide_bench.child import Child, ChildFailed
from lowtide_bench.tracking.program import Swarm, SwarmSaid
from lowtide_bench.tracking.script import START, chain, fronts
from lowtide_bench.tracking.served import CAPACITY_TICKS, INCARNATION, cpu_s_of
from lowtide_snapshots.cause import Cause
from lowtide_tracker import Traffic

START_LIMIT_S = 120.0
REPORT_LIMIT_S = 60.0
POLL_S = 0.05


class ServedInShards:
    """The processes for a number of simulated workers; they end with the `with` block."""

    def __init__(self, workers: int, depth: int, shards: int) -> None:
        self.secret = secrets.token_bytes(32)
        self._faults: list[Cause] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        setting = TrackerSetting(INCARNATION, chain(depth), fronts(workers), START, CAPACITY_TICKS)
        hooks = TrackerHooks(workers=lambda: range(workers), on_fault=self._faults.append)
        self._tracker = ShardedTracker(setting, self.secret, hooks, Doors(DoorKind.TCP, "127.0.0.1"), shards=shards)
        self.address = asyncio.run_coroutine_threadsafe(self._tracker.start(), self._loop).result(START_LIMIT_S)
        self.shards = self._tracker.shards

    def __enter__(self) -> ServedInShards:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._tracker.close(), self._loop).result(START_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def cpu_s(self) -> tuple[float, ...]:
        """CPU time of each shard's process so far, and last of the merge's."""
        return tuple(0.0 if pid is None else cpu_s_of(pid) for pid in self._tracker.pids)

    def report(self, messages: int) -> TrackerReport:
        """Return the next report in which every shard has had this many messages, with the first of each connection.

        Raises:
            ChildFailed: the life has ended, or there was none in time.
        """
        deadline, before = time.monotonic() + REPORT_LIMIT_S, self._tracker.report
        while time.monotonic() < deadline:
            if self._faults:
                raise ChildFailed(f"the life of a tracker in shards has ended: {self._faults[0]}")
            found = self._tracker.report
            if found is not None and found is not before and self._have(found, messages):
                return found
            time.sleep(POLL_S)
        raise ChildFailed(f"not every shard has reported {messages} messages after {REPORT_LIMIT_S:g} s")

    def _have(self, report: TrackerReport, messages: int) -> bool:
        states = report.shards
        return len(states) == len(self.shards) and all(each.traffic.messages_in >= messages for each in states)


def served(
    counts: tuple[int, ...], swarm: Swarm, connect_limit_s: float, answer_limit_s: float
) -> list[dict[str, Any]]:
    """Measure two and more shards and their merge over sockets at a pace; the busiest shard counts."""
    return [_of(count, swarm, connect_limit_s, answer_limit_s) for count in counts if count > 1]


def _of(count: int, swarm: Swarm, connect_limit_s: float, answer_limit_s: float) -> dict[str, Any]:
    with ServedInShards(swarm.workers, swarm.depth, count) as there:
        asked = to_builtins(swarm) | {
            "address": there.address, "shards": there.shards, "secret": there.secret.hex(),
        }  # fmt: skip
        child = Child("lowtide_bench.tracking.swarm", asked)
        try:
            child.expect("connected", connect_limit_s)
            began, cpu_began = there.report(swarm.workers), there.cpu_s
            child.send({"start": True})
            said = convert(child.expect("flushes", swarm.seconds + answer_limit_s), SwarmSaid)
            last, cpu_last = there.report(swarm.workers + said.flushes), there.cpu_s
        finally:
            child.end()
    flushes = said.flushes
    shards = [_grown(new.traffic, old.traffic) for new, old in zip(last.shards, began.shards, strict=True)]
    merge = _grown(last.traffic, began.traffic)
    *cpu, cpu_of_merge = [(new - old) / flushes * 1e6 for new, old in zip(cpu_last, cpu_began, strict=True)]
    arrived = sorted(said.arrived_ms)
    return {
        "shards": count,
        "acks_per_flush": round(max(each.acks for each in shards) / flushes, 2),
        "messages_in_per_flush": round(max(each.messages_in for each in shards) / flushes, 2),
        "bytes_in_per_flush": round(max(each.bytes_in for each in shards) / flushes, 1),
        "merge_messages_in_per_flush": round(merge.messages_in / flushes, 2),
        "merge_messages_out_per_flush": round(merge.messages_out / flushes, 2),
        "cpu_us_per_flush": round(max(cpu), 1),
        "merge_cpu_us_per_flush": round(cpu_of_merge, 1),
        "notify_p50_ms": round(arrived[len(arrived) // 2], 3),
        "notify_p99_ms": round(arrived[len(arrived) * 99 // 100], 3),
    }


def _grown(new: Traffic, old: Traffic) -> Traffic:
    return Traffic(**{name: getattr(new, name) - getattr(old, name) for name in Traffic.__struct_fields__})
