"""How long a notice takes: from the flush that moves min time to a process that waits for it, over loopback."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lowtide.bench.arrivals import percentiles
from lowtide.bench.child import Child
from lowtide.bench.core_traffic import FLUSH_ENTRIES, FLUSHES, INCARNATION, MOVING, Traffic
from lowtide.errors import LowtideError
from lowtide_tracker import TrackerClient

ENTRIES_PER_S = 10_000
WARMUP_ROUNDS = 20
LIMIT_S = 10.0


class NoNotice(LowtideError):
    """The benchmark's tracker did not answer; see whether the machine is overloaded, and run it again."""


def notices(count: int) -> dict[str, Any]:
    """Measure so many notices at `ENTRIES_PER_S`; return percentiles in ms.

    The tracker's server is a process of its own. Six workers' connections, which are told of every notice too, and
    that of the process which waits are here; they flush in turn, on schedule.
    """
    traffic = Traffic()
    with _server() as (address, secret), _clients(traffic, address, secret) as (workers, waiting):
        took: list[float] = []
        every_s = FLUSH_ENTRIES / ENTRIES_PER_S
        began = time.perf_counter()
        due = 0.0
        while len(took) < count + len(MOVING) * WARMUP_ROUNDS:
            for place, worker in enumerate(traffic.round()):
                time.sleep(max(0.0, began + due - time.perf_counter()))
                due += every_s
                flushed = time.perf_counter()
                workers[worker.worker].flush()
                if place in MOVING:
                    _await(waiting)
                    took.append(time.perf_counter() - flushed)
                workers[worker.worker].receive()
        seconds = time.perf_counter() - began
        assert waiting.min_times.global_min == traffic.min_time, "the last flush of a round closes it"
    took_ms = np.array(took[len(MOVING) * WARMUP_ROUNDS :]) * 1e3
    p50, p99, longest = percentiles(took_ms, (50, 99, 100))
    entries = FLUSH_ENTRIES * FLUSHES * len(took) // len(MOVING)
    return {
        "notify_p50_ms": round(p50, 3),
        "notify_p99_ms": round(p99, 3),
        "max_ms": round(longest, 3),
        "notices": len(took_ms),
        "entries_per_s": round(entries / seconds),
    }


def _await(waiting: TrackerClient) -> None:
    if not waiting.receive(LIMIT_S):
        raise NoNotice(f"no notice came within {LIMIT_S:g} s of a flush that moves min time")


@contextmanager
def _server() -> Iterator[tuple[str, bytes]]:
    """A tracker's server in a process of its own; gives its address and secret."""
    secret = secrets.token_bytes(32)
    child = Child("lowtide.bench.core_tracker_server", {"secret": secret.hex()})
    try:
        yield child.expect("address", LIMIT_S)["address"], secret
    finally:
        child.end()


@contextmanager
def _clients(traffic: Traffic, address: str, secret: bytes) -> Iterator[tuple[list[TrackerClient], TrackerClient]]:
    """Connections of all workers, and one that only listens; it has heard where everything begins."""

    def client(**more: Any) -> TrackerClient:
        return TrackerClient(address, secret=secret, incarnation=INCARNATION, **more)

    workers = [client(local=local, name=f"worker {local.worker}") for local in traffic.workers]
    waiting = client(name="waiting")
    try:
        for each in (*workers, waiting):
            each.connect()
        _await(waiting)
        yield workers, waiting
    finally:
        for each in (*workers, waiting):
            each.close()
