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
    """Kills: of which process, how many, and how many seconds apart."""

    victim: Victim
    count: int
    every_s: float


def run(
    kills: Kills, rate: int, warmup_s: float, conf: Conf, say: Say, *, snapshot_every_s: float, state_keys: int
) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench recovery --json` prints.

    Args:
        kills: What is killed.
        rate: Records a second.
        warmup_s: How long records are sent, and snapshots taken, before the first kill.
        conf: As of `lowtide_bench.run.run`.
        say: Told what happens.
        snapshot_every_s: How often a snapshot is due; 0 for never, and all is replayed.
        state_keys: How many keys are in the state before.

    Raises:
        LowtideError: what ended the run; the job did not come back in time.
    """
    # The pause before a restart grows with those before it, and each kill is to be measured as the first.
    job = dataclasses.replace(conf.job, restarts=max(conf.job.restarts, 1), restarts_within_s=kills.every_s / 2)
    conf = dataclasses.replace(conf, job=job)
    pacer = Pacer(lambda schedule: [Phase(snapshot_every_s, schedule.start_ns, schedule.window_ns[1])])
    killer = Killer(kills.victim, kills.count, kills.every_s, pacer, say)
    with described() as told, ground(conf, "create", say) as here:
        way = here.way(FLOW, FLOW)
        subject = here.subject(
            way,
            lambda: Killable(way, here.conf, here.folder),
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
        **told,
    }


def outages(arrivals: Arrivals, schedule: Schedule, kills: Sequence[Kill]) -> list[dict[str, Any]]:
    """Return of each kill what it did to the output, as it stands in the JSON object."""
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
    """Return median and worst of each figure; null if one of the kills has none."""
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
