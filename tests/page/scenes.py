"""Jobs behind a real control API, as their services would see them: healthy, ill, catching up, ended, new."""

from __future__ import annotations

import io
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from controlled import ControlledJob, controlled
from seen import PARTITIONS, SHAPE, STEPS, moment, reader, report, worker

from lowtide.events import EventLog
from lowtide.histogram import Histogram
from lowtide.status.gauges import LetterGauges, SinkGauges, StepStands, WorkerState
from lowtide.status.job_view import SnapshotsView
from lowtide.status.moment import JobShape, Room, StagedMoment, StepShape
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.job.standbys import Standby
from lowtide_snapshots.page.answers import LifeLine, LifePhase, SnapshotLine
from lowtide_tracker import Holder

LONG = "orders-of-all-shops-in-every-country-with-refunds-and-corrections-and-what-the-auditors-want-besides-v2"
LOOKS = 900
FRONTS = 40
KILLED = "worker 1/0 died: killed by SIGKILL"
FAILED = "since 12:00:00 UTC: snapshot 000003-0002 failed: the store does not answer\n  where: s3://lowtide/production"
HOUR_MS = 3_600_000
STANDBYS = (
    Standby("2026-01-02T03:00:00+00:00", "process 7 on host-2", True),
    Standby("2026-01-02T03:04:00+00:00", "process 9 on host-3"),
)

See = Callable[["Seconds", int], None]
"""Has the service look at a job as it is so many seconds after the beginning."""


class Seconds:
    """A job's time, which goes on while the block lasts."""

    def __init__(self, served: ControlledJob, events: EventLog, clock: list[datetime]) -> None:
        self.served = served
        self.events = events
        self.clock = clock

    @property
    def now_ms(self) -> int:
        return round(self.clock[0].timestamp() * 1000)

    def look(self, second: int, lag_ms: int, held: Holder | None = None, **said: Any) -> None:
        """See that min time is so far behind."""
        at = (self.now_ms - lag_ms) // 2
        held = Holder(at, 1, 3, at_front=True) if held is None else held
        usual: dict[str, Any] = {"now_ms": self.now_ms, "control": self.served.address, "delivered_time": at - 15}
        usual["tracker"] = report(held, global_min=at, min_times={1: at, 2: at})
        self.served.look(float(second), moment(**(usual | said)))

    def event(self, name: Any, **said: Any) -> None:
        self.events.event(name, **said)


@contextmanager
def _played(see: See, *, looks: int = LOOKS, shape: JobShape = SHAPE, goes_on: bool = True) -> Iterator[ControlledJob]:
    """Serve a job behind which so many seconds have passed."""
    clock = [datetime.now(UTC) - timedelta(seconds=looks)]
    events = EventLog(shape.job, shape.incarnation, io.StringIO(), clock=lambda: clock[0])
    over = threading.Event()
    with controlled(replace(shape, started_ms=round(clock[0].timestamp() * 1000)), events) as served:
        seconds = Seconds(served, events, clock)

        def pass_one(second: int) -> None:
            clock[0] += timedelta(seconds=1)
            see(seconds, second)

        def pass_on() -> None:
            for second in range(looks, 10 * LOOKS):
                if over.wait(max(0.0, clock[0].timestamp() + 1 - time.time())):
                    return
                pass_one(second)

        for second in range(looks):
            pass_one(second)
        thread = threading.Thread(target=pass_on if goes_on else over.wait)
        thread.start()
        try:
            yield served
        finally:
            over.set()
            thread.join()


def _took(second: int, p50_ms: int = 4, p99_ms: int = 19) -> dict[int, int]:
    took = Histogram()
    took.add(p50_ms * 1_000_000, 100 * (second + 1))
    took.add(p99_ms * 1_000_000, 3 * (second + 1))
    return took.counts


def _workers(at: Seconds, second: int, lag_ms: int, latency: dict[int, int]) -> list[WorkerState]:
    tick = (at.now_ms - lag_ms) // 2
    count = round(1000 * second + 6000 * math.sin(second / 40))
    front = {"front": 0, "heartbeat": tick + 3, "next_offset": 41_000_000 + count}
    first = {"pack": _took(second, 1, 3), "python": _took(second, 2, 5)}
    later = {"exchange": _took(second, 2, 6), "python": _took(second, 1, 4), "wait": _took(second, 3, 9)}
    return [
        worker("0/documents-0", records_in=count, hops=first, front=front),
        reader("0/documents-1", 3, heartbeat=tick, next_offset=39_998_120 + second),
        worker(
            "1/1",
            records_in=count,
            records_out=2 * count,
            kept={"last": {"what": "keys", "count": 910, "bytes": 1 << 18}},
        ),
        worker(
            "2/0",
            records_in=2 * count,
            records_out=3 * count,
            delivered=count,
            transactions=second,
            latency=latency,
            hops=later,
            kept={"index": {"what": "keys", "count": 48_213, "bytes": 9 << 20}},
            deliveries={"kafka": _took(second, 5, 14)},
            sinks={
                "index": SinkGauges(records=count, bytes=100 * count, newest=tick - 20),
                "archive": SinkGauges(records=count // 2, bytes=50 * count, newest=tick - 600_000),
            },
        ),
    ]


# -- the scenes --------------------------------------------------------------------------------------------------------


@contextmanager
def healthy(job: str = "orders", incarnation: int = 3) -> Iterator[ControlledJob]:
    """Min time is 9 to 15 ms behind, for 9 s of 300 by 1.5 s more; two lives before it, and commits."""

    def see(at: Seconds, second: int) -> None:
        _happen(at, second)
        lag_ms = 9 + second % 7 + (1500 if second % 300 > 290 else 0)
        staged = StagedMoment(visible_ms=at.now_ms - 2_000, records=12_345, bytes=3 << 20, restarts=1)
        workers = _workers(at, second, lag_ms, _took(second))
        at.look(second, lag_ms, workers=workers, staged={"archive": staged}, standbys=STANDBYS)

    sinks = {"index": (2, 4), "archive": (2, 4), "refunds": (2, 4)}
    others = tuple(StepShape(name=sink, word="write", level=2, after=(3,)) for sink in ("archive", "refunds"))
    shape = replace(SHAPE, job=job, incarnation=incarnation, sinks=sinks, steps=STEPS + others)
    with _played(see, shape=shape) as served:
        _give_past(served)
        yield served


def _happen(at: Seconds, second: int) -> None:
    if second == 0:
        at.event("life_begun", fronts=2)
    if second % 300 == 100:
        at.event("snapshot_sealed", snapshot=f"000003-{1 + second // 300:04d}", called=None, took_s=2.5)
    if second == 450:
        at.event("snapshot_failed", snapshot="000003-0009", called=None, took_s=30.0, why="the store does not answer")
    if second == 500:
        at.event("tracker_restarted", era=2, how="killed by SIGKILL")
    if second in (700, 712):
        at.event("stalled" if second == 700 else "resumed", holder="front 3 (documents-1)", lag_ms=4000)


def _give_past(served: ControlledJob, commits: int = 3) -> None:
    now_ms = time.time_ns() // 1_000_000
    began_ms = served.watch.shape.started_ms
    served.lives = [
        _life(1, "stopped", now_ms - 9 * HOUR_MS, now_ms - 5 * HOUR_MS, "a start by hand", "it received SIGTERM"),
        _life(2, "failed", now_ms - 5 * HOUR_MS, began_ms - 6_000, "DAG lowtide_recover__orders", KILLED),
        _life(3, "running", began_ms, None, "its program, after the previous life"),
    ]
    served.lines = [_line("000002-0041", 2, began_ms - 200_000, last=not commits)]
    for number in range(commits):
        at_ms = began_ms + (100 + 300 * number) * 1000
        served.lines.append(_line(f"000003-{1 + number:04d}", 3, at_ms, last=number == commits - 1))


def _life(
    number: int, phase: LifePhase, began_ms: int, ended_ms: int | None, begun_by: str, cause: str = ""
) -> LifeLine:
    way_out = "more memory, or smaller limits" if cause == KILLED else ""
    commit = f"{number - 1:06d}-0041" if number > 1 else None
    return LifeLine(number, phase, began_ms, ended_ms, False, cause, way_out, commit, begun_by)


def _line(id_: str, life: int, at_ms: int, *, last: bool = False) -> SnapshotLine:
    name = "before the update" if last else None
    return SnapshotLine(id_, name, "committed", at_ms - 2_600, at_ms, 128, 48_213, 3_211_004, life, last, "")


@contextmanager
def ill() -> Iterator[ControlledJob]:
    """Min time has stood for minutes, held in a segment; many fronts with long names; snapshots fail."""
    fronts = {number: f"{LONG}-{number}" for number in range(FRONTS)}
    names = {1: "previous and current version of each document, changes by word", 2: "index", 3: "(before the sinks)"}
    shape = replace(SHAPE, job=LONG, segments=names)

    def reading(number: int, name: str, second: int, tick: int) -> WorkerState:
        said = {"heartbeat": tick + 40 * number, "parked": 7 * number, "pulling": number < 9}
        return reader(f"0/{name}", number, 100 * min(second, 620), **said)

    def see(at: Seconds, second: int) -> None:
        lag_ms = 15 + max(0, second - 600) * 1000
        tick = (at.now_ms - lag_ms) // 2
        held = Holder(tick, 2, None)
        readers = [reading(number, name, second, tick) for number, name in fronts.items() if number % 5]
        said = {"dead_letters": 21, "repairs": 340, "refused": {"index": 3}}
        late = {"index": {"records": 50_000, "closed": 188}}
        writer = worker(
            "2/0", delivered=100 * min(second, 600), transactions=second, latency=_took(second), late=late, **said
        )
        reported = SnapshotsView(last="000003-0001", last_ms=2 * tick, committed_s=400.0, counts={"failed": 3})
        at.look(
            second,
            lag_ms,
            held,
            workers=[*readers, writer],
            fronts=fronts,
            troubles=[FAILED],
            snapshots=reported,
            tracker=report(held, global_min=tick, min_times={1: tick + 4, 2: tick, 3: tick}),
        )
        if second == 604:
            at.event("stalled", holder="an open ack of segment 2", lag_ms=4000)

    with _played(see, shape=shape) as served:
        _give_past(served)
        yield served


@contextmanager
def waiting() -> Iterator[ControlledJob]:
    """Two calls of services: one is well, the other one has not answered for a minute, which holds min time."""

    def see(at: Seconds, second: int) -> None:
        silent = max(0, second - LOOKS + 62)
        lag_ms = 60 + silent * 1000
        tick = (at.now_ms - lag_ms) // 2
        held = Holder(tick, 2, None)
        score = {"open": 200 if silent else 3, "waiting": 1_230 * silent, "first": tick, "reused": 40}
        address = {"open": 8, "first": tick + 7}
        asked = {
            "score": {"seconds": _took(second - silent, 40, 450), "retries": 120 + silent, "oldest_s": float(silent)},
            "address": {"seconds": _took(second, 6, 30), "failures": 7, "oldest_s": 0.01},
        }
        workers = _workers(at, second - silent, lag_ms, _took(second - silent, 60, 510))
        asking = worker("1/0", calls={"score": score, "address": address}, callers=asked, caller_restarts=0)
        now = report(held, global_min=tick, min_times={1: tick + 4, 2: tick})
        at.look(second, lag_ms, held, workers=[*workers, asking], tracker=now)

    with _played(see, shape=replace(SHAPE, job="scored-orders")) as served:
        _give_past(served)
        yield served


# -- troubles ----------------------------------------------------------------------------------------------------------

TROUBLED_S = 42
"""How long each trouble has lasted."""
MANY = 128_400


def _in_trouble(
    *troubles: Callable[[int, int], dict[str, Any]], lags: bool = False
) -> AbstractContextManager[ControlledJob]:
    """A job that was well, and has had these troubles for `TROUBLED_S`.

    Args:
        troubles: Each takes for how long it has lasted, and the newest tick, and returns fields of the moment; "gauges"
            are those of the last worker that differ, "stands" is the step that it is in.
        lags: Whether min time stands.
    """

    def see(at: Seconds, second: int) -> None:
        ill_s = max(0, second - LOOKS + TROUBLED_S)
        stood = ill_s if lags else 0
        lag_ms = 12 + 1000 * stood
        workers = _workers(at, second - stood, lag_ms, _took(second - stood))
        seen: dict[str, Any] = {}
        for trouble in troubles if ill_s else ():
            found = trouble(ill_s, at.now_ms // 2)
            gauges, stands = found.pop("gauges", {}), found.pop("stands", None)
            assert workers[-1].gauges is not None
            said = msgspec.structs.replace(workers[-1].gauges, **gauges)
            workers[-1] = msgspec.structs.replace(workers[-1], gauges=said, stands=stands or workers[-1].stands)
            seen |= found
        tick = (at.now_ms - lag_ms) // 2
        held = Holder(tick, 2, None) if stood else None
        at.look(second, lag_ms, held, workers=workers, **seen)

    sinks = {"index": (2, 4), "archive": (2, 4)}
    others = (StepShape(name="archive", word="write", level=2, after=(3,)),)
    stores = {"index": "kafka", "archive": "postgres:default"}
    named: dict[str, Any] = {
        "sinks": sinks,
        "stores": stores,
        "steps": STEPS + others,
        "dead_letters": "orders-letters",
    }
    return _played_with_past(see, replace(SHAPE, job="orders", **named))


@contextmanager
def _played_with_past(see: See, shape: JobShape) -> Iterator[ControlledJob]:
    with _played(see, shape=shape) as served:
        _give_past(served)
        yield served


def _stands(for_s: int, _: int) -> dict[str, Any]:
    return {"stands": StepStands(step="index", function="add_to_index (/srv/flows/orders.py:41)", for_s=float(for_s))}


def _dry(for_s: int, tick: int) -> dict[str, Any]:
    silent = 'PostgreSQL at db-3.example.com:5432/shop: connection to server at "10.3.1.17", port 5432 failed: '
    silent += "Connection refused; Is the server running on that host and accepting TCP/IP connections?"
    behind = SinkGauges(
        records=MANY, bytes=12 << 20, newest=tick - 500 * for_s, waiting=1_000 * for_s, waits_s=float(for_s)
    )
    other = SinkGauges(records=3 * MANY, bytes=40 << 20, newest=tick - 5)
    gauges = {"sinks": {"archive": behind, "index": other}, "stores": {"postgres:default": silent}}
    return {"gauges": gauges, "delivered_time": tick - 500 * for_s}


def _letters(for_s: int, tick: int) -> dict[str, Any]:
    why = "raised KeyError: 'currency'"
    letters = {
        "changes": LetterGauges(records=3 * for_s, tick=tick, at=f"documents-0, offset {41_000_000 + for_s}", why=why)
    }
    return {"gauges": {"letters": letters, "dead_letters": 3 * for_s}}


def _silent(for_s: int, _: int) -> dict[str, Any]:
    return {"open_transactions": {3: (39_998_120, float(for_s))}}


def _full(_: int, __: int) -> dict[str, Any]:
    failed = "since 12:00:00 UTC: snapshot 000003-0002 failed: No space left on device\n  where: /srv/lowtide/snapshots"
    return {"rooms": [Room("snapshots", "/srv/lowtide/snapshots", 3 << 20, 64 << 30)], "troubles": [failed]}


def slow_step() -> AbstractContextManager[ControlledJob]:
    """A function has not returned for a while, and min time stands."""
    return _in_trouble(_stands, lags=True)


def dry_sink() -> AbstractContextManager[ControlledJob]:
    """A table's database refuses connections; the other sink goes on."""
    return _in_trouble(_dry)


def dead_letters() -> AbstractContextManager[ControlledJob]:
    """A step gives some records to the dead letters each second."""
    return _in_trouble(_letters)


def silent_partition() -> AbstractContextManager[ControlledJob]:
    """A writer does not end its transaction."""
    return _in_trouble(_silent)


def full_disk() -> AbstractContextManager[ControlledJob]:
    """The folder of the snapshots has no room, and one has failed."""
    return _in_trouble(_full)


def five_troubles() -> AbstractContextManager[ControlledJob]:
    """All of them at once."""
    return _in_trouble(_stands, _dry, _letters, _silent, _full, lags=True)


# -- other states ------------------------------------------------------------------------------------------------------


@contextmanager
def catching_up() -> Iterator[ControlledJob]:
    """A life that has begun from a commit a minute ago, and reads three times as fast as records come."""

    def see(at: Seconds, second: int) -> None:
        lag_ms = max(20, 160_000 - 2000 * second)
        if second == 0:
            at.event("life_begun", fronts=2)
        at.look(second, lag_ms, workers=_workers(at, 3 * second, lag_ms, _took(second, 90_000, 120_000)))

    with _played(see, looks=40) as served:
        _give_past(served, commits=0)
        yield served


@contextmanager
def ended() -> Iterator[ControlledJob]:
    """A life that a function of the flow has ended; its service still answers."""
    cause = Cause(
        "flow", 'step "count": raised ValueError: no such word', "documents-0, offset 17", "correct the function"
    )

    def see(at: Seconds, second: int) -> None:
        over = second >= 50
        phase = "ended" if over else "running"
        workers = _workers(at, min(second, 50), 12, _took(second))
        at.look(second, 12 + 1000 * max(0, second - 50), workers=workers, phase=phase, cause=cause if over else None)
        if second == 50:
            at.event("life_ended", cause=str(cause))

    with _played(see, looks=60) as served:
        _give_past(served, commits=0)
        ended_ms = time.time_ns() // 1_000_000 - 10_000
        last = replace(served.lives[-1], phase="failed", ended_ms=ended_ms, cause=cause.story, way_out=cause.way_out)
        served.lives[-1] = last
        yield served


@contextmanager
def new() -> Iterator[ControlledJob]:
    """A first life that has just begun: nothing is known yet, neither figures nor commits."""

    def see(at: Seconds, second: int) -> None:
        at.served.look(
            float(second), moment(now_ms=at.now_ms, tracker=None, fronts=PARTITIONS, control=at.served.address)
        )

    with _played(see, looks=1, shape=replace(SHAPE, incarnation=1), goes_on=False) as served:
        served.lives = [
            LifeLine(1, "running", served.watch.shape.started_ms, None, False, "", "", None, "a start by hand")
        ]
        yield served
