"""Questions for the states of keys at a running count under load, and the time that they take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from lowtide.conf import Conf
from lowtide.errors import NotRunning
from lowtide.status.key_state import states_of
from lowtide_bench.arrivals import percentiles
from lowtide_bench.companion import Companion
from lowtide_bench.counted import Counted
from lowtide_bench.ground import described, ground
from lowtide_bench.killable import Killable
from lowtide_bench.load import Load
from lowtide_bench.machine import in_words
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.session import Say, observe
from lowtide_bench.systems import System
from lowtide_bench.tables import Table, number

FLOW, STEP = "running-count", "count"
RESIDENT_MB = 0
"""On disk, what is at rest leaves memory at once: each question meets the store."""
FIGURES = (50, 99, 100)


class Asker(Companion):
    """Asks for keys that the records have, as `lt.state` does.

    Args:
        sizes: Keys of one question, in turns.
        every_s: Seconds from one question to the next.
    """

    def __init__(self, sizes: Sequence[int], every_s: float) -> None:
        super().__init__()
        self._sizes = sizes
        self._every_s = every_s
        self.took_s: dict[int, list[float]] = {size: [] for size in sizes}
        """By the number of keys, the seconds that each question took, its connection included."""
        self.states = 0
        """The number of states that came."""

    def go(self, system: System, schedule: Schedule) -> None:
        """Ask from the end of the warm-up on."""
        due, asked, sizes = schedule.window_ns[0], 0, cycle(self._sizes)
        while due < schedule.window_ns[1] and self.wait_until(due):
            client = system.client()
            if client is None:
                raise NotRunning("the job has no control API", way_out="see its log")
            size = next(sizes)
            keys = [self._key(asked + offset) for offset in range(size)]
            began = time.perf_counter()
            found = states_of(client, STEP, keys)
            self.took_s[size].append(time.perf_counter() - began)
            self.states += sum(each.state is not None for each in found)
            asked += size
            due = max(due + round(self._every_s * NS), time.time_ns())

    @staticmethod
    def _key(sequence: int) -> str:
        key, _ = Counted().message(sequence, 0)
        assert key is not None
        return key.decode()


def run(rate: int, seconds: float, sizes: Sequence[int], every_s: float, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench look-ups --json` prints.

    Args:
        rate: Records per second.
        seconds: For how long, with each backend.
        sizes: See `Asker`.
        every_s: See `Asker`.
        conf: As in `lowtide_bench.run.run`.
        say: Called with each progress message.

    Raises:
        LowtideError: the run failed.
    """
    backends: dict[str, Any] = {}
    with described() as surroundings, ground(conf, "create", say) as here:
        for backend in ("memory", "disk"):
            asker = Asker(sizes, every_s)
            state = replace(
                conf.state, backend=backend, memory_mb=RESIDENT_MB, folder=str(here.folder / f"state-{backend}")
            )
            its_conf, way = replace(here.conf, state=state), here.way(FLOW, FLOW)
            say(f"state {'on' if backend == 'disk' else 'in'} {backend}")
            begin = partial(Killable, way, its_conf, here.folder, f"{FLOW}-{backend}")
            subject = here.subject(way, begin, say, companions=[asker])
            arrivals, schedule, observed = observe(subject, Load(rate, seconds, seconds / 2))
            p50, p99 = percentiles(arrivals.measured(schedule).latency_ms(), (50, 99))
            backends[backend] = {
                "questions": {str(size): _spread(took) for size, took in asker.took_s.items()},
                "states": asker.states,
                "p50_ms": p50,
                "p99_ms": p99,
                "lost": observed.due - len(arrivals),
                "faults": arrivals.faults,
                **observed.noise_json(),
            }
    return {"flow": FLOW, "rate": rate, "seconds": seconds, "every_s": every_s, "backends": backends, **surroundings}


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """Return how long the questions took, by backend and number of keys."""
    rows = [
        (backend, size, str(spread["count"]), *(number(spread[f"p{each}_ms"], 1) for each in FIGURES))
        for backend, found in result["backends"].items()
        for size, spread in found["questions"].items()
    ]
    heading = f"{result['flow']} at {result['rate']:,} records/s, asked each {result['every_s']:g} s"
    yield Table(heading, ("state in", "keys", "questions", "p50, ms", "p99, ms", "max, ms"), rows)


def origin(result: Mapping[str, Any]) -> str:
    """Return a line about the machine, and whether everything came out once."""
    faults = ", ".join(f"{each['lost']}, {each['faults']}" for each in result["backends"].values())
    return f"{in_words(result['machine'])}; lost, wrong: {faults}"


def _spread(took_s: Sequence[float]) -> dict[str, float]:
    values = percentiles(np.array(took_s, np.float64) * 1e3, FIGURES)
    return {"count": len(took_s), **{f"p{each}_ms": value for each, value in zip(FIGURES, values, strict=True)}}
