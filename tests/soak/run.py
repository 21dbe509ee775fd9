"""One soak: load and kills for so many minutes, an end, the verdict of chaos, and what has grown."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path

from tests.chaos.processes import of_program
from tests.chaos.run import READY_WITHIN_S, Run
from tests.chaos.schedule import Fault
from tests.chaos.stage import Play, Stuck
from tests.chaos.sweeper import damages
from tests.chaos.verdict import judged
from tests.judging import before
from tests.shop import now_ms

from lowtide.local.oracle import read_output
from lowtide.process.interpreter import without_collections

from .flow import SOURCES
from .load import Load
from .memory import Grown, Sampler, grown, table, write_series

VICTIMS = ("worker", "service", "driver")
SETTLED_S = 300.0
"""After so long a job has come to what it needs, with one kill in the midst of it: a worker that has caught up after a
recovery takes more memory than one that never had to. A short soak gives it a third of its time."""
EVERY_S = 2.0
WITHIN_S = 60.0
"""The length of the look then, and in the end; in a short soak a tenth of its time."""
DRAINED_S = 20.0
"""Log time goes on for so long without a click: pauses are noticed and visits close."""
DELIVERED_WITHIN_S = 600.0

Say = Callable[[str], None]


class Soak(Run):
    """See `Run`; `grown` says how each role's memory has changed.

    Args:
        minutes: How long the load lasts.
        kills: How many processes are killed meanwhile: workers, service and driver in turn.
        per_s: Clicks a second.
        folder: Where everything lies.
        say: Called with what happens.
        progress: Called with the state, a few times a second.
    """

    def __init__(self, minutes: float, kills: int, per_s: int, folder: Path, *, say: Say, progress: Say) -> None:
        self._lasts_s = 60 * minutes
        self._settled_s = min(SETTLED_S, self._lasts_s / 3)
        self._seen_s = min(WITHIN_S, self._lasts_s / 10)
        self._per_s, self._folder = per_s, folder
        victims = islice(cycle(VICTIMS), kills)
        faults = [Fault(f"kill-{victim}", victim, which=0.5 * (number % 2)) for number, victim in enumerate(victims)]
        settings = {"snapshots.max_commit_age_s": 10.0, "job.restarts_within_s": 60.0}
        play = Play("soak", SOURCES, "", "tests.soak.flow:flow", settings)
        super().__init__(faults, folder, say=say, progress=progress, play=play)
        self.grown: list[Grown] = []
        self.written = 0
        self._began = self._ended = self._until_ms = 0.0
        self._sampler = Sampler(self._processes, self._spent, EVERY_S)

    def line(self) -> str:
        """The last line."""
        roles = {
            each.role: {
                "settled_mb": round(each.settled / 1e6, 1),
                "end_mb": round(each.end / 1e6, 1),
                "highest_mb": round(each.most / 1e6, 1),
                "grown": round(each.share - 1, 3),
            }
            for each in self.grown
        }
        reported = {
            "minutes": round(self._lasts_s / 60, 1),
            "written": self.written,
            "roles": roles,
            "right": self.right,
        }
        return json.dumps(reported | json.loads(self.result.line()))

    @property
    def right(self) -> bool:
        """True if the output is right and nothing has grown."""
        return self.result.right and bool(self.grown) and all(each.right for each in self.grown)

    def _spent(self) -> float:
        return time.monotonic() - self._began

    def _processes(self) -> Mapping[str, Sequence[int]] | None:
        """The job's processes while it runs."""
        state, program = self._stage.state(), self._stage.program
        running = state is not None and state.phase == "running"
        return of_program(program.process.pid) if running and program is not None else None

    def _under_load(self) -> None:
        self._await_start()
        self._began = time.monotonic()
        moments = kill_moments(len(self._faults), self._settled_s, self._seen_s, self._lasts_s)
        with Load(self._stage.shop, self._per_s) as load, self._sampler:
            self._settle(within_s=READY_WITHIN_S)
            for number, (fault, moment_s) in enumerate(zip(self._faults, moments, strict=True), 1):
                self._next = f"{number}/{len(self._faults)} {fault} at {moment_s / 60:.1f} min"
                self._wait(moment_s - self._spent())
                self._fault(number, fault)
            self._next = "the end"
            self._wait(self._lasts_s - self._spent())
            self._ended = self._spent()
        self.written = load.written
        write_series(self._sampler.samples, self._folder / "memory.csv")
        self.grown = grown(self._sampler.samples, self._settled_s, self._ended, self._seen_s)
        self._say(table(self.grown, self._settled_s))
        for each in self.grown:
            if not each.right:
                self._fail(f"{each.role} has grown by {each.share - 1:.0%}")

    def _drain(self) -> None:
        """Wait until all that lies before a moment after the last click is delivered."""
        self._until_ms = now_ms() + 1_000 * DRAINED_S
        deadline = time.monotonic() + DELIVERED_WITHIN_S
        while True:
            self._stage.revive()
            view = self._shown()
            if view is not None and (view.delivered_time_ms or 0) > self._until_ms:
                return
            if time.monotonic() > deadline:
                raise Stuck(f"not all is delivered after {DELIVERED_WITHIN_S:g} s: {view}")
            self._wait(1.0)

    def _judge(self) -> None:
        shop, until_ms = self._stage.shop, int(self._until_ms)
        self._say(f"comparing with a run of {self.written:,} clicks here and now")
        with without_collections():
            due = before(until_ms, shop.judge.expected()[0]["out"])
            came = before(until_ms, read_output(shop.conf.kafka, shop.sink))
            verdict = judged(self.result, due, came, Counter(), Counter())
        self._say(f"{verdict}; {self._stage.starts} programs started")
        if not verdict.expected:
            self._fail("nothing was due")
        for damaged in damages(shop.conf, shop.name):
            self._fail(f"a damaged snapshot: {damaged}")


def kill_moments(count: int, settled_s: float, seen_s: float, lasts_s: float) -> list[float]:
    """The times of the kills: the first while the job settles, the others evenly after the first look."""
    first_s = settled_s + seen_s
    step_s = (lasts_s - first_s) / max(1, count)
    return [settled_s / 3, *(first_s + number * step_s for number in range(count - 1))][:count]
