"""Cost of a call: one flow with it and without, in turns, under one load; then a backlog of calls."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from lowtide.conf import Conf
from lowtide.errors import ServiceUnavailable
from lowtide.histogram import Histogram
from lowtide_bench.asked import AskedOfCalls
from lowtide_bench.called import Service, called
from lowtide_bench.companion import Companion
from lowtide_bench.figures import Figures, null_for_nan
from lowtide_bench.flows import Make
from lowtide_bench.ground import Ground, described, ground, modes
from lowtide_bench.hops import TURN
from lowtide_bench.killable import Killable, Victim
from lowtide_bench.load import Load, Rise
from lowtide_bench.pacer import Pacer
from lowtide_bench.phases import Phase
from lowtide_bench.ramp import drained_per_s
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.session import Say, Subject, observe, undisturbed
from lowtide_bench.systems import Running, System

FLOW = "passthrough"
VICTIMS: tuple[Victim, ...] = ("driver", "worker", "caller")
BACK_LIMIT_S = 180.0
SILENCE_LIMIT_S = 120.0
SNAPSHOT_EVERY_S = 20.0
POLL_S = 0.1
BACKLOG_PER_S = 20_000
"""Faster than calls are made, so that a backlog stays."""


def run(asked: AskedOfCalls, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench calls --json` prints.

    Args:
        asked: Settings of the measurement.
        conf: As in `lowtide_bench.run.run`.
        say: Called with each progress message.

    Raises:
        LowtideError: the run failed.
    """
    turns: list[dict[str, Any]] = []
    with described() as surroundings, ground(conf, "create", say) as here:
        for _ in range(asked.rounds):
            turns += [_turn(here, asked, say, calls=calls) for calls in (False, True)]
        backlog = _caught_up(here, asked, say) if asked.backlog else None
        killed = _killed(here, asked, say) if asked.kills else None
    setting = {"rate": asked.rate, "seconds": asked.seconds, "warmup_s": asked.warmup, "service_ms": asked.service}
    return {
        **setting,
        **modes(conf, "create"),
        "turns": turns,
        "backlog": backlog,
        "killed": killed,
        **surroundings,
        **summary(turns, backlog, killed),
    }


def summary(
    turns: list[dict[str, Any]], backlog: dict[str, Any] | None, killed: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the figures of all turns together; medians of the turns with a call and of those without."""
    calls = [turn for turn in turns if turn["calls"]]
    with_ms, service_ms = (median(turn[name] for turn in calls) for name in ("p50_ms", "service_p50_ms"))
    without_ms = median(turn["p50_ms"] for turn in turns if not turn["calls"])
    loops = [
        [turn["host_turn_p99_ms"] for turn in turns if turn["calls"] == asks and turn["host_turn_p99_ms"] is not None]
        for asks in (False, True)
    ]
    everything = [*turns, *(part for part in (backlog, killed) if part)]
    return {
        "p50_over_service_ms": round(with_ms - without_ms - service_ms, 3),
        "host_turn_p99_moved_ms": round(median(loops[1]) - median(loops[0]), 3) if all(loops) else None,
        "calls_per_s": backlog["calls_per_s"] if backlog else None,
        "keys_called_twice": sum(each.get("keys_called_twice", 0) for each in everything),
        "kills": len(killed["kills"]) if killed else 0,
        "lost": sum(each["lost"] for each in everything),
    }


def _turn(here: Ground, asked: AskedOfCalls, say: Say, *, calls: bool) -> dict[str, Any]:
    if not calls:
        _, arrivals, schedule, observed = undisturbed(lambda: here.flow(FLOW, say), _load(asked), say)
        return {"calls": False, **_shown(Figures.of(arrivals, schedule, observed))}
    with Service(asked.service) as service:
        _, arrivals, schedule, observed = undisturbed(_asking(here, service, say), _load(asked), say)
        counts = service.counts(*schedule.window_ns)
    figures = _shown(Figures.of(arrivals, schedule, observed))
    return {"calls": True, **figures, "service_p50_ms": round(counts.p50_ms, 3), "keys_called_twice": counts.twice}


def _load(asked: AskedOfCalls) -> Load:
    return Load(asked.rate, asked.seconds, asked.warmup, asked.tries)


def _shown(figures: Figures) -> dict[str, Any]:
    names = ("p50_ms", "p90_ms", "p99_ms", "lost", "duplicated")
    turns = figures.observed.hops.get(TURN, Histogram())
    return {
        **{name: null_for_nan(getattr(figures, name)) for name in names},
        "host_turn_p99_ms": null_for_nan(round(turns.percentile_ms(99), 3)),
        **figures.observed.noise_json(),
        "generator_lag_p99_ms": figures.observed.lag_p99_ms,
    }


def _caught_up(here: Ground, asked: AskedOfCalls, say: Say) -> dict[str, Any]:
    """Send a backlog faster than it can be asked about; the calls per second are those after the last was sent."""
    rise = Rise((BACKLOG_PER_S,), asked.backlog / BACKLOG_PER_S, 0, 1)
    with Service(asked.service) as service:
        _, arrivals, schedule, observed = undisturbed(_asking(here, service, say), rise, say)
        counts = service.counts()
    return {
        "records": observed.due,
        "calls_per_s": drained_per_s(arrivals, schedule),
        "lost": observed.due - len(arrivals),
        "keys_called_twice": counts.twice,
    }


def _killed(here: Ground, asked: AskedOfCalls, say: Say) -> dict[str, Any]:
    """Kill processes under load, and let the service go away; what is there twice then was asked by another key."""
    seconds = asked.kills * asked.every + asked.outage
    conf = dataclasses.replace(
        here.conf, job=dataclasses.replace(here.conf.job, restarts=3, restarts_within_s=asked.every / 2)
    )
    with Service(asked.service) as service:
        pacer = Pacer(lambda schedule: [Phase(SNAPSHOT_EVERY_S, schedule.start_ns, schedule.window_ns[1])])
        troubles = Troubles(service, asked, say)
        way = here.way(FLOW, "killed")
        subject = here.subject(
            way, lambda: Killable(way, conf, here.folder, port=service.port), say, companions=[pacer, troubles]
        )
        subject = dataclasses.replace(subject, silence_limit_s=SILENCE_LIMIT_S)
        arrivals, _, observed = observe(subject, Load(max(1, asked.rate // 4), seconds, asked.warmup))
        counts = service.counts()
    return {
        "records": observed.due,
        "kills": troubles.kills,
        "outage_s": asked.outage,
        "lost": observed.due - len(arrivals),
        "duplicated": arrivals.duplicated,
        "asked_again": counts.twice,
        "keys_called_twice": counts.records_twice + abs(counts.keys - counts.records),
        "records_asked_about": counts.records,
    }


class Troubles(Companion):
    """Kills driver, host and caller in turn, each when the job is back; half-way the service is away for a while.

    Args:
        service: The service.
        asked: How often and how long.
        say: Called with each progress message.
    """

    def __init__(self, service: Service, asked: AskedOfCalls, say: Say) -> None:
        super().__init__()
        self.end_limit_s = asked.kills * BACK_LIMIT_S
        self.kills: list[dict[str, Any]] = []
        """Each with who was killed, and after how many seconds the job was back."""
        self._service = service
        self._asked = asked
        self._say = say

    def go(self, system: System, schedule: Schedule) -> None:
        """Kill, and wait until the job is back; all of it, also if that takes longer than the load."""
        assert isinstance(system, Killable), "only such a program can be killed"
        at = schedule.window_ns[0] / NS
        for number in range(self._asked.kills):
            if not self._until(at):
                return
            if number == self._asked.kills // 2 and self._asked.outage:
                self._service.away(away=True)
                self._say(f"the service is away for {self._asked.outage:g} s")
                self._until(time.time() + self._asked.outage)
                self._service.away(away=False)
            self._kill(system, number)
            at = max(at + self._asked.every, time.time() + 1)

    def _kill(self, system: Killable, number: int) -> None:
        victim = VICTIMS[number % len(VICTIMS)]
        state = system.state()
        before = (state.incarnation if state is not None else None) or 0
        callers = set(system.callers())
        found = system.kill(victim, number)
        if found is None:
            raise ServiceUnavailable(f"the job has no {victim} to kill", way_out="give a longer --every")
        who, killed_ns = found
        limit = time.time() + BACK_LIMIT_S
        while not (self._asks_again(system, callers) if victim == "caller" else _runs_again(system, before)):
            if time.time() > limit:
                raise ServiceUnavailable(f"the job is not back after a kill of {who}; {system.describe()}")
            if not self._until(time.time() + POLL_S):
                return
        back_s = time.time() - killed_ns / NS
        self._say(f"killed: {who}; back after {back_s:.1f} s")
        self.kills.append({"who": who, "back_s": round(back_s, 2)})

    def _asks_again(self, system: Killable, before: set[int]) -> bool:
        now = set(system.callers())
        return bool(now - before) and len(now) >= len(before)

    def _until(self, at_s: float) -> bool:
        """Wait until a time, in s since 1970; return False at once if nobody wants the result any more."""
        while (left := at_s - time.time()) > 0:
            if self.abandoned:
                return False
            time.sleep(min(left, POLL_S))
        return not self.abandoned


def _runs_again(system: Killable, before: int) -> bool:
    state = system.state()
    return state is not None and state.phase == "running" and (state.incarnation or 0) > before


def _asking(here: Ground, service: Service, say: Say) -> Callable[[], Subject]:
    flow: Make = partial(called, port=service.port)

    def fresh() -> Subject:
        say(f"the flow {FLOW} with a call")
        way = here.way(FLOW, "called")
        return here.subject(way, lambda: Running(way, here.conf, say, flow), say)

    return fresh
