"""A whole run: Kafka and ZooKeeper, then the bare loop, the skeleton and the flow in turn; one object of figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from lowtide.conf import Conf
from lowtide_bench.arrivals import Arrivals
from lowtide_bench.figures import Figures, Observed
from lowtide_bench.gaps import Gaps, gaps
from lowtide_bench.ground import Ground, Timestamps, described, ground, modes
from lowtide_bench.load import Load, Rise
from lowtide_bench.pacer import Pacer
from lowtide_bench.phases import whole
from lowtide_bench.ramp import drained_per_s, steps, sustained
from lowtide_bench.schedule import Schedule
from lowtide_bench.session import Say, Subject, observe
from lowtide_bench.sides import OTHERS, SUBJECTS, ratio, ratios


def run(
    flow: str,
    load: Load,
    conf: Conf,
    say: Say,
    *,
    subjects: Collection[str] = SUBJECTS,
    warm_s: float = 0,
    timestamps: Timestamps = "create",
    snapshot_every_s: float = 0,
    state_keys: int = 0,
) -> dict[str, Any]:
    """Measure the bare loop, the skeleton and the flow, and return the object of `lowtide bench latency --json`.

    Everything it starts (Kafka and ZooKeeper in a temporary folder, Spark, the processes around them) ends with it.

    Args:
        flow: One of `flows.FLOWS`.
        load: The load.
        conf: Conf for the flow; the services' addresses and all folders are replaced.
        say: Called with each progress message.
        subjects: The `SUBJECTS` to measure.
        warm_s: Duration of the same load on the broker before that; see `warm`.
        timestamps: As in `Ground`.
        snapshot_every_s: Interval of snapshots in the measured window; 0 for none.
        state_keys: Keys in the running count's state before the measurement, also in the skeleton's.

    Raises:
        LowtideError: the run failed.
    """
    pacer = Pacer(lambda schedule: whole(snapshot_every_s, schedule))
    companions = [pacer] if snapshot_every_s else []
    with described() as told, ground(conf, timestamps, say) as here:
        warm(here, flow, load.rate, warm_s, say)
        starts: dict[str, Callable[[], Subject]] = {
            "bare": lambda: here.bare(flow, say),
            "skeleton": lambda: here.skeleton(flow, say, state_keys=state_keys),
            "flow": lambda: here.flow(flow, say, state_keys=state_keys, companions=companions),
        }
        found = {
            name: _measured(starts[name](), load, pacer if name == "flow" else None)
            for name in SUBJECTS
            if name in subjects
        }
    others = {name: found.get(name) for name in OTHERS}
    figures = found.get("flow", {})
    return {
        "flow": flow,
        "rate": load.rate,
        "subjects": list(found),
        **modes(conf, timestamps),
        "seconds": load.seconds,
        "warmup_s": load.warmup_s,
        "warm_s": warm_s,
        "snapshot_every_s": snapshot_every_s,
        "state_keys": state_keys,
        **figures,
        "snapshots": pacer.of_turns([0]),
        **others,
        "ratios": ratios(figures, others),
        **told,
    }


def warm(here: Ground, flow: str, rate: int, seconds: float, say: Say) -> None:
    """Give the broker a load and transactions for this long, on topics of their own; its JVM compiles for a minute."""
    if seconds:
        say(f"warming the broker for {seconds:g} s: the bare loop, with transactions")
        subject = here.transactions(flow, lambda what: say(f"the broker: {what}"))
        observe(subject, Load(rate, 0, seconds))


def _measured(subject: Subject, load: Load, pacer: Pacer | None) -> dict[str, Any]:
    arrivals, schedule, observed = observe(subject, load)
    found = gaps_of(arrivals, schedule, observed, pacer)
    return {
        "fed_per_s": observed.fed_per_s,
        **Figures.of(arrivals, schedule, observed).as_json(),
        **found.as_json(),
    }


def gaps_of(arrivals: Arrivals, schedule: Schedule, observed: Observed, pacer: Pacer | None) -> Gaps:
    """Return the gaps of the measured window."""
    spans = [] if pacer is None else [each.span for each in pacer.taken]
    return gaps(arrivals.received_ns, schedule.window_ns, observed.ends_ns, spans)


def run_ramp(
    flow: str,
    rise: Rise,
    conf: Conf,
    say: Say,
    *,
    subjects: Collection[str] = SUBJECTS,
    warm_s: float = 0,
    timestamps: Timestamps = "create",
) -> dict[str, Any]:
    """Find out how much each subject can take; return the object that `lowtide bench throughput --json` prints.

    Args and errors as in `run`.
    """
    with described() as told, ground(conf, timestamps, say) as here:
        warm(here, flow, rise.rates[0], warm_s, say)
        starts = {"bare": here.bare, "skeleton": here.skeleton, "flow": here.flow}
        found = {name: _ramped(starts[name](flow, say), rise) for name in SUBJECTS if name in subjects}
    others = {name: found.get(name) for name in OTHERS}
    figures = found.get("flow", {})
    return {
        "flow": flow,
        "subjects": list(found),
        **modes(conf, timestamps),
        "step_s": rise.step_s,
        "warmup_s": rise.warmup_s,
        "warm_s": warm_s,
        **figures,
        **{f"share_of_{name}": shares(figures, other or {}, max(rise.rates)) for name, other in others.items()},
        **others,
        **told,
    }


def shares(figures: Mapping[str, Any], other: Mapping[str, Any], highest: int) -> dict[str, float | None]:
    """Return a flow's limit as a share of each other subject's, given the highest rate that was tried."""
    found = {name: ratio(figures.get(name), other.get(name)) for name in ("sustained_per_s", "drained_per_s")}
    if other.get("sustained_per_s") == highest:
        # It was not driven to its limit, so a share of its rate would flatter the flow.
        found["sustained_per_s"] = None
    return found


def _ramped(subject: Subject, rise: Rise) -> dict[str, Any]:
    arrivals, schedule, observed = observe(subject, rise)
    found = steps(arrivals, schedule)
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
