"""Windows of a job on Spark: throughput of a log beside `scan`, and the delay of results once a window closes.

First one log is worked off twice, by a job that counts with `scan` and by one that counts in windows. Then a job gets
records at an even rate; each of its windows brings a result per key, all due at one tick. Meanwhile a second branch of
the same job passes on a few records, which show the effect of the closing.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np

from lowtide import Flow, kafka, raw, tumbling
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.driver.job import Job
from lowtide.flow.schema.raw_record import Raw
from lowtide_bench.arrivals import percentiles
from lowtide_bench.child import Child, ChildFailed
from lowtide_bench.counted import SPREAD, count
from lowtide_bench.ground import PARTITIONS, Ground, described, ground, modes
from lowtide_bench.record import Int64s
from lowtide_bench.schedule import NS
from lowtide_bench.session import READY_LIMIT_S, SAVE_LIMIT_S, Say
from lowtide_bench.windowed import BESIDE, BESIDE_PER_S, SINK, result_of

CLOSING_MS = 1_000
"""Time after a window's end in which the other branch's records count as sent while it closed."""
QUIET_AFTER_MS = 5_000
"""From this time after it on they count as sent while nothing closed, until the next end."""
AGE_MS = 60_000
"""Age of the backlog beyond a window's size: all its windows close once it is read."""
SILENCE_LIMIT_S = 60.0
CHILD = "lowtide_bench.windowed"


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Settings of the measurement.

    Attributes:
        records: Records of the backlog; their timestamps are as far apart as at `rate`.
        keys: Number of keys.
        size: Size of a window.
        rate: Records per second in the second part.
        windows: Whole windows that close in the second part.
    """

    records: int
    keys: int
    size: timedelta
    rate: int
    windows: int

    @property
    def size_ms(self) -> int:
        """A window's size in ms."""
        return self.size // timedelta(milliseconds=1)


def counted(seen: int, _: Raw) -> int:
    """Add one: the user's function."""
    return seen + 1


def windowed_count(name: str, source: str, sink: str, size: timedelta) -> Flow:
    """Return a flow that counts the records of each key in windows of log time."""
    flow = Flow(name)
    windows = flow.read("source", kafka(source, raw())).key_by("key").window("counts", tumbling(size))
    windows.fold(counted, 0, result_of).write("sink", kafka(sink, raw()))
    return flow


def running_count(name: str, source: str, sink: str) -> Flow:
    """Return the flow that counts them without windows, a message for each record."""
    flow = Flow(name)
    flow.read("source", kafka(source, raw())).key_by("key").scan("count", count, 0).write("sink", kafka(sink, raw()))
    return flow


def run(asked: Asked, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench windows --json` prints.

    Args:
        asked: Settings of the measurement.
        conf: As in `lowtide_bench.run.run`.
        say: Called with each progress message.

    Raises:
        LowtideError: the run failed.
    """
    with described() as surroundings, ground(conf, "create", say) as here:
        result = {"backlog": _work_off(here, asked, say)} if asked.records else {}
        if asked.windows:
            result["closing"] = _close(here, asked, say)
    figures = {"keys": asked.keys, "size_s": asked.size.total_seconds(), "rate": asked.rate, **modes(conf, "create")}
    return {**figures, **result, **surroundings}


def _work_off(here: Ground, asked: Asked, say: Say) -> dict[str, Any]:
    """Work off one log by two jobs; return records per second from the jobs' readiness to the last message."""
    span_ms = round(1_000 * asked.records / asked.rate)
    last_ms = time.time_ns() // 1_000_000 - AGE_MS - asked.size_ms
    topics = Topics(here.conf.kafka)
    topics.create("log", partitions=PARTITIONS)
    stamps = {"first_ms": last_ms - span_ms, "last_ms": last_ms}
    say(f"writing a log of {asked.records} records")
    with _child(here, "send", source="log", records=asked.records, keys=asked.keys, **stamps) as sender:
        _expect(sender, "sent", 60.0 + asked.records / 5_000)
    found: dict[str, Any] = {"records": asked.records}
    flows: dict[str, Callable[[str], Flow]] = {
        "scan": lambda sink: running_count("scanning", "log", sink),
        "windows": lambda sink: windowed_count("windowing", "log", sink, asked.size),
    }
    for name, flow in flows.items():
        topics.create(f"{name}-out", partitions=PARTITIONS)
        due = asked.records if name == "scan" else _windows_of(asked, **stamps)
        with _child(here, "read", sink=f"{name}-out", beside="", results=name == "windows", file=_file(here)) as reader:
            reader.expect("ready", READY_LIMIT_S)
            with _job(here, flow(f"{name}-out"), say):
                began = time.time_ns()
                rows = _all(here, reader, asked, due, say)
        if name == "windows":
            _check(rows, asked.records)
        seconds = (int(rows[4].max()) - began) / NS
        found[name] = {"messages": rows.shape[1], "seconds": round(seconds, 2)}
        found[name]["records_per_s"] = round(asked.records / seconds)
        say(f"{name}: {found[name]['records_per_s']} records/s")
    found["windows_to_scan"] = round(found["windows"]["records_per_s"] / found["scan"]["records_per_s"], 3)
    return found


def _windows_of(asked: Asked, first_ms: int, last_ms: int) -> int:
    """Return the number of windows in the log, over all keys."""
    numbers = np.arange(asked.records)
    stamps = first_ms + numbers * (last_ms - first_ms) // max(1, asked.records - 1)
    keys = numbers * SPREAD % asked.keys
    return len(np.unique(stamps // asked.size_ms * asked.keys + keys))


def _all(here: Ground, reader: Child, asked: Asked, due: int, say: Say) -> Int64s:
    """Wait until so many messages are there, and a little for more."""
    heard, changed_at = 0, time.monotonic()
    while heard < due:
        line = reader.hear(1.0)
        counts = 0 if line is None else line.get("counts", [0])[0]
        if counts > heard:
            heard, changed_at = counts, time.monotonic()
            say(f"{heard} of {due} messages received")
        if time.monotonic() - changed_at > SILENCE_LIMIT_S + asked.records / 5_000:
            raise ChildFailed(f"{heard} of {due} messages came, then none", way_out="see the job's log")
    time.sleep(1.0)
    return _saved(here, reader)


def _close(here: Ground, asked: Asked, say: Say) -> dict[str, Any]:
    """Records at an even rate, whole windows of them, and what becomes of their results and of the other branch."""
    topics = Topics(here.conf.kafka)
    for topic in ("live", "results", "beside-source", "beside"):
        topics.create(topic, partitions=PARTITIONS)
    flow = windowed_count("closing", "live", "results", asked.size)
    beside = flow.read("beside", kafka("beside-source", raw()))
    beside.key_by("key").write("passed", kafka("beside", raw()))
    file = _file(here)
    with (
        _child(here, "read", sink="results", beside="beside", results=True, file=file) as reader,
        _job(here, flow, say),
    ):
        reader.expect("ready", READY_LIMIT_S)
        start = time.time_ns() + NS
        # The first window is not whole, and warms everything up; after the last one there is time to see its results.
        first = (start // 1_000_000 // asked.size_ms + 2) * asked.size_ms
        last = first + asked.windows * asked.size_ms
        until = last * 1_000_000 + 2 * QUIET_AFTER_MS * 1_000_000
        live = {"rate": asked.rate, "keys": asked.keys, "start_ns": start, "until_ns": until}
        with _child(here, "send", source="live", beside="beside-source", **live) as sender:
            say(f"{asked.rate} records/s for {(until - start) / NS:.0f} s")
            _expect(sender, "sent", (until - start) / NS + 60.0)
        time.sleep(2.0)
        rows = _saved(here, reader)
    results = rows[1:, (rows[0] == SINK) & (rows[3] > first * 1_000_000) & (rows[3] <= last * 1_000_000)]
    passed = rows[1:, (rows[0] == BESIDE) & (rows[3] > first * 1_000_000) & (rows[3] <= until - NS)]
    latency = (passed[3] - passed[2]) / 1e6
    since = passed[2] // 1_000_000 % asked.size_ms
    quiet, closing = latency[since >= QUIET_AFTER_MS], latency[since < CLOSING_MS]
    ends = [_closed(results[:, results[2] == end]) for end in np.unique(results[2])]
    return {
        "windows": ends,
        "beside_per_s": BESIDE_PER_S,
        "beside_quiet_ms": _spread(quiet),
        "beside_closing_ms": _spread(closing),
        "beside_p99_moved_ms": round(percentiles(closing, (99,))[0] - percentiles(quiet, (99,))[0], 1),
    }


def _closed(rows: Int64s) -> dict[str, Any]:
    """One window: how many results, how long after its end they came, and how long from the first to the last."""
    late = (rows[3] - rows[2]) / 1e6
    return {
        "results": rows.shape[1],
        "different": len(np.unique(rows[0])),
        "records": int(rows[1].sum()),
        "first_ms": round(float(late.min()), 1),
        **_spread(late),
        "last_ms": round(float(late.max()), 1),
    }


def _spread(values: Any) -> dict[str, float]:
    p50, p99 = percentiles(values, (50, 99))
    return {"p50_ms": round(p50, 1), "p99_ms": round(p99, 1)}


def _check(rows: Int64s, records: int) -> None:
    """Raise what is wrong with the counts of the log that was worked off."""
    different = len(np.unique(rows[[1, 3]], axis=1)[0])
    if different != rows.shape[1] or int(rows[2].sum()) != records:
        raise ChildFailed(
            f"{rows.shape[1]} results of {different} windows count {int(rows[2].sum())} records of {records}",
            way_out="report it: this must not happen",
        )


@contextmanager
def _job(here: Ground, flow: Flow, say: Say) -> Iterator[None]:
    job = Job.start(flow, here.conf, say)
    try:
        yield
    finally:
        job.stop()


@contextmanager
def _child(here: Ground, do: str, **task: Any) -> Iterator[Child]:
    child = Child(CHILD, {"do": do, "kafka": here.conf.kafka.bootstrap_servers, "partitions": PARTITIONS, **task})
    try:
        yield child
    finally:
        child.end()


def _expect(child: Child, word: str, limit_s: float) -> None:
    line = child.expect(word, limit_s)
    if line.get("failed"):
        raise ChildFailed(f"Kafka did not take {line['failed']} records", way_out="lower --rate or --records")


def _file(here: Ground) -> str:
    return str(here.folder / "windows.npy")


def _saved(here: Ground, reader: Child) -> Int64s:
    reader.send({"save": True})
    reader.expect("saved", SAVE_LIMIT_S)
    rows: Int64s = np.load(_file(here))
    return rows
