"""Runs of the flow under each mechanism, and their figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import quantiles
from typing import Any

from msgspec import convert, json, to_builtins

from lowtide_bench.child import Child
from lowtide_bench.core import Say, versions
from lowtide_bench.machine import load, machine
from lowtide_bench.mechanisms.asked import MECHANISMS, NOTHING, TRACKER, Asked, Said, Setting, Task
from lowtide_bench.processes import busy_s, cpu_s
from lowtide_bench.tracking.script import START
from lowtide_bench.tracking.served import Served

CONNECT_LIMIT_S = 60.0
ANSWER_LIMIT_S = 120.0


def run(asked: Asked, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench tracking --json` prints."""
    where = machine()
    known: dict[tuple[str, Setting], dict[str, Any]] = {}

    def figures(mechanism: str, setting: Setting) -> dict[str, Any]:
        # What a mechanism does not look at makes no other run.
        if mechanism == NOTHING:
            setting = replace(setting, period=asked.usual.period)
        if mechanism != TRACKER:
            setting = replace(setting, flush=asked.usual.flush)
        place = (mechanism, setting)
        if place not in known:
            say(f"{mechanism}: {setting.nodes} nodes, {setting.depth} shuffles, {setting.rate:,} records/s")
            known[place] = _measured(mechanism, setting, asked.seconds)
        return known[place]

    def sweep(name: str, values: Sequence[int]) -> list[dict[str, Any]]:
        settings = {value: replace(asked.usual, **{name: value}) for value in values}
        return [{name: value, **_compared(figures, setting)} for value, setting in settings.items()]

    return {
        "by_nodes": sweep("nodes", asked.nodes),
        "by_depth": sweep("depth", asked.depths),
        "by_period": sweep("period", asked.periods),
        "by_rate": sweep("rate", asked.rates),
        "by_flush": sweep("flush", asked.flushes),
        "asked": json.decode(json.encode(asked)),
        "versions": versions(),
        "machine": {**where, "load_after": load()},
    }


def _compared(figures: Callable[[str, Setting], dict[str, Any]], setting: Setting) -> dict[str, Any]:
    """Return the figures of each mechanism, with what it takes above the flow alone."""
    found = {mechanism: figures(mechanism, setting) for mechanism in MECHANISMS}
    alone = found[NOTHING]["cpu_us_per_record"]
    return {
        mechanism: each | {"added_us_per_record": round(each["cpu_us_per_record"] - alone, 2)}
        for mechanism, each in found.items()
    }


def _measured(mechanism: str, setting: Setting, seconds: float) -> dict[str, Any]:
    """Run the flow once, and return what it took."""
    task = Task(mechanism=mechanism, setting=setting, seconds=seconds)
    with _tracker(task) as (address, secret, tracker_cpu_s):
        given = to_builtins(task) | {"address": address, "secret": secret}
        child = Child("lowtide_bench.mechanisms.nodes", given)
        try:
            child.expect("connected", CONNECT_LIMIT_S)
            at, busy, tracker, nodes_cpu = time.monotonic(), busy_s(), tracker_cpu_s(), cpu_s(child.pid)
            child.send({"start": True})
            said = convert(child.expect("records", task.seconds + ANSWER_LIMIT_S), Said)
            tracker = tracker_cpu_s() - tracker
            others = busy_s() - busy - tracker - (cpu_s(child.pid) - nodes_cpu)
            others_cores = max(0.0, others) / (time.monotonic() - at)
        finally:
            child.end()
    return _figures(said, tracker) | {"others_cores": round(others_cores, 2)}


def _figures(said: Said, tracker_cpu_s: float) -> dict[str, Any]:
    delays = quantiles(said.delays_ms, n=100) if len(said.delays_ms) > 1 else None
    return {
        "records": said.records,
        "messages": said.messages,
        "messages_per_s": round(said.messages / said.seconds, 1),
        "bytes_per_s": round(said.bytes / said.seconds),
        "bytes_per_record": round(said.bytes / said.records, 2),
        "frames_per_s": round(said.frames / said.seconds, 1),
        "frame_bytes_per_s": round(said.frame_bytes / said.seconds),
        "cpu_us_per_record": round(1e6 * (said.cpu_s + tracker_cpu_s) / said.records, 2),
        "tracker_us_per_record": round(1e6 * tracker_cpu_s / said.records, 2),
        "delay_p50_ms": None if delays is None else round(delays[49], 2),
        "delay_p99_ms": None if delays is None else round(delays[98], 2),
        "behind_p99_ms": round(quantiles(said.behind_ms, n=100)[98], 2),
    }


@contextmanager
def _tracker(task: Task) -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield address and secret of the tracker's process, and its CPU so far; without one if it is not asked."""
    if task.mechanism != TRACKER:
        yield "", "", lambda: 0.0
        return
    with Served(task.setting.depth, dict.fromkeys(range(task.setting.nodes), START)) as served:
        yield served.address, served.secret.hex(), lambda: served.cpu_s
