"""Both levels of a flow as workers run them, bytes in and bytes out, without Spark, Kafka and sockets.

`recorded` sends messages through all of it once. Each party's input is then replayed to a new party of the same kind
for every measurement: a worker returns the same bytes for the same input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from struct import Struct
from typing import Any, Literal

import msgspec

from lowtide import Flow, json, kafka
from lowtide.core.barriers import strands_of
from lowtide.core.early_frames import Early, Optimism
from lowtide.core.effects import Effects
from lowtide.core.frames import Outbox
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.plain.sink import Message, SinkEncoder
from lowtide.core.rows import PackedRows, open_rows
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import segments_of
from lowtide.worker.figures import Figures
from lowtide.worker.intake import Intake
from lowtide_bench.counted import SPREAD
from lowtide_bench.flows import running_count
from lowtide_bench.record import KEYS
from lowtide_snapshots.keys.hashing import hash_unit
from lowtide_tracker import Flush, Graph, LocalTracker, Notice, Tracker
from lowtide_tracker.message_reader import MessageReader
from lowtide_tracker.wire import decode, encode

Records = Literal["raw", "json"]
KINDS: tuple[Records, ...] = ("raw", "json")

SLACK_MS = 2
FIRST_MS = 1_760_000_000_000
START = FIRST_MS // SLACK_MS - 10
"""The tick at which min time begins."""
NOW_NS = 2 * FIRST_MS * 1_000_000
"""The clock of a run, which stands still."""
SPAN_TICKS = 3
"""Ticks of a batch's records, fewer if it has fewer records; an empty tick follows."""
FILLING, FILLING_SIZE = 30, 100
"""Number of warm-up batches before the measured ones, and records in each."""
FRONT = 0
WORKERS = 2
INCARNATION = 1
# The configuration's defaults.
LEAD_TICKS, MAX_FRONT_BYTES, MAX_FUTURE_MS = 5_000, 64 << 20, 60_000
OPTIMISM_TICKS, MAX_QUEUED_BYTES = 25, 32 << 20
LIMITS = Limits(frame_bytes=229_376, max_frame_bytes=4_194_304, max_frame_rows=8_192)
CAPACITY_TICKS = 1 << 16
VALUE = Struct("<8sqqq")
"""A value for `running_count`: key, number, due and count."""


@dataclass(frozen=True, slots=True)
class Click:
    """A record of the JSON flow."""

    user: str
    page: str
    ms: int


@dataclass(frozen=True, slots=True)
class Clicks:
    """A result of the JSON flow."""

    user: str
    clicks: int


def count_clicks(seen: int, click: Click) -> tuple[int, Clicks]:
    """Count a user's clicks: the user's function."""
    return seen + 1, Clicks(click.user, seen + 1)


def _clicks() -> Flow:
    flow = Flow("core")
    counts = flow.read("source", kafka("source", json(Click))).key_by("user").scan("count", count_clicks, 0)
    counts.write("sink", kafka("sink", json(Clicks), key="user"))
    return flow


@cache
def plan_of(kind: Records) -> Plan:
    """Return the plan of `key_by`, `scan` with a user's function and `write`; two workers at each level."""
    flow = running_count("core", "source", "sink") if kind == "raw" else _clicks()
    return compile_flow(flow, parallelism=WORKERS, lanes=WORKERS, slack_ms=SLACK_MS)


def batches(kind: Records, size: int, count: int, target: int | None) -> list[bytes]:
    """Return messages of kind ROWS as the JVM packs them: `FILLING` larger ones that bring most keys, then `count`.

    Args:
        kind: The kind of records.
        size: Records in each of the `count`.
        count: Number of measured messages.
        target: The records are for this worker of level 1 only; None for all.
    """
    plan, packer = plan_of(kind), msgspec.msgpack.Encoder()
    owners, units = plan.worker_of_unit(), plan.units
    keys: list[Any] = [b"key-%04d" % number if kind == "raw" else f"key-{number:04d}" for number in range(KEYS)]
    own = [key for key in keys if target is None or owners[hash_unit((key,), units)] == target]
    packed = []
    next_offset, next_ms = 0, FIRST_MS
    for n in [FILLING_SIZE] * FILLING + [size] * count:
        span = min(n, SPAN_TICKS)
        offsets = list(range(next_offset, next_offset + n))
        stamps = [next_ms + place * span // n * SLACK_MS for place in range(n)]
        next_offset, next_ms = next_offset + n, next_ms + (span + 1) * SLACK_MS
        named = [own[(offset * SPREAD >> 16) % len(own)] for offset in offsets]
        made = [_message(key, offset) for key, offset in zip(named, offsets, strict=True)]
        columns = [key for key, _ in made], [value for _, value in made]
        rows = PackedRows(NOW_NS, NOW_NS, "source", FRONT, offsets, stamps, *columns, None)
        packed.append(packer.encode(rows))
    return packed


def _message(key: bytes | str, sequence: int) -> tuple[bytes | None, bytes | None]:
    """Key and value of a message."""
    if isinstance(key, bytes):
        return key, VALUE.pack(key, sequence, NOW_NS, 0)
    return None, b'{"user":"%s","page":"/p/%d","ms":%d}' % (key.encode(), sequence % 9973, sequence)


class Sender:
    """A worker of level 0, whose number is that of its front."""

    def __init__(self, plan: Plan, number: int = FRONT) -> None:
        window = Window(LEAD_TICKS, MAX_FRONT_BYTES)
        front = Front(number, FrontLimits(SLACK_MS, window, MAX_FUTURE_MS), KnownFloors(START))
        self.number = number
        self.local = LocalTracker(number, INCARNATION, start=START)
        self.core = WorkerCore(plan, 0, number, tracker=self.local, front=front, limits=LIMITS)
        self.outbox = Outbox(number, plan.parallelism)
        self.reader = MessageReader()

    def rows(self, message: bytes) -> list[tuple[int, bytes]]:
        """Take a message; return frames, each with its target."""
        packed = open_rows(message)
        columns = packed.offsets, packed.timestamps, packed.keys, packed.values, packed.headers
        return self._sent(self.core.rows(SourceRows(self.number, *columns), NOW_NS // 1_000_000))

    def flush(self) -> bytes:
        """Return the flush for the tracker; empty if there is none."""
        return flushed(self.core.flush())

    def notice(self, message: bytes) -> list[tuple[int, bytes]]:
        """Take notices; return the frames that the front now lets pass."""
        return self._sent(self.core.notice(*notices_in(self.reader, message)))

    def _sent(self, effects: Effects) -> list[tuple[int, bytes]]:
        return [(frame.target, self.outbox.records(frame.target, frame, NOW_NS)) for frame in effects.frames]


class Receiver:
    """A worker of level 1; its sink makes everything durable at once.

    Args:
        plan: The plan.
        place: Its index among those of its level.
        core: Its core, if it has been made already.
    """

    def __init__(self, plan: Plan, place: int, core: WorkerCore | None = None) -> None:
        if core is None:
            local = LocalTracker(WORKERS + place, INCARNATION, start=START)
            core = WorkerCore(plan, 1, place, tracker=local, limits=LIMITS, strands=strands_of(plan))
        self.core = core
        self.local = core.tracker
        self.reader = MessageReader()
        self.early = Early(Optimism(OPTIMISM_TICKS), MAX_QUEUED_BYTES)
        self.intake = Intake(plan, f"1/{place}", 1, place, Figures())
        self.sinks = {vertex.id: SinkEncoder(vertex, SLACK_MS) for vertex in plan.sinks()}

    def frames(self, messages: list[bytes]) -> None:
        """Take frames."""
        for frames in self.early.take(self.intake.open(messages, NOW_NS), self.core.min_time):
            self.core.frame(*frames)

    def flush(self) -> bytes:
        """Return the flush for the tracker; empty if there is none."""
        return flushed(self.core.flush())

    def notice(self, message: bytes) -> list[Message]:
        """Take notices; return the messages for the producer."""
        core = self.core
        bundles = core.notice(*notices_in(self.reader, message)).bundles
        for frames in self.early.due(core.min_time):
            core.frame(*frames)
        messages = []
        while bundles:
            following = []
            for sink, bundle in bundles:
                messages += self.sinks[sink].encode(bundle.lane, bundle.pieces)
                following += core.durable(sink, bundle.lane).bundles
            bundles = following
        return messages


class TrackerServer:
    """The tracker with its server's work on a message, without the socket."""

    def __init__(self, plan: Plan, fronts: int = 1) -> None:
        opening = dict.fromkeys(range(FRONT, FRONT + fronts), START)
        self.tracker = Tracker(Graph(segments_of(plan).inbound), opening, start=START, capacity_ticks=CAPACITY_TICKS)
        self._reader = MessageReader()

    @property
    def sums(self) -> int:
        """The number of sums in the tracker's table."""
        return sum(1 for _ in self.tracker._table.kept_ticks())

    def receive(self, message: bytes) -> bytes:
        """Take a worker's flushes; return notices, perhaps none."""
        said = []
        for kind, payload in self._reader.feed(message):
            flush = decode(kind, payload)
            assert isinstance(flush, Flush), "workers send flushes"
            said += [encode(notice) for notice in self.tracker.receive(flush)]
        return b"".join(said)


def flushed(flush: Flush | None) -> bytes:
    """Return a flush's bytes."""
    return b"" if flush is None else encode(flush)


def notices_in(reader: MessageReader, message: bytes) -> list[Notice]:
    """Decode the notices in the tracker's bytes."""
    notices = []
    for kind, payload in reader.feed(message):
        notice = decode(kind, payload)
        assert isinstance(notice, Notice), "the tracker sends notices"
        notices.append(notice)
    return notices


@dataclass(slots=True)
class Recording:
    """Messages between the workers and the tracker; one element per batch, warm-up batches included.

    Attributes:
        messages: Messages for level 0.
        frames: Frames for the first worker of level 1.
        flushes: Flushes for the tracker, level 0 first.
        notices: The tracker's replies to them.
        outputs: Output that the first worker of level 1 gave its producer.
    """

    messages: list[bytes]
    frames: list[list[bytes]] = field(default_factory=list)
    flushes: list[bytes] = field(default_factory=list)
    notices: list[bytes] = field(default_factory=list)
    outputs: list[list[Message]] = field(default_factory=list)


def recorded(kind: Records, size: int, count: int, target: int | None) -> Recording:
    """Send batches through both levels; arguments as in `batches`."""
    recording = Recording(batches(kind, size, count, target))
    plan = plan_of(kind)
    sender, tracker = Sender(plan), TrackerServer(plan)
    receivers = [Receiver(plan, place) for place in range(WORKERS)]
    for message in recording.messages:
        frames: list[list[bytes]] = [[] for _ in receivers]
        for place, frame in sender.rows(message):
            frames[place].append(frame)
        said = [sender.flush()]
        for receiver, came in zip(receivers, frames, strict=True):
            if came:
                receiver.frames(came)
                said.append(receiver.flush())
        notices = b"".join([tracker.receive(flush) for flush in said])
        sender.notice(notices)
        outputs = [receiver.notice(notices) for receiver in receivers]
        applied(sender, *receivers)
        recording.frames.append(frames[0])
        recording.flushes.append(b"".join(said))
        recording.notices.append(notices)
        recording.outputs.append(outputs[0])
    return recording


def applied(*workers: Sender | Receiver) -> None:
    """Tell workers that the tracker has applied their flushes."""
    for worker in workers:
        worker.local.applied(worker.local.flushed)
