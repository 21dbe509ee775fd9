"""Early keys on and off, in turns, while one key's function sleeps and while none does: delay of lanes, and cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.plan import Plan
from lowtide_bench import boundaries
from lowtide_bench.arrivals import Arrivals, percentiles
from lowtide_bench.asked import AskedOfEarlyKeys
from lowtide_bench.companion import Companion
from lowtide_bench.figures import Observed
from lowtide_bench.ground import PARTITIONS, Ground, described, ground, modes
from lowtide_bench.load import Load
from lowtide_bench.schedule import Schedule
from lowtide_bench.session import Say, Subject, undisturbed
from lowtide_bench.sides import ratio
from lowtide_bench.slow_key import LETTERS, SLOW, SlowKeyed, slow_key
from lowtide_bench.systems import Running, System
from lowtide_snapshots.keys.hashing import hash_unit

FLOW = "slow-key"
ROLES = ("tracker", "service", "workers", "jvm")
TRAFFIC = ("flushes", "acks", "notices")
LANES = ("others", "own")
"""The lanes of other workers, and those of the slow key's."""
_DELAYS = tuple(f"{lanes}_{name}_ms" for lanes in LANES for name in ("p50", "p99"))
_USED = (*(f"{role}_s" for role in ROLES), "cpu_s")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Turn:
    """A setting of one turn.

    Attributes:
        early: Lanes do not wait for those of other workers.
        sleep_ms: Time that the slow key's function sleeps.
    """

    early: bool
    sleep_ms: float


def turns(asked: AskedOfEarlyKeys) -> list[Turn]:
    """Return all turns in order: without sleep first, and off, on, on, off in each."""
    return [
        Turn(early, sleep_ms)
        for sleep_ms in dict.fromkeys((0.0, asked.sleep))
        for place in range(asked.rounds)
        for early in ((False, True) if place % 2 == 0 else (True, False))
    ]


def run(asked: AskedOfEarlyKeys, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench early-keys --json` prints.

    Args:
        asked: Settings of the measurement.
        conf: As in `lowtide_bench.run.run`. Without `worker.processes` each worker has one of its own, as a worker that
            sleeps holds up all of its process.
        say: Called with each progress message.

    Raises:
        LowtideError: the run failed.
    """
    conf = dataclasses.replace(
        conf,
        job=dataclasses.replace(conf.job, parallelism=asked.workers),
        worker=dataclasses.replace(conf.worker, processes=conf.worker.processes or PARTITIONS + asked.workers),
    )
    with described() as surroundings, ground(conf, "create", say) as here:
        found = [_turn(here, asked, turn, say) for turn in turns(asked)]
    return {
        "rate": asked.rate,
        "seconds": asked.seconds,
        "warmup_s": asked.warmup,
        "sleep_ms": asked.sleep,
        "workers": asked.workers,
        "processes": conf.worker.processes,
        **modes(conf, "create"),
        "turns": found,
        **summary(found),
        **surroundings,
    }


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return ratios of medians: of on to off, without a sleep and with one, and of a sleep to none; null for none."""
    middle = {
        (early, sleeps): _medians(
            [each for each in found if (each["early"], bool(each["sleep_ms"])) == (early, sleeps)]
        )
        for early in (False, True)
        for sleeps in (False, True)
    }
    return {
        "on_to_off_without_sleep": _ratios(middle[True, False], middle[False, False]),
        "on_to_off_with_sleep": _ratios(middle[True, True], middle[False, True]),
        "sleep_to_none_off": _ratios(middle[False, True], middle[False, False]),
        "sleep_to_none_on": _ratios(middle[True, True], middle[True, False]),
        "lost": sum(each["lost"] for each in found),
    }


def _medians(found: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = [*_DELAYS, *TRAFFIC, *_USED] if found else []
    return {name: median(turn[name] for turn in found) for name in names}


def _ratios(figures: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float | None]:
    return {name: ratio(figures.get(name), others.get(name)) for name in (*_DELAYS, *TRAFFIC, *_USED)}


class Traffic(Companion):
    """Counts what workers and tracker say to each other within the measured window."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        """By kind; see `TRAFFIC`."""

    def go(self, system: System, schedule: Schedule) -> None:
        """Look at both ends of the window."""
        looks = []
        for end_ns in schedule.window_ns:
            self.wait_until(end_ns)
            client = system.client()
            assert client is not None, "the job runs in this process"
            looks.append(client.status().tracker.traffic)
        self.counts = {name: getattr(looks[1], name) - getattr(looks[0], name) for name in TRAFFIC}


def _turn(here: Ground, asked: AskedOfEarlyKeys, turn: Turn, say: Say) -> dict[str, Any]:
    conf = dataclasses.replace(here.conf, job=dataclasses.replace(here.conf.job, early_keys=turn.early))
    counters: list[Traffic] = []

    def fresh() -> Subject:
        say(f"early keys {'on' if turn.early else 'off'}, one key sleeps {turn.sleep_ms:g} ms")
        counters.append(Traffic())
        way = here.way(FLOW, FLOW)
        Topics(here.conf.kafka).create(f"{way.sink}{LETTERS}", partitions=1, config={})
        make = partial(slow_key, sleep_ms=turn.sleep_ms)
        return here.subject(way, lambda: Running(way, conf, say, make), say, companions=counters[-1:])

    load = Load(asked.rate, asked.seconds, asked.warmup, asked.tries)
    _, arrivals, schedule, observed = undisturbed(fresh, load, say)
    plan = compile_job(slow_key(FLOW, "source", "sink"), conf)
    return {
        **dataclasses.asdict(turn),
        **delays(arrivals.measured(schedule), observed.ends_ns, plan),
        **counters[-1].counts,
        **_cpu(observed),
        "lost": observed.due - len(arrivals),
        "duplicated": arrivals.duplicated,
        "faults": arrivals.faults,
        **observed.noise_json(),
    }


def delays(measured: Arrivals, ends_ns: Sequence[int], plan: Plan) -> dict[str, float]:
    """Return the percentiles of `LANES`, in ms; without the slow key's records, and those that boundaries caught."""
    latency, caught = measured.latency_ms(), boundaries.find(measured, ends_ns).caught
    key_of = SlowKeyed().message
    keys = [key_of(int(sequence), 0)[0] for sequence in measured.sequence]
    is_own = _beside_the_slow(plan)
    own = np.array([is_own(key) for key in keys], np.bool_)
    slow = np.array([key == SLOW for key in keys], np.bool_)
    masks: dict[str, Mask] = {"others": ~own, "own": own & ~slow}
    values = [value for lanes in LANES for value in percentiles(latency[masks[lanes] & ~caught], (50, 99))]
    return {name: round(value, 3) for name, value in zip(_DELAYS, values, strict=True)}


def _beside_the_slow(plan: Plan) -> Callable[[bytes | None], bool]:
    """Return a function that says of a key whether the slow one's worker has it."""
    workers, of_key = plan.worker_of_unit(), dict[bytes | None, bool]()
    slow = workers[hash_unit([SLOW], plan.units)]

    def is_own(key: bytes | None) -> bool:
        if key not in of_key:
            of_key[key] = bool(workers[hash_unit([key], plan.units)] == slow)
        return of_key[key]

    return is_own


def _cpu(observed: Observed) -> dict[str, float]:
    used = {f"{role}_s": round(observed.cpu_s.get(role, 0.0), 2) for role in ROLES}
    return {**used, "cpu_s": round(sum(used.values()), 2)}
