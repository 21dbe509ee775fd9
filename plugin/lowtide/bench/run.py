"""A whole run at one rate: Kafka and ZooKeeper, the bare loop, the flow; one object of figures."""

from __future__ import annotations

from typing import Any

from lowtide.bench.arrivals import Arrivals
from lowtide.bench.figures import Figures, Observed
from lowtide.bench.gaps import Gaps, gaps
from lowtide.bench.ground import Timestamps, described, ground, modes
from lowtide.bench.load import Load, Rise
from lowtide.bench.pacer import Pacer
from lowtide.bench.phases import whole
from lowtide.bench.ramp import drained_per_s, steps, sustained
from lowtide.bench.schedule import Schedule
from lowtide.bench.session import Say, Subject, observe
from lowtide.conf import Conf


def run(
    flow: str,
    load: Load,
    conf: Conf,
    say: Say,
    *,
    timestamps: Timestamps = "create",
    snapshot_every_s: float = 0,
    state_keys: int = 0,
) -> dict[str, Any]:
    """Measure the bare loop, then the flow, and return the object that `lowtide bench latency --json` prints.

    Everything it starts (Kafka and ZooKeeper in a temporary folder, Spark, the processes around them) ends with it.

    Args:
        flow: One of `flows.FLOWS`.
        load: What is sent.
        conf: How the flow is run; the services' addresses and all folders are replaced.
        say: Told what happens.
        timestamps: As in `Ground`.
        snapshot_every_s: How often a snapshot is due in the time that is measured; 0 for never.
        state_keys: How many keys are in the running count's state before.

    Raises:
        LowtideError: what ended the run.
    """
    with described() as told, ground(conf, timestamps, say) as here:
        bare, _ = _measured(here.bare(flow, say), load, None)
        pacer = Pacer(lambda schedule: whole(snapshot_every_s, schedule))
        subject = here.flow(flow, say, state_keys=state_keys, companions=[pacer] if snapshot_every_s else [])
        figures, observed = _measured(subject, load, pacer)
    return {
        "flow": flow,
        "rate": load.rate,
        **modes(conf, timestamps),
        "seconds": load.seconds,
        "warmup_s": load.warmup_s,
        "snapshot_every_s": snapshot_every_s,
        "state_keys": state_keys,
        "fed_per_s": observed.fed_per_s,
        **figures,
        "snapshots": pacer.of_turns([0]),
        "bare": bare,
        **told,
    }


def _measured(subject: Subject, load: Load, pacer: Pacer | None) -> tuple[dict[str, Any], Observed]:
    arrivals, schedule, observed = observe(subject, load)
    found = gaps_of(arrivals, schedule, observed, pacer)
    return {**Figures.of(arrivals, schedule, observed).as_json(), **found.as_json()}, observed


def gaps_of(arrivals: Arrivals, schedule: Schedule, observed: Observed, pacer: Pacer | None) -> Gaps:
    """Return the gaps of the window that is measured."""
    spans = [] if pacer is None else [each.span for each in pacer.taken]
    return gaps(arrivals.received_ns, schedule.window_ns, observed.ends_ns, spans)


def run_ramp(flow: str, rise: Rise, conf: Conf, say: Say, *, timestamps: Timestamps = "create") -> dict[str, Any]:
    """Find out how much the bare loop and the flow can take; return what `lowtide bench throughput --json` prints.

    Args and errors as of `run`.
    """
    with described() as told, ground(conf, timestamps, say) as here:
        bare = _ramped(here.bare(flow, say), rise)
        figures = _ramped(here.flow(flow, say), rise)
    shares = {name: _share(figures[name], bare[name]) for name in ("sustained_per_s", "drained_per_s")}
    if bare["sustained_per_s"] == max(rise.rates):
        # The loop was not taken to its limit, so a share of what it did would flatter.
        shares["sustained_per_s"] = None
    return {
        "flow": flow,
        **modes(conf, timestamps),
        "step_s": rise.step_s,
        "warmup_s": rise.warmup_s,
        **figures,
        "share_of_bare": shares,
        "bare": bare,
        **told,
    }


def _share(figure: float | None, of: float | None) -> float | None:
    return round(figure / of, 3) if figure and of else None


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
        "steps": [step.as_json() for step in found],
    }
