"""Kills a process of a job now and then during a measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lowtide.errors import ServiceUnavailable
from lowtide_bench.companion import Companion
from lowtide_bench.killable import Killable, Victim
from lowtide_bench.pacer import Pacer
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.systems import System

POLL_S = 0.02
LAST_LIMIT_S = 120.0
"""Limit on the job's return after the last kill, if that is longer than the time between kills."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill, and the time at which the job's next life was ready.

    Attributes:
        who: The process.
        killed_ns: Time of the signal, ns since 1970.
        ready_ns: Time at which the job reported all its workers there again.
        incarnation: The life that followed.
        commit_age_s: Distance of the last commit's min time, all of which is replayed; None if there was no commit.
    """

    who: str
    killed_ns: int
    ready_ns: int
    incarnation: int
    commit_age_s: float | None


class Killer(Companion):
    """Kills at the beginning of the measured window, and at an interval after that.

    Args:
        system: Returns the system, whose processes are killed.
        victim: The kind of process to kill.
        kills: Number of kills.
        every_s: From one kill to the next.
        pacer: The pacer that takes snapshots meanwhile.
    """

    end_limit_s = LAST_LIMIT_S

    def __init__(self, victim: Victim, kills: int, every_s: float, pacer: Pacer, say: Callable[[str], None]) -> None:
        super().__init__()
        self._victim = victim
        self._count = kills
        self._every_ns = round(every_s * NS)
        self._pacer = pacer
        self._say = say
        self.kills: list[Kill] = []
        """Kills that the job has returned from."""

    def go(self, system: System, schedule: Schedule) -> None:
        """Kill, and wait until the job is ready again."""
        assert isinstance(system, Killable), "only such a program can be killed"
        start, _ = schedule.window_ns
        for number in range(self._count):
            if not self.wait_until(start + number * self._every_ns):
                return
            until_ns = start + (number + 1) * self._every_ns
            if number == self._count - 1:
                until_ns = max(until_ns, time.time_ns() + round(LAST_LIMIT_S * NS))
            self._kill(system, number, until_ns)

    def _kill(self, system: Killable, number: int, until_ns: int) -> None:
        system.stand_ready(LAST_LIMIT_S)
        state = system.state()
        before = (state.incarnation if state is not None else None) or 0
        committed = [each.min_time_ms for each in self._pacer.taken if not each.why and each.min_time_ms is not None]
        found = system.kill(self._victim, number)
        if found is None:
            raise ServiceUnavailable("the job has no worker to kill", way_out="give a longer --every")
        who, killed_ns = found
        self._say(f"killed: {who}")
        incarnation = self._back(system, before, until_ns)
        ready_ns = time.time_ns()
        self._say(f"ready again: {(ready_ns - killed_ns) / NS:.1f} s after the kill")
        age = round(killed_ns / NS - committed[-1] / 1e3, 3) if committed else None
        self.kills.append(Kill(who, killed_ns, ready_ns, incarnation, age))

    def _back(self, system: Killable, before: int, until_ns: int) -> int:
        while time.time_ns() < until_ns:
            state = system.state()
            if state is not None and state.phase == "running" and (state.incarnation or 0) > before:
                assert state.incarnation is not None
                return state.incarnation
            if self.abandoned:
                break
            time.sleep(POLL_S)
        raise ServiceUnavailable(
            f"the job was not ready again in time after a kill; {system.describe()}",
            way_out="give a longer --every, or see the log above for the cause",
        )
