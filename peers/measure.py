"""Measures systems one after another on one ground: highest rate, latency, and the cost of a SIGKILL."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.conf import Conf
from lowtide.errors import LowtideError
from lowtide_bench.companion import Companion
from lowtide_bench.ground import Ground, described, ground
from lowtide_bench.load import Load, Rise
from lowtide_bench.outages import outage
from lowtide_bench.pacer import Pacer
from lowtide_bench.phases import Phase
from lowtide_bench.ramp import drained_per_s
from lowtide_bench.session import Say, Subject, observe
from lowtide_bench.systems import Way
from peers.judge import Verdict, judge
from peers.lags import finite, latency_ms, steps
from peers.patience import Killer, Patience
from peers.program import Kind, Place

FLOW = "running-count"
START_LIMIT_S = 300.0
"""Limit on a start: a JVM and a first batch on a busy machine."""
LEAST_STEP_S = 4.0
STEP_SHARE = 0.4
"""Duration of each rate on the way to the limit, as a share of the measured seconds."""
SHIFT = 4
"""Factor that the rates are multiplied or divided by, once, if the limit is not among them."""
HOPELESS = 0.6
"""A system whose limit is a smaller share of a rate is not measured at it, since that would measure a queue."""
LATE_LIMIT_S = 60.0
"""Time after the last due record: the system has not kept up with records that come later."""
KILL_AFTER_S = 10.0
KILL_SECONDS = 40.0
WARM_RATE = 20_000


@dataclass(frozen=True, slots=True)
class Extent:
    """Extent of the measurement.

    Attributes:
        rates: Rates at which to measure latency, in records per second.
        seconds: Duration of each.
        warmup_s: Duration of the load before that.
        limits: Whether to find the highest rate that each system keeps up with.
        kill: Whether to kill each system once.
        warm_broker_s: Duration of load on the broker before any measurement.
    """

    rates: tuple[int, ...]
    seconds: float
    warmup_s: float
    limits: bool
    kill: bool
    warm_broker_s: float


def run(kinds: Sequence[Kind], warming: Kind, extent: Extent, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure all, and return the object that `make peers` prints; a failure is an `error` in its rows.

    Args:
        kinds: The systems.
        warming: The system to warm the broker with.
        extent: Extent of the measurement.
        conf: Conf for Lowtide; services and folders are the ground's.
        say: Called with each progress message.
    """
    conf = dataclasses.replace(conf, job=dataclasses.replace(conf.job, start_limit_s=START_LIMIT_S))
    runs: list[dict[str, Any]] = []
    with described() as told, ground(conf, "create", say) as here:
        if extent.warm_broker_s:
            Measurement(warming, here, extent, say).warm()
        for kind in kinds:
            rows = Measurement(kind, here, extent, say).rows()
            say(f"{kind.name} is done: {json.dumps(rows)}")
            runs += rows
    return {"runs": runs, **dataclasses.asdict(extent), **told}


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

    def warm(self) -> None:
        """Send records through only to warm the broker."""
        self._say("for the broker to warm up")
        subject = self._subject("warm", lambda _: ())
        observe(subject, Load(WARM_RATE, self._extent.warm_broker_s, 0.0))

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
        rates, tried = self._kind.rates, []
        for attempt in range(2):
            arrivals, ramp, _ = observe(self._subject(f"limit-{attempt}"), self._rise(rates))
            found = steps(arrivals, ramp)
            tried += [step.as_json() for step in found]
            kept = [step.rate for step in found if step.kept]
            if kept and max(kept) < rates[-1]:
                break
            rates = tuple(rate * SHIFT for rate in rates) if kept else tuple(rate // SHIFT for rate in rates)
        rate = max((step["rate"] for step in tried if step["kept"]), default=0)
        at_least = rate == max(step["rate"] for step in tried)
        drained = drained_per_s(arrivals, ramp)
        return {"sustained_per_s": rate, "sustained_at_least": at_least, "drained_per_s": drained, "steps": tried}

    def _rise(self, rates: tuple[int, ...]) -> Rise:
        return Rise(rates, max(LEAST_STEP_S, STEP_SHARE * self._extent.seconds), self._extent.warmup_s)

    def _latency(self, rate: int) -> dict[str, Any]:
        subject = self._subject(f"at-{rate}", lambda way: [Patience(way, LATE_LIMIT_S)])
        arrivals, schedule, observed = observe(subject, Load(rate, self._extent.seconds, self._extent.warmup_s))
        measured, due = arrivals.measured(schedule), schedule.count - schedule.warmup_count
        names = {"p50_ms": 50.0, "p99_ms": 99.0, "max_ms": 100.0}
        return {
            **{name: finite(latency_ms(measured, due, percent)) for name, percent in names.items()},
            "undisturbed": _verdict(subject, observed.sent).as_json(),
            **_snapshots(subject),
            "start_s": round(observed.start_s, 2),
            "generator_lag_p99_ms": observed.lag_p99_ms,
            "others_cpu_s": round(observed.others_cpu_s, 2),
        }

    def _killed(self) -> dict[str, Any]:
        rate, killers = min(self._extent.rates), list[Killer]()

        def killer(way: Way) -> Sequence[Companion]:
            killers.append(Killer(way, KILL_AFTER_S))
            return killers

        subject = self._subject("killed", killer)
        arrivals, schedule, observed = observe(subject, Load(rate, KILL_SECONDS, self._extent.warmup_s))
        last = int(arrivals.received_ns.max(initial=schedule.window_ns[1]))
        return {
            **_verdict(subject, observed.sent).as_json(),
            "killed_at_rate": rate,
            "killed_of": observed.sent,
            **outage(arrivals, killers[0].killed_ns, last).as_json(),
        }

    def _subject(self, what: str, companions: Callable[[Way], Sequence[Companion]] = lambda _: ()) -> Subject:
        """The system with topics and a folder of its own."""
        kind, here = self._kind, self._here
        self._say(f"{what}: starting")
        name = f"{kind.name}-{what}"
        way = here.way(FLOW, name)
        folder = here.folder / name
        folder.mkdir()
        place = Place(way, folder, here.conf)
        beside = list(companions(way))
        if kind.snapshots_s and what.startswith(("at", "killed")):
            beside.append(Pacer(lambda schedule: [Phase(kind.snapshots_s, schedule.start_ns, schedule.window_ns[1])]))
        return here.subject(way, lambda: kind.start(place), self._say, companions=beside)


def hopeless(rate: int, limit: Mapping[str, Any]) -> bool:
    """Return whether a system's limit, if it was measured, is far below this rate."""
    if limit.get("sustained_per_s") is None or rate < min(step["rate"] for step in limit["steps"]):
        return False
    return bool(limit["sustained_per_s"] < HOPELESS * rate)


def _snapshots(subject: Subject) -> dict[str, Any]:
    """Return the results of the requested snapshots; nothing if the system takes its own."""
    pacer = next((each for each in subject.companions if isinstance(each, Pacer)), None)
    return {} if pacer is None else {"snapshots": pacer.of_turns([0])}


def _verdict(subject: Subject, sent: int) -> Verdict:
    return judge(np.load(subject.file), sent, subject.way.partitions)
