"""Length of the outage after a process is killed: a job under load that takes snapshots."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lowtide.conf import Conf
from lowtide_bench.arrivals import Arrivals, percentiles
from lowtide_bench.ground import described, ground, modes
from lowtide_bench.killable import Killable, Victim
from lowtide_bench.killer import Kill, Killer
from lowtide_bench.load import Load
from lowtide_bench.outages import outage
from lowtide_bench.pacer import Pacer
from lowtide_bench.phases import Phase
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.session import Say, observe

FLOW = "running-count"
FIGURES = ("ready_s", "output_back_s", "gap_s", "caught_up_s", "commit_age_s")


@dataclasses.dataclass(frozen=True, slots=True)
class Kills:
    """The process to kill, the number of kills, the seconds between them, and whether a standby takes over."""

    victim: Victim
    count: int
    every_s: float
    standby: bool = False


def run(
    kills: Kills, rate: int, warmup_s: float, conf: Conf, say: Say, *, snapshot_every_s: float, state_keys: int
) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench recovery --json` prints.

    Args:
        kills: The kills.
        rate: Records per second.
        warmup_s: Time of sending records and taking snapshots before the first kill.
        conf: As in `lowtide_bench.run.run`.
        say: Called with each progress message.
        snapshot_every_s: Interval of snapshots; 0 for none, and everything is replayed.
        state_keys: Keys in the state before the measurement.

    Raises:
        LowtideError: the run failed; the job did not return in time.
    """
    # The pause before a restart grows with each restart, but each kill is to be measured as the first.
    job = dataclasses.replace(conf.job, restarts=max(conf.job.restarts, 1), restarts_within_s=kills.every_s / 2)
    conf = dataclasses.replace(conf, job=job)
    pacer = Pacer(lambda schedule: [Phase(snapshot_every_s, schedule.start_ns, schedule.window_ns[1])])
    killer = Killer(kills.victim, kills.count, kills.every_s, pacer, say)
    with described() as surroundings, ground(conf, "create", say) as here:
        way = here.way(FLOW, FLOW)
        subject = here.subject(
            way,
            lambda: Killable(way, here.conf, here.folder, standby=kills.standby),
            say,
            state_keys=state_keys,
            companions=[pacer, killer],
        )
        arrivals, schedule, observed = observe(subject, Load(rate, kills.count * kills.every_s, warmup_s))
    found = outages(arrivals, schedule, killer.kills)
    return {
        "flow": FLOW,
        "rate": rate,
        "kill": kills.victim,
        "every_s": kills.every_s,
        "standby": kills.standby,
        **modes(conf, "create"),
        "snapshot_every_s": snapshot_every_s,
        "state_keys": state_keys,
        "fed_per_s": observed.fed_per_s,
        "warmup_s": warmup_s,
        "kills": found,
        **spreads(found),
        "snapshots": pacer.of_turns([0]),
        "lost": observed.due - len(arrivals),
        "duplicated": arrivals.duplicated,
        "faults": arrivals.faults,
        "start_s": round(observed.start_s, 2),
        **surroundings,
    }


def outages(arrivals: Arrivals, schedule: Schedule, kills: Sequence[Kill]) -> list[dict[str, Any]]:
    """Return the effect of each kill on the output, as in the JSON object."""
    last = int(arrivals.received_ns.max(initial=schedule.window_ns[1]))
    ends = [*(kill.killed_ns for kill in kills[1:]), last]
    return [
        {
            "who": kill.who,
            "incarnation": kill.incarnation,
            "ready_s": round((kill.ready_ns - kill.killed_ns) / NS, 3),
            "commit_age_s": kill.commit_age_s,
            **outage(arrivals, kill.killed_ns, end).as_json(),
        }
        for kill, end in zip(kills, ends, strict=True)
    ]


def spreads(kills: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return median and worst of each figure; null if it is missing for one of the kills."""
    figures: dict[str, float | None] = {}
    for name in FIGURES:
        values = [kill[name] for kill in kills]
        known = bool(values) and None not in values
        half, most = percentiles(np.array(values, np.float64), (50, 100)) if known else (None, None)
        figures |= {of(name, "p50"): half, of(name, "max"): most}
    return figures


def of(figure: str, which: str) -> str:
    """Return the name of a figure's median or worst: `ready_p50_s`."""
    return f"{figure.removesuffix('_s')}_{which}_s"
