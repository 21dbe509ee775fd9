"""Cost of a batch on its way through both levels and the tracker: one thread, no Spark, no Kafka, no JVM."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from lowtide.core.early_frames import Early
from lowtide.core.frames import Outbox
from lowtide.core.fronts.front import Front
from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.plain import exchange
from lowtide.core.operators.plain.exchange import ExchangeNode
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.core.operators.plain.source import SourceNode
from lowtide.core.operators.program import Program
from lowtide.core.operators.state.grouping import Grouping
from lowtide.flow.formats.formats import JsonFormat, RawFormat
from lowtide.process.interpreter import set_up_collector
from lowtide.version import __version__
from lowtide.worker.intake import Intake
from lowtide_bench import core_levels
from lowtide_bench.core_levels import (
    FILLING,
    KINDS,
    Receiver,
    Records,
    Sender,
    TrackerServer,
    applied,
    plan_of,
    recorded,
)
from lowtide_bench.core_timing import Samples, State, Timer
from lowtide_bench.machine import load, machine
from lowtide_tracker import LocalTracker, Tracker

Say = Callable[[str], None]

SIZES = (1, 3, 10, 100, 1_000)
WARM_SAMPLES = 10
"""Ratio of warm calls to cold ones, up to `WARM_RECORDS`."""
WARM_RECORDS = 50_000

ROWS, FLUSH_0, NOTICE_0 = "level 0: rows to frames", "level 0: flush", "level 0: notice"
FRAMES, FLUSH_1, NOTICE_1 = "level 1: frames to barrier", "level 1: flush", "level 1: notice to messages"
TRACKER = "tracker: flushes to notices"
WAY = (ROWS, FRAMES, NOTICE_1)
"""The steps that a batch waits for in the workers; batches share flushes and the tracker's work."""
STEPS = (ROWS, FLUSH_0, NOTICE_0, FRAMES, FLUSH_1, NOTICE_1, TRACKER)

STAGES: tuple[tuple[str, Any, str], ...] = (
    ("unpack", core_levels, "open_rows"),
    ("label", Front, "take"),
    ("window", Front, "admitted"),
    ("decode records", RawFormat, "decode"),
    ("decode records", JsonFormat, "decode"),
    ("order keys", SourceNode, "feed"),
    ("exchange", ExchangeNode, "take"),
    ("encode records", exchange, "encode_rows"),
    ("fold acks", LocalTracker, "fold"),
    ("frame", Outbox, "records"),
    ("open frame", Intake, "open"),
    ("optimism", Early, "take"),
    ("grouping and function", Grouping, "insert"),
    ("barrier takes", Barrier, "add"),
    ("sum up", LocalTracker, "flush"),
    ("hear", LocalTracker, "hear"),
    ("optimism", Early, "due"),
    ("prune front", Front, "prune"),
    ("prune", Program, "prune"),
    ("barrier releases", Barrier, "advance"),
    ("durable", Barrier, "durable"),
    ("make messages", SinkEncoder, "encode"),
    ("tracker applies", Tracker, "receive"),
    ("bytes to message", core_levels, "decode"),
    ("message to bytes", core_levels, "encode"),
)
"""Stages timed within steps: name, and the function by its owner."""


def run(sizes: Sequence[int], states: Sequence[State], samples: int, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench core --json` prints.

    Args:
        sizes: Records in a batch.
        states: States of the caches.
        samples: Cold calls of each step; there are more warm ones.
        say: Called with each progress message.
    """
    where = machine()
    set_up_collector()
    cases: list[tuple[dict[str, Any], dict[str, Samples], dict[str, Samples]]] = []
    for kind in KINDS:
        for size in sizes:
            say(f"{kind}: {size} records in a batch")
            counts = {state: samples if state == "cold" else _warm(samples, size) for state in states}
            traffic = Traffic(kind, size, max(counts.values()))
            for state, count in counts.items():
                plain, watched = Timer(state, FILLING), Timer(state, FILLING)
                traffic.replay(plain, count)
                with _watched(watched):
                    traffic.replay(watched, samples)
                cases.append(({"records": kind, "state": state, "size": size}, plain.samples, watched.samples))
    best = min(each.best for _, steps, _ in cases for each in steps.values())
    return {
        "cases": [case | _figures(steps, stages, case["size"], best) for case, steps, stages in cases],
        "calibration_us": round(best / 1e3, 2),
        "samples": samples,
        "versions": versions(),
        "machine": {**where, "load_after": load()},
    }


def _warm(samples: int, size: int) -> int:
    return max(samples, min(WARM_SAMPLES * samples, WARM_RECORDS // size))


class Traffic:
    """Traffic replayed to each party alone: records for both workers of level 1 at level 0, for one worker at level 1.

    Args:
        kind: The kind of records.
        size: Records in a batch.
        count: Number of batches.
    """

    def __init__(self, kind: Records, size: int, count: int) -> None:
        self._plan = plan_of(kind)
        self._split = recorded(kind, size, count, target=None)
        self._whole = recorded(kind, size, count, target=0)

    def replay(self, timer: Timer, count: int) -> None:
        """Time the steps of this many batches."""
        split, whole, end = self._split, self._whole, FILLING + count
        sender, tracker, receiver = Sender(self._plan), TrackerServer(self._plan), Receiver(self._plan, 0)
        for message, notices in zip(split.messages[:end], split.notices[:end], strict=True):
            timer.turn(ROWS, partial(sender.rows, message))
            timer.step(FLUSH_0, sender.flush)
            timer.turn(NOTICE_0, partial(sender.notice, notices))
            applied(sender)
        for flushes in split.flushes[:end]:
            timer.turn(TRACKER, partial(tracker.receive, flushes))
        for frames, notices in zip(whole.frames[:end], whole.notices[:end], strict=True):
            timer.turn(FRAMES, partial(receiver.frames, frames))
            timer.step(FLUSH_1, receiver.flush)
            timer.turn(NOTICE_1, partial(receiver.notice, notices))
            applied(receiver)


@contextmanager
def _watched(timer: Timer) -> Iterator[None]:
    """Have the functions of `STAGES` timed."""
    before = [(owner, name, getattr(owner, name)) for _, owner, name in STAGES]
    for stage, owner, name in STAGES:
        setattr(owner, name, timer.watched(stage, getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def _figures(steps: dict[str, Samples], staged: dict[str, Samples], size: int, best: int) -> dict[str, Any]:
    """The medians in µs per batch: of steps, of their stages, and of the whole path."""
    us = {name: each.median_us(best) for name, each in steps.items()}
    stages: dict[str, dict[str, float]] = {step: {} for step in STEPS}
    for name, each in staged.items():
        step, _, stage = name.partition("/")
        if stage:
            stages[step][stage] = round(each.median_us(best), 2)
    for step, parts in stages.items():
        parts["between"] = round(staged[step].median_us(best) - sum(parts.values()), 2)
    way = sum(us[step] for step in WAY)
    return {
        "us": {step: round(us[step], 2) for step in STEPS},
        "way_us": round(way, 2),
        "way_us_per_record": round(way / size, 2),
        "stages_us": stages,
        "quiet_share": round(min(each.quiet_share(best) for each in steps.values()), 2),
    }


def versions() -> dict[str, str]:
    """Return the versions of all software that affects the figures."""
    found = {"lowtide": __version__, "python": platform.python_version()}
    return found | {package: version(package) for package in ("msgspec", "xxhash")}
