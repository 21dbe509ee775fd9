"""The courier thread: brings packets to Kafka, so that the loop of a host never waits for it."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from queue import SimpleQueue
from typing import Any

from lowtide.histogram import Histogram
from lowtide.sinks.contract import Packet, Way

__all__ = ["Courier"]

_Entry = tuple[Packet, int]
"""A packet, and when it was put."""

WAKE_BYTES = 4096
LARGE_RECORDS = 1000
"""So many records are worth a delivery of their own."""


class Courier:
    """Takes packets without waiting, and tells when they are durable.

    All packets that wait when the last ones have become durable go together, or sink by sink in turn until a delivery
    is full: one that has little is not to wait for all that another one has at once. Those that lead go in any case, so
    that nothing is durable before a leading one that was put before it. The thread begins with the object:
    what it takes to get ready is done by the time the first packet comes.

    Args:
        way: How they become durable.
        name: The thread's.
        pace_ms: The least time between the beginnings of two deliveries while fewer than `LARGE_RECORDS` wait.
        full_records: With so many records a delivery is full, at least 1; None for no limit.
    """

    def __init__(self, way: Way, name: str, pace_ms: int = 0, full_records: int | None = None) -> None:
        assert full_records is None or full_records >= 1, "a delivery brings something"
        self._way = way
        self._full_records = full_records
        self._pace_s = pace_ms / 1000
        self._begun_s = -math.inf
        self._waiting: SimpleQueue[tuple[Sequence[Packet], int] | None] = SimpleQueue()
        self._left: deque[_Entry] = deque()
        """Records left out of the last delivery, in the order they were put."""
        self._arrived: deque[tuple[int, int]] = deque()
        self._error: BaseException | None = None
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        # Each counter has one thread that writes it.
        self._put = self._done = self._turns = 0
        self._commit = Histogram()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, *packets: Packet) -> None:
        """Take packets, which go together; never waits. The thread is woken once."""
        self._put += sum([len(packet.messages) for packet in packets])
        self._waiting.put((packets, time.perf_counter_ns()))

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `durable` has news."""
        return self._readable

    def durable(self) -> list[tuple[int, int]]:
        """The (sink, lane) of each packet that became durable since the last call, in the order they were put.

        Raises:
            LowtideError: The error that ended the delivery, once all earlier durable packets were returned.
        """
        # First the pipe, then the list: a packet in between is returned now, and causes one empty wake-up.
        with suppress(BlockingIOError):
            os.read(self._readable, WAKE_BYTES)
        error, arrived = self._error, self._arrived
        found = [arrived.popleft() for _ in range(len(arrived))]
        if error is not None and not found:
            raise error
        if error is not None:
            self._wake()
        return found

    @property
    def queued(self) -> int:
        """Records that were put and are not durable."""
        return self._put - self._done

    def gauges(self) -> dict[str, Any]:
        """Counts since the beginning, and the histogram of ns from `put` to durable, per packet.

        `retries` are by the store's reason, `refused` rows by sink, `protocol` is how the way speaks with the store,
        `trouble` says why the store takes nothing if it does not; a way that has them has such attributes.
        """
        counts = {"transactions": self._turns, "records": self._done, "commit": dict(self._commit.counts)}
        own: dict[str, Any] = {name: dict(getattr(self._way, name, ())) for name in ("retries", "refused")}
        own |= {name: getattr(self._way, name, "") for name in ("protocol", "trouble")}
        return {**counts, **{name: found for name, found in own.items() if found}}

    def close(self, timeout_s: float) -> int:
        """Deliver what was put, as far as it can be done in time, and return how many records were left."""
        if not self._closed:
            self._closed = True
            self._way.end_by = time.monotonic() + timeout_s if self.queued else -math.inf
            self._waiting.put(None)
        self._thread.join(timeout_s)
        return self.queued

    def _run(self) -> None:
        try:
            self._way.open()
            while self._left or self._waited():
                self._turn()
        except BaseException as error:  # noqa: BLE001 - raised by `durable`, in the thread of the loop
            self._error = error
        finally:
            self._way.close()
            self._wake()

    def _waited(self) -> bool:
        """Wait for something to deliver; False at the end."""
        entry = self._waiting.get()
        if entry is not None:
            self._take(entry)
        return entry is not None

    def _turn(self) -> None:
        """Deliver what waits, or as much of it as makes one delivery."""
        self._pace()
        # A None among them is put back after all that came before it: nothing is put after closing.
        for _ in range(self._waiting.qsize()):
            entry = self._waiting.get()
            if entry is None:
                self._waiting.put(None)
            else:
                self._take(entry)
        chosen = self._chosen()
        self._way.deliver([packet for packet, _ in chosen])
        now = time.perf_counter_ns()
        for packet, since in chosen:
            self._commit.add(now - since)
            self._done += len(packet.messages)
            self._arrived.append((packet.sink, packet.lane))
        self._turns += 1
        self._wake()

    def _take(self, put: tuple[Sequence[Packet], int]) -> None:
        packets, since = put
        for packet in packets:
            self._left.append((packet, since))

    def _chosen(self) -> list[_Entry]:
        """Take what to send now, of each sink in the order it was put; the rest stays."""
        if self._full_records is None:
            chosen = list(self._left)
            self._left.clear()
            return chosen
        waiting: dict[int, deque[_Entry]] = {}
        chosen = [entry for entry in self._left if entry[0].leads]
        records = sum([len(packet.messages) for packet, _ in chosen])
        for entry in self._left:
            if not entry[0].leads:
                waiting.setdefault(entry[0].sink, deque()).append(entry)
        while waiting and records < self._full_records:
            for sink in list(waiting):
                chosen.append(waiting[sink].popleft())
                records += len(chosen[-1][0].messages)
                if not waiting[sink]:
                    del waiting[sink]
        self._left = deque(chain.from_iterable(waiting.values()))
        return chosen

    def _pace(self) -> None:
        """Let more come before the next delivery begins, unless much waits or the last one began long ago."""
        if self._pace_s:
            if self.queued < LARGE_RECORDS:
                time.sleep(max(0.0, self._begun_s + self._pace_s - time.monotonic()))
            self._begun_s = time.monotonic()

    def _wake(self) -> None:
        # A full pipe wakes as well.
        with suppress(BlockingIOError):
            os.write(self._writable, b"\0")
