"""Measures systems one after another on one ground: highest rate, latency, and the cost of a SIGKILL."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lowtide.conf import Conf
from lowtide.errors import LowtideError
from lowtide_bench.arrivals import latency_of_due_ms, null_unless_finite
from lowtide_bench.companion import Companion
from lowtide_bench.flows import COUNTING
from lowtide_bench.ground import Ground, described, ground
from lowtide_bench.load import Load, Rise
from lowtide_bench.outages import outage
from lowtide_bench.pacer import Pacer
from lowtide_bench.peers import Extent
from lowtide_bench.peers.judge import Verdict, judge
from lowtide_bench.peers.program import Kind, Place, Restartable
from lowtide_bench.phases import Phase
from lowtide_bench.ramp import WIDE, drained_per_s, steps
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.session import SILENCE_LIMIT_S, Say, Subject, observe, undisturbed
from lowtide_bench.systems import System

START_LIMIT_S = 300.0
"""Limit on a start: a JVM and a first batch on a busy machine."""
LEAST_STEP_S = 4.0
DOCUMENT = 20
"""Factor between the rates of records and of documents at which to look for a limit: each has so many words."""
STEP_SHARE = 0.4
"""Duration of each rate on the way to the limit, as a share of the measured seconds."""
SHIFT = 4
"""Factor that the rates are multiplied or divided by, once, if the limit is not among them."""
HOPELESS = 0.6
"""A system whose limit is a smaller share of a rate is not measured at it, since that would measure a queue."""
LATE_SILENCE_S = 60.0
"""After this long without a result the others have not been kept up with; batches may be long on a busy machine."""
KILLED_SILENCE_S = 240.0
"""The same after a kill. Kafka ends a dead producer's transactions after 60 s, and the records after them are invisible
until then; a JVM on a busy machine needs a minute or more to start."""
KILL_AFTER_S = 10.0
KILL_SECONDS = 40.0


def run(kinds: Sequence[Kind], extent: Extent, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure all, and return the object that `lowtide bench peers` prints; a failure is an `error` in its rows.

    Args:
        kinds: The systems.
        extent: Extent of the measurement.
        conf: Conf for Lowtide; services and folders are the ground's.
        say: Called with each progress message.
    """
    conf = dataclasses.replace(conf, job=dataclasses.replace(conf.job, start_limit_s=START_LIMIT_S))
    runs: list[dict[str, Any]] = []
    with described() as surroundings, ground(conf, "create", say) as here:
        for kind in kinds:
            rows = Measurement(kind, here, extent, say).rows()
            say(f"{kind.name} is done: {json.dumps(rows)}")
            runs += rows
    return {"runs": runs, **dataclasses.asdict(extent), **surroundings}


class Measurement:
    """All measurements of one system.

    Args:
        kind: The system.
        here: The ground.
        extent: Extent of the measurement.
        say: Called with each progress message.
    """

    def __init__(self, kind: Kind, here: Ground, extent: Extent, say: Say) -> None:
        self._kind = kind
        self._here = here
        self._extent = extent
        self._say: Say = lambda what: say(f"{kind.name}, {what}")
        self._errors: list[str] = []

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per rate."""
        kind, extent = self._kind, self._extent
        head = {"system": kind.name, "title": kind.title, "delivery": kind.delivery}
        if extent.flow in kind.unable:
            return [{**head, "rate": rate, "error": kind.unable[extent.flow]} for rate in extent.rates]
        if self._part("set-up", self._install) is None:
            return [{**head, "rate": rate, "error": self._errors[0]} for rate in extent.rates]
        common: dict[str, Any] = {"sustained_per_s": None, "lost": None, "duplicated": None, "wrong": None}
        if extent.limits:
            common |= self._part("limit", self._limit) or {}
        figures = {}
        for rate in extent.rates:
            if not hopeless(rate, common):
                figures[rate] = self._part(f"{rate}/s", lambda rate=rate: self._latency(rate))  # type: ignore[misc]
        if extent.kill:
            common |= self._part("kill", self._killed) or {}
        if self._errors:
            common["error"] = "; ".join(self._errors)
        nothing = {"p50_ms": None, "p99_ms": None, "max_ms": None}
        return [{**head, "rate": rate, **nothing, **(figures.get(rate) or {}), **common} for rate in extent.rates]

    def _part(self, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """Measure one part; None if that failed, and keep the reason."""
        try:
            return measure()
        except Exception as error:  # noqa: BLE001 - whatever a peer fails with, the others' hour is not to be lost
            what = str(error) if isinstance(error, LowtideError) else repr(error)
            self._errors.append(f"{name}: {what}")
            self._say(f"{name} failed: {what}")
            return None

    def _install(self) -> dict[str, Any]:
        self._say("setting up: minutes the first time")
        self._kind.install()
        return {}

    def _limit(self) -> dict[str, Any]:
        """Find the highest rate that the system keeps up with by steps; add lower or higher ones once if needed."""
        share = 1 if self._extent.flow == COUNTING else DOCUMENT
        rates, tried = tuple(rate // share for rate in self._kind.rates), []
        for attempt in range(2):
            fresh = partial(self._subject, f"limit-{attempt}", SILENCE_LIMIT_S)
            subject, arrivals, ramp, observed = undisturbed(fresh, self._rise(rates), self._say)
            found = steps(arrivals, ramp, WIDE, subject.way.records.outputs)
            tried += [step.as_json() for step in found]
            kept = [step.rate for step in found if step.kept]
            if kept and max(kept) < rates[-1]:
                break
            rates = tuple(rate * SHIFT for rate in rates) if kept else tuple(rate // SHIFT for rate in rates)
        rate = max((step["rate"] for step in tried if step["kept"]), default=0)
        at_least = rate == max(step["rate"] for step in tried)
        drained = drained_per_s(arrivals, ramp)
        noise = {f"limit_{name}": value for name, value in observed.noise_json().items()}
        limit = {"sustained_per_s": rate, "sustained_at_least": at_least, "drained_per_s": drained}
        return {**limit, **noise, "steps": tried}

    def _rise(self, rates: tuple[int, ...]) -> Rise:
        return Rise(
            rates, max(LEAST_STEP_S, STEP_SHARE * self._extent.seconds), self._extent.warmup_s, self._extent.tries
        )

    def _latency(self, rate: int) -> dict[str, Any]:
        fresh = partial(self._subject, f"at-{rate}", LATE_SILENCE_S)
        extent = self._extent
        load = Load(rate, extent.seconds, extent.warmup_s, extent.tries)
        subject, arrivals, schedule, observed = undisturbed(fresh, load, self._say)
        outputs = subject.way.records.outputs
        measured, due = arrivals.measured(schedule), outputs(schedule.count) - outputs(schedule.warmup_count)
        names = {"p50_ms": 50.0, "p99_ms": 99.0, "max_ms": 100.0}
        return {
            **{name: null_unless_finite(latency_of_due_ms(measured, due, percent)) for name, percent in names.items()},
            "undisturbed": _verdict(subject, observed.sent).as_json(),
            **({"snapshots": subject.pacer.of_turns([0])} if subject.pacer else {}),
            "start_s": round(observed.start_s, 2),
            "generator_lag_p99_ms": observed.lag_p99_ms,
            **observed.noise_json(),
        }

    def _killed(self) -> dict[str, Any]:
        rate, killer = min(self._extent.rates), Killer()
        subject = self._subject("killed", KILLED_SILENCE_S, [killer])
        arrivals, schedule, observed = observe(subject, Load(rate, KILL_SECONDS, self._extent.warmup_s))
        last = int(arrivals.received_ns.max(initial=schedule.window_ns[1]))
        return {
            **_verdict(subject, observed.sent).as_json(),
            "killed_at_rate": rate,
            "killed_of": observed.due,
            **outage(arrivals, killer.killed_ns, last).as_json(),
        }

    def _subject(self, what: str, silence_limit_s: float, companions: Sequence[Companion] = ()) -> Subject:
        """The system with topics and a folder of its own."""
        kind, here = self._kind, self._here
        self._say(f"{what}: starting")
        way = here.way(self._extent.flow, f"{kind.name}-{what}")
        folder = here.folder / way.sink
        folder.mkdir()
        place = Place(way, folder, here.conf)
        if kind.snapshots_s and not what.startswith("limit"):
            pacer = Pacer(lambda schedule: [Phase(kind.snapshots_s, schedule.start_ns, schedule.window_ns[1])])
            companions = [*companions, pacer]
        subject = here.subject(way, lambda: kind.start(place), self._say, companions=companions)
        return dataclasses.replace(subject, silence_limit_s=silence_limit_s)


class Killer(Companion):
    """Kills the system once, and starts it again."""

    killed_ns = 0
    """Time of the kill, ns since 1970."""

    def go(self, system: System, schedule: Schedule) -> None:
        """Kill it in the measured window."""
        assert isinstance(system, Restartable), "only such a system can be killed"
        if self.wait_until(schedule.window_ns[0] + round(KILL_AFTER_S * NS)):
            self.killed_ns = time.time_ns()
            system.strike()


def hopeless(rate: int, limit: Mapping[str, Any]) -> bool:
    """Return whether a system's limit, if it was measured, is far below this rate."""
    if limit.get("sustained_per_s") is None or rate < min(step["rate"] for step in limit["steps"]):
        return False
    return bool(limit["sustained_per_s"] < HOPELESS * rate)


def _verdict(subject: Subject, sent: int) -> Verdict:
    return judge(np.load(subject.file), sent, subject.way.partitions, subject.way.flow)
