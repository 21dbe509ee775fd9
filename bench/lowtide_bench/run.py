"""A whole run: Kafka and ZooKeeper, then the bare loop, the skeleton and the flow in turn; one object of figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lowtide.conf import Conf
from lowtide_bench.asked import Asked
from lowtide_bench.figures import Figures
from lowtide_bench.gaps import gaps
from lowtide_bench.ground import described, ground, modes
from lowtide_bench.load import Load, Rise
from lowtide_bench.pacer import Pacer, summary
from lowtide_bench.phases import whole
from lowtide_bench.ramp import drained_per_s, steps, sustained
from lowtide_bench.session import Say, Subject, undisturbed
from lowtide_bench.sides import OTHERS, SUBJECTS, ratio, ratios


def run(asked: Asked, load: Load, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure the bare loop, the skeleton and the flow, and return the object of `lowtide bench latency --json`.

    Everything it starts (Kafka and ZooKeeper in a temporary folder, Spark, the processes around them) ends with it.

    Args:
        asked: The setting.
        load: The load.
        conf: Conf for the flow; the services' addresses and all folders are replaced.
        say: Called with each progress message.

    Raises:
        LowtideError: the run failed.
    """
    flow, keys = asked.flow, asked.state_keys
    with described() as surroundings, ground(conf, asked.timestamps, say) as here:
        starts: dict[str, Callable[[], Subject]] = {
            "bare": lambda: here.bare(flow, say),
            "skeleton": lambda: here.skeleton(flow, say, state_keys=keys),
            "flow": lambda: here.flow(flow, say, state_keys=keys, companions=_pacers(asked.snapshot_every_s)),
        }
        found = {name: _measured(starts[name], load, say) for name in SUBJECTS if name in asked.subjects}
    others = {name: found.get(name) for name in OTHERS}
    figures = found.get("flow", {})
    return {
        "flow": flow,
        "rate": load.rate,
        "subjects": list(found),
        **modes(conf, asked.timestamps),
        "seconds": load.seconds,
        "warmup_s": load.warmup_s,
        "snapshot_every_s": asked.snapshot_every_s,
        "state_keys": keys,
        "snapshots": summary([]),
        **figures,
        **others,
        "ratios": ratios(figures, others),
        **surroundings,
    }


def _pacers(every_s: float) -> list[Pacer]:
    return [Pacer(lambda schedule: whole(every_s, schedule))] if every_s else []


def _measured(fresh: Callable[[], Subject], load: Load, say: Say) -> dict[str, Any]:
    subject, arrivals, schedule, observed = undisturbed(fresh, load, say)
    pacer = subject.pacer
    spans = [each.span for each in pacer.taken] if pacer else []
    return {
        "fed_per_s": observed.fed_per_s,
        **Figures.of(arrivals, schedule, observed).as_json(),
        **gaps(arrivals.received_ns, schedule.window_ns, observed.ends_ns, spans).as_json(),
        **({"snapshots": pacer.of_turns([0])} if pacer else {}),
    }


def run_ramp(asked: Asked, rise: Rise, conf: Conf, say: Say) -> dict[str, Any]:
    """Find out how much each subject can take; return the object that `lowtide bench throughput --json` prints.

    Args and errors as in `run`.
    """
    with described() as surroundings, ground(conf, asked.timestamps, say) as here:
        starts = {"bare": here.bare, "skeleton": here.skeleton, "flow": here.flow}
        found = {
            name: _ramped(partial(starts[name], asked.flow, say), rise, say)
            for name in SUBJECTS
            if name in asked.subjects
        }
    others = {name: found.get(name) for name in OTHERS}
    figures = found.get("flow", {})
    return {
        "flow": asked.flow,
        "subjects": list(found),
        **modes(conf, asked.timestamps),
        "step_s": rise.step_s,
        "warmup_s": rise.warmup_s,
        **figures,
        **{f"share_of_{name}": shares(figures, other or {}, max(rise.rates)) for name, other in others.items()},
        **others,
        **surroundings,
    }


def shares(figures: Mapping[str, Any], other: Mapping[str, Any], highest: int) -> dict[str, float | None]:
    """Return a flow's limit as a share of each other subject's, given the highest rate that was tried."""
    found = {name: ratio(figures.get(name), other.get(name)) for name in ("sustained_per_s", "drained_per_s")}
    if other.get("sustained_per_s") == highest:
        # It was not driven to its limit, so a share of its rate would flatter the flow.
        found["sustained_per_s"] = None
    return found


def _ramped(fresh: Callable[[], Subject], rise: Rise, say: Say) -> dict[str, Any]:
    subject, arrivals, schedule, observed = undisturbed(fresh, rise, say)
    found = steps(arrivals, schedule, outputs=subject.way.records.outputs)
    return {
        "sustained_per_s": sustained(found),
        "drained_per_s": drained_per_s(arrivals, schedule),
        "lost": observed.due - len(arrivals),
        "duplicated": arrivals.duplicated,
        "faults": arrivals.faults,
        "generator_lag_p99_ms": observed.lag_p99_ms,
        **observed.cpu_json(arrivals.done(schedule.window_ns)),
        "steps": [step.as_json() for step in found],
    }
