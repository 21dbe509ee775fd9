"""The process of a host that is measured: `python -m lowtide_bench.state.process`, a child of the benchmark.

Its task names what it does: `host` fills, runs and saves; `recovery` begins from what was saved, and counts what of it
is lost.
"""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lowtide.process.interpreter import set_up_collector
from lowtide_bench.child import Parent
from lowtide_bench.session import Say
from lowtide_bench.state.host import Host, disk_setting
from lowtide_bench.state.traffic import SPREADS, Draw, Spread, counts_of, number_of, padding_of, plan_of
from lowtide_bench.stored import STEP, Padded
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.stores import StoreSetting

CHUNK_S = 1.0
"""Messages are made for about so long ahead, in which nothing is timed."""
SEEDS = {spread: number for number, spread in enumerate(SPREADS, 1)}
MOST_WARMUPS = 10
"""So many times a warm-up may last until memory is full."""
PACED_SEED, MEANWHILE_SEED = 11, 12


def main() -> None:
    """Do the task."""
    parent = Parent()
    task = parent.task
    if task["cgroup"]:
        (Path(task["cgroup"]) / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    set_up_collector()

    def say(what: str) -> None:
        parent.say(progress=what)

    parent.say(result={"host": _host, "recovery": _recovery}[task["does"]](task, say))
    parent.wait()


def _begun(task: dict[str, Any], **others: Any) -> Host:
    folder = Path(task["folder"])
    sizes = task["memory_mb"], task["disk_max_gb"], task["copies_max_gb"]
    disk = disk_setting(folder / "state", *sizes) if task["on_disk"] else None
    return Host(plan_of(task["state_bytes"]), disk, StoreSetting(str(folder / "snapshots")), **others)


# -- a host that runs ----------------------------------------------------------------------------------------------


def _host(task: dict[str, Any], say: Say) -> dict[str, Any]:
    host = _begun(task)
    try:
        return _Run(task, host, say).all()
    finally:
        host.close()


class _Run:
    """A host's loads and snapshot, one after the other."""

    def __init__(self, task: dict[str, Any], host: Host, say: Say) -> None:
        self._task = task
        self._host = host
        self._say = say
        self._drawn: list[Draw] = []
        self._kinds: list[tuple[Spread, int]] = []
        self._out = 0

    def all(self) -> dict[str, Any]:
        """Return the figures."""
        task, host = self._task, self._host
        began = time.perf_counter()
        host.fill(task["keys"], task["state_bytes"], self._say)
        result: dict[str, Any] = {"keys": task["keys"], "fill_s": time.perf_counter() - began}
        for spread in SPREADS:
            result[spread] = self._fast(spread)
            if spread == "zipf":
                result["paced"] = self._paced()
        if task["saves"]:
            result["snapshot"] = self._saved()
        sent = sum(draw.taken for draw in self._drawn)
        result["records"] = {"sent": sent, "out": self._out}
        result["gauges"] = None if host.disk is None else msgspec.structs.asdict(host.disk.gauges())
        return result

    def _draw(self, spread: Spread, seed: int) -> Draw:
        self._drawn.append(Draw(self._task["keys"], spread, seed))
        self._kinds.append((spread, seed))
        return self._drawn[-1]

    def _fast(self, spread: Spread) -> dict[str, Any]:
        """Let records go through as fast as they do; messages are made beside, which is not timed."""
        task, host = self._task, self._host
        draw = self._draw(spread, SEEDS[spread])
        for _ in range(MOST_WARMUPS):
            self._for(draw, task["warmup_s"], f"{spread}, warming up")
            if host.disk is None or host.disk.shelves.evicted:
                break  # Memory is full: from now on what comes in is written out.
        hits, misses = self._looked()
        turns = self._for(draw, task["seconds"], f"{spread}")
        took, records = sum(turns), len(turns) * task["batch"]
        later_hits, later_misses = self._looked()
        looked = later_hits - hits + later_misses - misses
        return {
            "records_per_s": records / took,
            "records": records,
            "hit_share": (later_hits - hits) / looked if looked else None,
            "batch_p99_ms": float(np.percentile(turns, 99)) * 1e3,
            "used_bytes": None if host.disk is None else host.disk.gauges().bytes,
        }

    def _for(self, draw: Draw, seconds: float, what: str) -> list[float]:
        """Return the seconds that each message took, for some seconds of these."""
        turns: list[float] = []
        size, took, at_once = self._task["batch"], 0.0, 10
        while took < seconds:
            self._say(f"{what}: {took:.0f} of {seconds:g} s, {len(turns) * size / took if took else 0:,.0f} records/s")
            made = [self._host.packer.message(draw.take(size)) for _ in range(at_once)]
            before = took
            for message in made:
                began = time.perf_counter()
                self._out += self._host.turn(message)
                turns.append(time.perf_counter() - began)
                took += turns[-1]
            at_once = max(1, min(2_000, round(at_once * CHUNK_S / max(took - before, 1e-6))))
        return turns

    def _looked(self) -> tuple[int, int]:
        disk = self._host.disk
        return (0, 0) if disk is None else (disk.shelves.hits, disk.shelves.misses)

    def _paced(self) -> dict[str, Any]:
        """Send popular keys at a pace; return how late records were done."""
        pace = _Pace(self._host, self._draw("zipf", PACED_SEED), self._task["rate"])
        while (passed := pace.passed_s) < self._task["seconds"]:
            self._say(f"{self._task['rate']:,} records/s: {passed:.0f} of {self._task['seconds']:g} s")
            pace.turn()
        self._out += pace.out
        return pace.figures()

    def _saved(self) -> dict[str, Any]:
        """Take a snapshot while popular keys come at a pace."""
        before = [draw.taken for draw in self._drawn]
        pace = _Pace(self._host, self._draw("zipf", MEANWHILE_SEED), self._task["rate"])
        saved = self._host.save(pace.turn, self._say)
        self._out += pace.out
        # The snapshot has what came before its T: of the records before it maybe not the last few.
        drawn, left = [], saved.records
        for (spread, seed), taken in zip(self._kinds, [*before, pace.draw.taken], strict=True):
            drawn.append((spread, seed, min(taken, left)))
            left -= drawn[-1][2]
        return {
            "tick": saved.tick,
            "parts": [dataclasses.asdict(part) for part in saved.parts],
            "bytes": sum(part.bytes for part in saved.parts),
            "took_s": saved.took_s,
            "pinned_ms": saved.pinned_ms,
            "meanwhile": pace.figures(),
            "drawn": drawn,
        }


class _Pace:
    """Sends records at a pace: what is due goes as one message, as when a worker comes back to its source."""

    def __init__(self, host: Host, draw: Draw, rate: int) -> None:
        self._host = host
        self.draw = draw
        self._rate = rate
        self._began = time.perf_counter()
        self._late: list[float] = []
        self.out = 0

    @property
    def passed_s(self) -> float:
        """The time since it began."""
        return time.perf_counter() - self._began

    def turn(self) -> None:
        """Send what is due, once something is."""
        sent = self.draw.taken
        due = int(self.passed_s * self._rate) - sent
        if due <= 0:
            time.sleep(max(0.0, (sent + 1) / self._rate - self.passed_s))
            return
        self.out += self._host.turn(self._host.packer.message(self.draw.take(due)))
        done = self.passed_s
        self._late += [done - (number + 1) / self._rate for number in range(sent, sent + due)]

    def figures(self) -> dict[str, Any]:
        """Return how late records were done, in ms."""
        late = np.array(self._late) * 1e3
        p50, p99 = np.percentile(late, (50, 99)).tolist() if len(late) else (None, None)
        return {"records": len(late), "p50_ms": p50, "p99_ms": p99, "max_ms": float(late.max()) if len(late) else None}


# -- a host that begins from a snapshot ----------------------------------------------------------------------------


def _recovery(task: dict[str, Any], say: Say) -> dict[str, Any]:
    saved = task["snapshot"]
    parts = [Part(**part) for part in saved["parts"]]
    say("beginning from the snapshot")
    began = time.perf_counter()
    host = _begun(task, restored=parts, start=saved["tick"])
    took_s = time.perf_counter() - began
    try:
        lost = _lost(host, task, say)
    finally:
        host.close()
    return {"took_s": took_s, "rows": sum(part.rows for part in parts), "lost": lost}


def _lost(host: Host, task: dict[str, Any], say: Say) -> int:
    """Return how many keys have not the state that their records come to."""
    keys, size, tick = task["keys"], task["state_bytes"], task["snapshot"]["tick"]
    counts = counts_of(keys, [tuple(each) for each in task["snapshot"]["drawn"]])
    right = np.zeros(keys, np.bool_)
    program = host.core.program
    here = program.capture(tick, whole=False)[STEP]
    twice = 0
    for unit in range(host.plan.units):
        say(f"comparing all states: {unit} of {host.plan.units} hash units")
        for key, state in here.get(unit, []) + program.away(STEP, unit, tick):
            number = number_of(key)
            twice += int(right[number])
            expected = int(counts[number])
            right[number] = state == (Padded(expected, padding_of(number, size)) if size else expected)
    return int(keys - np.count_nonzero(right)) + twice


if __name__ == "__main__":
    main()
