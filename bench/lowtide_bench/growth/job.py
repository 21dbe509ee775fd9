"""A job's workers and tracker in one process, round by round: what goes between them, counted.

They are the product's, bytes in and bytes out, of the running count. Each front has a worker of level 0, and each
worker a line to the tracker of its own; in a job the workers of one host share one.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from lowtide.core.rows import PackedRows
from lowtide.core.worker import WorkerCore
from lowtide.errors import LowtideError
from lowtide.flow.plan.compiler import compile_flow
from lowtide_bench.core_levels import (
    FIRST_MS,
    INCARNATION,
    LIMITS,
    NOW_NS,
    SLACK_MS,
    SPAN_TICKS,
    START,
    VALUE,
    Receiver,
    Sender,
    TrackerServer,
    applied,
)
from lowtide_bench.flows import running_count
from lowtide_tracker import LocalTracker
from lowtide_tracker.message_reader import MessageReader

_pack = msgspec.msgpack.Encoder().encode


class Miscounted(LowtideError):
    """The job has not given each record once and in order: the bench is wrong, or the product."""


class Job:
    """A running count.

    Args:
        fronts: Partitions of its source.
        parallelism: Workers of level 1, and lanes.
        keys: Different keys.
    """

    def __init__(self, *, fronts: int, parallelism: int, keys: int) -> None:
        plan = compile_flow(
            running_count("growth", "source", "sink"), parallelism=parallelism, lanes=parallelism, slack_ms=SLACK_MS
        )
        self.counts: Counter[str] = Counter()
        """Of all rounds, by what is counted."""
        self.entered = 0
        """Records that entered."""
        self.delivered: Counter[bytes] = Counter()
        """Messages to the sink, by key."""
        self.most_sums = 0
        """The largest number of sums in the tracker's table."""
        self._keys = keys
        self._senders = [Sender(plan, number) for number in range(fronts)]
        self._receivers = [
            Receiver(plan, place, WorkerCore(plan, 1, place, tracker=_line(fronts + place), limits=LIMITS))
            for place in range(parallelism)
        ]
        self._tracker = TrackerServer(plan, fronts)
        self._offsets = [0] * fronts
        self._next_ms = FIRST_MS

    def round(self, records: int, fronts: int | None = None) -> None:
        """Let so many records enter at each front, or at the first few, and carry everything they cause.

        A round's records are of `SPAN_TICKS` ticks; the next round's first message closes them.
        """
        sent = []
        for sender in self._senders[:fronts]:
            sent += sender.rows(self._message(sender.number, records))
        self._next_ms += (SPAN_TICKS + 1) * SLACK_MS
        self._settle(sent)

    @property
    def waiting(self) -> int:
        """The records that have not been delivered: of ticks that no later message has closed."""
        return self.entered - self.delivered.total()

    def _settle(self, sent: list[tuple[int, bytes]]) -> None:
        """Carry frames, each with its target, and the flushes and notices that follow, until nothing is left."""
        workers: list[Sender | Receiver] = [*self._senders, *self._receivers]
        while True:
            self._carry(sent)
            notices = b"".join([self._flushed(worker) for worker in workers])
            applied(*workers)
            if not notices:
                return
            self.counts["notices"] += len(MessageReader().feed(notices)) * len(workers)
            self.counts["notice bytes"] += len(notices) * len(workers)
            sent = [each for sender in self._senders for each in sender.notice(notices)]
            for receiver in self._receivers:
                for _, _, key, value, _, _ in receiver.notice(notices):
                    self._deliver(key, value)

    def _carry(self, sent: list[tuple[int, bytes]]) -> None:
        for place, receiver in enumerate(self._receivers):
            frames = [frame for target, frame in sent if target == place]
            if frames:
                receiver.frames(frames)
        self.counts["frames"] += len(sent)
        self.counts["frame bytes"] += sum(len(frame) for _, frame in sent)

    def _flushed(self, worker: Sender | Receiver) -> bytes:
        """Give the tracker a worker's flush; return its notices."""
        before = sum(worker.local.flushed_acks.values())
        flush = worker.flush()
        if not flush:
            return b""
        self.counts["flushes"] += 1
        self.counts["flush bytes"] += len(flush)
        self.counts["acks"] += sum(worker.local.flushed_acks.values()) - before
        notices = self._tracker.receive(flush)
        self.most_sums = max(self.most_sums, self._tracker.sums)
        return notices

    def _deliver(self, key: bytes | None, value: bytes | None) -> None:
        assert key is not None
        assert value is not None
        self.delivered[key] += 1
        counted = VALUE.unpack(value)[3]
        if counted != self.delivered[key]:
            raise Miscounted(f"the count of key {key!r} is {counted} in its message number {self.delivered[key]}")

    def _message(self, front: int, records: int) -> bytes:
        """Return a message of rows of the next records of a front."""
        first = self._offsets[front]
        self._offsets[front] += records
        offsets = list(range(first, first + records))
        stamps = [self._next_ms + place * SPAN_TICKS // records * SLACK_MS for place in range(records)]
        keys: list[bytes | None] = [b"k%07d" % ((self.entered + place) % self._keys) for place in range(records)]
        self.entered += records
        values: list[bytes | None] = [VALUE.pack(key, at, NOW_NS, 0) for key, at in zip(keys, offsets, strict=True)]
        return _pack(PackedRows(NOW_NS, NOW_NS, "source", front, offsets, stamps, keys, values, None))


def _line(worker: int) -> LocalTracker:
    return LocalTracker(worker, INCARNATION, start=START)
