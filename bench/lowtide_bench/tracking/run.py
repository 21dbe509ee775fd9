"""Runs of the tracker's process with simulated workers, and their figures."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from statistics import quantiles
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from lowtide.status.tracker_report import TrackerReport
from lowtide_bench.child import Child
from lowtide_bench.core import Say, versions
from lowtide_bench.machine import load, machine
from lowtide_bench.processes import busy_s, cpu_s
from lowtide_bench.tracking.asked import Asked
from lowtide_bench.tracking.counted import by_records, by_relays, by_shards
from lowtide_bench.tracking.named import by_early_keys
from lowtide_bench.tracking.program import Swarm, SwarmSaid
from lowtide_bench.tracking.script import fronts
from lowtide_bench.tracking.served import Served
from lowtide_bench.tracking.sharded import served

CONNECT_LIMIT_S = 120.0
ANSWER_LIMIT_S = 120.0
WINDOW_ENTRIES = 100_000
"""Acks that may be under way at full speed: some tenths of a second of the tracker's work."""
LEAST_WINDOW = 4
COUNTED_ROUNDS = 20
COUNTED_S = 2
COUNTED_TURNS = 500
KEYED_RATES = (1_000, 10_000)
"""Records a second where notices with early keys are counted."""
AMONG = 50
"""Workers of one relay."""
RELAY_ENTRIES = 2
"""Acks of a flush there, as of one every 2 ms."""


def run(asked: Asked, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench tracker --json` prints."""
    where = machine()
    many, depth, entries, seconds = asked.capacity_workers, asked.depth, asked.entries, asked.seconds
    say(f"capacity: {many} workers flush as fast as the tracker takes it")
    full = _flooded(many, depth, entries, seconds)
    say("advances: two workers, every flush of the one lets min time move")
    advances = _flooded(2, depth, entries, seconds)
    say(f"latency: {many} workers at {asked.rate:g} flushes/s each")
    notified = _paced(many, depth, entries, seconds, asked.rate)
    by_workers = []
    for count in asked.workers:
        say(f"traffic: {count} workers")
        by_workers.append({"workers": count} | _paced(count, depth, entries, seconds, asked.traffic_rate))
    by_depths = []
    for segments in asked.depths:
        say(f"traffic: {segments} segments")
        by_depths.append({"depth": segments} | _paced(many, segments, entries, seconds, asked.traffic_rate))
    say("early keys: notices, counted")
    keyed = by_early_keys(asked.keyed, KEYED_RATES, COUNTED_TURNS)
    say("shards: over sockets")
    pace = Swarm(workers=many, depth=depth, entries=entries, seconds=seconds, rate=asked.traffic_rate)
    by_shards_served = served(tuple(asked.shards), pace, CONNECT_LIMIT_S, ANSWER_LIMIT_S)
    say("traffic: by records, and by shards")
    asked_of = {field.name: getattr(asked, field.name) for field in fields(Asked)}
    return {
        "acks_per_s": full["acks_per_s"],
        "advances_per_s": advances["rounds_per_s"],
        "notify_p50_ms": notified["notify_p50_ms"],
        "notify_p99_ms": notified["notify_p99_ms"],
        "messages_per_s": notified["messages_per_s"],
        "capacity": full,
        "advances": advances,
        "latency": notified,
        "by_workers": by_workers,
        "by_depth": by_depths,
        "by_records": by_records(asked.records, COUNTED_S),
        "by_shards": by_shards(asked.shards, workers=many, depth=depth, entries=entries, rounds=COUNTED_ROUNDS),
        "by_shards_served": by_shards_served,
        "by_relays": by_relays(asked.workers, among=AMONG, depth=depth, entries=RELAY_ENTRIES, rounds=COUNTED_ROUNDS),
        "by_early_keys": keyed,
        "asked": {name: list(value) if isinstance(value, tuple) else value for name, value in asked_of.items()},
        "versions": versions(),
        "machine": {**where, "load_after": load()},
    }


@dataclass(frozen=True, slots=True)
class _Look:
    """Totals of the tracker's process so far."""

    at_s: float
    cpu_s: float
    workers_cpu_s: float
    busy_s: float
    """Of all processes of the machine."""
    report: TrackerReport

    @classmethod
    def at_next_report(cls, served: Served, workers: Child) -> _Look:
        report = served.report()
        return cls(time.monotonic(), served.cpu_s, cpu_s(workers.pid), busy_s(), report)


def _flooded(workers: int, depth: int, entries: int, seconds: float) -> dict[str, Any]:
    """Measure at full speed: as many flushes as the tracker takes, or as one process of simulated workers makes."""
    window = max(LEAST_WINDOW, WINDOW_ENTRIES // (workers * entries))
    swarm = Swarm(workers=workers, depth=depth, entries=entries, seconds=seconds, window=window)
    said, figures = _measured(swarm)
    return {"workers": workers, "rounds_per_s": round(said.rounds / said.seconds, 1), **figures}


def _paced(workers: int, depth: int, entries: int, seconds: float, rate: float) -> dict[str, Any]:
    """Measure traffic and latency at a pace."""
    said, figures = _measured(Swarm(workers=workers, depth=depth, entries=entries, seconds=seconds, rate=rate))
    arrived, read = quantiles(said.arrived_ms, n=100), quantiles(said.read_ms, n=100)
    return {
        "rate": rate,
        "notify_p50_ms": round(arrived[49], 3),
        "notify_p99_ms": round(arrived[98], 3),
        "notify_max_ms": round(max(said.arrived_ms), 3),
        "notify_read_p50_ms": round(read[49], 3),
        "notify_read_p99_ms": round(read[98], 3),
        **figures,
    }


def _measured(swarm: Swarm) -> tuple[SwarmSaid, dict[str, Any]]:
    """Run a tracker and a process of simulated workers; return the latter's result, and the tracker's work/s."""
    with Served(swarm.depth, fronts(swarm.workers)) as served:
        asked = replace(swarm, address=served.address, secret=served.secret.hex())
        child = Child("lowtide_bench.tracking.swarm", to_builtins(asked))
        try:
            child.expect("connected", CONNECT_LIMIT_S)
            began = _Look.at_next_report(served, child)
            child.send({"start": True})
            said = convert(child.expect("flushes", swarm.seconds + ANSWER_LIMIT_S), SwarmSaid)
            last = _Look.at_next_report(served, child)
            # The report may have been under way when the last flush came.
            while last.report.traffic.flushes - began.report.traffic.flushes < said.flushes:
                last = _Look.at_next_report(served, child)
        finally:
            child.end()
    return said, _difference(began, last, said.seconds)


def _difference(began: _Look, last: _Look, seconds: float) -> dict[str, Any]:
    """Return the tracker's work per second between two looks; CPU is that of all its work, reports included."""
    before, after = began.report.traffic, last.report.traffic
    flushes, cpu = after.flushes - before.flushes, last.cpu_s - began.cpu_s
    others = last.busy_s - began.busy_s - cpu - (last.workers_cpu_s - began.workers_cpu_s)
    names = ("messages_in", "messages_out", "bytes_in", "bytes_out", "flushes", "acks", "notices")
    per_s = {f"{name}_per_s": round((getattr(after, name) - getattr(before, name)) / seconds) for name in names}
    return {
        **per_s,
        "messages_per_s": per_s["messages_in_per_s"] + per_s["messages_out_per_s"],
        "bytes_per_s": per_s["bytes_in_per_s"] + per_s["bytes_out_per_s"],
        "cpu_share": round(cpu / seconds, 3),
        "cpu_us_per_flush": round(cpu / flushes * 1e6, 1),
        "acks_per_cpu_s": round((after.acks - before.acks) / cpu),
        "others_cores": round(max(0.0, others) / (last.at_s - began.at_s), 2),
    }
