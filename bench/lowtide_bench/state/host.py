"""A host as a job has it, in one thread without Spark and Kafka: both levels, the tracker, state on disk, the saver.

What is real: the cores and frames of both levels, the shelves with their store on disk, its reader, the saver and its
processes, the loading of state. The sink makes everything durable at once.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lowtide.assignment.birth import Birth
from lowtide.assignment.deployment import Deployment, DiskSetting
from lowtide.assignment.messages import PartWritten, ShareFailed, ShareSaved
from lowtide.core.fronts.front import Window
from lowtide.errors import SnapshotFailed
from lowtide.flow.plan.plan import Plan
from lowtide.process.interpreter import without_collections
from lowtide.worker.saver import Saver
from lowtide.worker.stage_parts import make_core
from lowtide.worker.state_on_disk import StateOnDisk
from lowtide_bench.core_levels import (
    INCARNATION,
    LEAD_TICKS,
    LIMITS,
    MAX_FRONT_BYTES,
    MAX_FUTURE_MS,
    MAX_QUEUED_BYTES,
    OPTIMISM_TICKS,
    START,
    Receiver,
    Sender,
    TrackerServer,
    applied,
)
from lowtide_bench.session import Say
from lowtide_bench.state.traffic import Packer, entries, key_of
from lowtide_bench.stored import STEP
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.keys.hashing import hash_units
from lowtide_snapshots.stores import StoreSetting
from lowtide_tracker import LocalTracker
from lowtide_tracker.wire import encode

WORKER = "1/0"
JOB = "bench"
HASHED = 100_000
"""Keys are hashed so many at a time."""
PIN_LIMIT_S, SAVE_LIMIT_S = 60.0, 1_800.0


class Saved(NamedTuple):
    """A snapshot.

    Attributes:
        tick: Its T.
        records: The number of records below it.
        parts: What was written.
        took_s: From the request until all was written.
        pinned_ms: From the request until the store was pinned and the writing process forked.
    """

    tick: int
    records: int
    parts: list[Part]
    took_s: float
    pinned_ms: float


class Host:
    """A host with one worker of each level.

    Args:
        plan: The plan.
        disk: Where its state lies; None for memory.
        store: Where its snapshots go.
        restored: The parts that it begins from.
        start: The tick that it begins at.
    """

    def __init__(
        self,
        plan: Plan,
        disk: DiskSetting | None,
        store: StoreSetting,
        *,
        restored: Sequence[Part] = (),
        start: int = START,
    ) -> None:
        self.plan = plan
        self.disk = None if disk is None else StateOnDisk(disk, JOB, INCARNATION, 1)
        self.packer = Packer()
        deployment = _deployment(plan, disk, store, restored, start)
        birth = Birth(WORKER, 1, 1, INCARNATION, 1, "0", "", bytes(16))
        local = LocalTracker(1, INCARNATION, start=start)
        self.core = make_core(deployment, birth, None, local, self._own_disk)
        self._sender, self._tracker = Sender(plan), TrackerServer(plan)
        self._receiver = Receiver(plan, 0, self.core)
        self._requests = 0
        self._saver = Saver(plan, store, INCARNATION)
        self._saver.disk = self.disk
        self._saver.add(WORKER, self.core)

    def fill(self, keys: int, state_bytes: int, say: Say) -> None:
        """Have the first state of keys: hash unit by hash unit, as a life takes it over."""
        plan = self.plan
        units: list[list[Any]] = [[] for _ in range(plan.units)]
        for first in range(0, keys, HASHED):
            say(f"hashing keys: {first:,} of {keys:,}")
            numbers = np.arange(first, min(first + HASHED, keys), dtype=np.int64)
            column = pa.array([key_of(number) for number in numbers.tolist()], pa.binary())
            hashed = hash_units([column], plan.units)
            order = np.argsort(hashed, kind="stable")
            bounds = np.searchsorted(hashed[order], np.arange(plan.units + 1))
            for unit in range(plan.units):
                units[unit].append(numbers[order[bounds[unit] : bounds[unit + 1]]].astype(np.int32))
        done = 0
        with without_collections():
            for unit, chunks in enumerate(units):
                say(f"filling the state: {done:,} of {keys:,} keys")
                numbers = np.concatenate(chunks).astype(np.int64)
                chunks.clear()
                done += len(numbers)
                self.core.program.restore_unit(STEP, unit, entries(numbers, state_bytes), START)

    def turn(self, message: bytes) -> int:
        """Let a message go through both levels; return how many records came out."""
        self._receiver.frames([frame for _, frame in self._sender.rows(message)])
        notices = self._tracker.receive(self._sender.flush() + self._receiver.flush())
        return self._noticed(notices)

    def save(self, meanwhile: Callable[[], None], say: Say) -> Saved:
        """Take a snapshot, and go on meanwhile.

        Raises:
            SnapshotFailed: it was not written.
        """
        self._requests += 1
        began = time.perf_counter()
        notice = self._tracker.tracker.request(self._requests)
        assert notice.request is not None
        tick = notice.request.tick
        records = self.packer.below(tick)
        self._noticed(encode(notice))
        said = self._saver.begin()
        while self._saver.pinning:
            _within(began, PIN_LIMIT_S)
            meanwhile()
            assert self.disk is not None
            if select.select([self.disk], [], [], 0)[0]:
                said += self._saver.begin()
        pinned_ms = (time.perf_counter() - began) * 1e3
        try:
            while not any(isinstance(each, ShareSaved | ShareFailed) for _, each in said):
                _within(began, SAVE_LIMIT_S)
                meanwhile()
                said += self._saver.hear()
                written = sum(isinstance(each, PartWritten) for _, each in said)
                say(f"writing a snapshot: {written} of {self.plan.units} parts")
        finally:
            self._saver.close()
        for _, each in said:
            if isinstance(each, ShareFailed):
                raise SnapshotFailed(f"the state was not written: {each.cause}")
        parts = [each.part for _, each in said if isinstance(each, PartWritten)]
        return Saved(tick, records, parts, time.perf_counter() - began, pinned_ms)

    def close(self) -> None:
        """End what it has started, and remove its state."""
        if self.disk is not None:
            self.disk.close()

    def _noticed(self, notices: bytes) -> int:
        self._sender.notice(notices)
        made = self._receiver.notice(notices)
        applied(self._sender, self._receiver)
        return len(made)

    def _own_disk(self) -> StateOnDisk:
        assert self.disk is not None
        return self.disk


def _deployment(
    plan: Plan, disk: DiskSetting | None, store: StoreSetting, restored: Sequence[Part], start: int
) -> Deployment:
    return Deployment(
        plan=plan,
        sink_partitions={"sink": 1},
        producer={},
        limits=LIMITS,
        delivery="at_least_once",
        window=Window(LEAD_TICKS, MAX_FRONT_BYTES),
        optimism=OPTIMISM_TICKS,
        max_future_ms=MAX_FUTURE_MS,
        max_bundle_records=1_000,
        delivery_limit_ms=60_000,
        max_queued_bytes=MAX_QUEUED_BYTES,
        store=store,
        restored=tuple(restored),
        recovered=bool(restored),
        start=start,
        disk=disk,
    )


def _within(began: float, limit_s: float) -> None:
    if time.perf_counter() - began > limit_s:
        raise SnapshotFailed(f"it was not written within {limit_s:g} s", way_out="give fewer --keys")


def disk_setting(folder: Path, memory_mb: int, max_gb: float, copies_max_gb: float) -> DiskSetting:
    """Return the place of a host's state."""
    return DiskSetting(str(folder), memory_mb << 20, round(max_gb * 1e9), copies_bytes=round(copies_max_gb * 1e9))
