"""Cost of snapshots: one job under one load, with snapshots at one pace after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lowtide.conf import Conf
from lowtide_bench import boundaries
from lowtide_bench.arrivals import Arrivals, percentiles
from lowtide_bench.figures import null_for_nan
from lowtide_bench.gaps import Gaps, gaps
from lowtide_bench.ground import described, ground, modes
from lowtide_bench.pacer import Pacer
from lowtide_bench.phases import Course, Phase
from lowtide_bench.schedule import Schedule
from lowtide_bench.session import Say, Subject, undisturbed

FLOW = "running-count"
_RATIOS = ("p50_ms", "p99_ms", "p99_all_ms")


def run(course: Course, rate: int, warmup_s: float, conf: Conf, say: Say, *, state_keys: int) -> dict[str, Any]:
    """Measure the running count's variants, and return the object that `lowtide bench snapshots --json` prints.

    Args:
        course: The variants.
        rate: Records per second.
        warmup_s: Duration of sending before the first variant.
        conf: As in `lowtide_bench.run.run`.
        say: Called with each progress message.
        state_keys: Keys in the state before that.

    Raises:
        LowtideError: the run failed.
    """
    with described() as surroundings, ground(conf, "create", say) as here:

        def fresh() -> Subject:
            return here.flow(FLOW, say, state_keys=state_keys, companions=[Pacer(course.phases)])

        subject, arrivals, schedule, observed = undisturbed(fresh, course.load(rate, warmup_s), say)
    assert subject.pacer is not None, "it has just been given one"
    return {
        "flow": FLOW,
        "rate": rate,
        **modes(conf, "create"),
        "state_keys": state_keys,
        "fed_per_s": observed.fed_per_s,
        "seconds": course.seconds,
        "settle_s": course.settle_s,
        "rounds": course.rounds,
        "warmup_s": warmup_s,
        "variants": variants_of(course, schedule, arrivals, observed.ends_ns, subject.pacer),
        "lost": observed.due - len(arrivals),
        "duplicated": arrivals.duplicated,
        "faults": arrivals.faults,
        "start_s": round(observed.start_s, 2),
        "generator_lag_p99_ms": observed.lag_p99_ms,
        **observed.noise_json(),
        **surroundings,
    }


def variants_of(
    course: Course, schedule: Schedule, arrivals: Arrivals, ends_ns: Sequence[int], pacer: Pacer
) -> list[dict[str, Any]]:
    """Return the figures of each variant, over all of its turns; `ends_ns` are the ends of epochs."""
    phases = course.phases(schedule)
    return compared([_variant(course.turns_of(every), phases, arrivals, ends_ns, pacer) for every in course.every])


def compared(variants: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the variants, each compared with the one without snapshots; null if there is none.

    `p50_change` and the others are ratios less 1; `gap_change_ms` is the difference of the longest gaps without an
    epoch's boundary in them.
    """
    base = next((variant for variant in variants if variant["every_s"] == 0), None)
    found = []
    for variant in variants:
        changes: dict[str, float | None] = {}
        for name in _RATIOS:
            was, now = None if base is None else base[name], variant[name]
            changes[name.replace("_ms", "_change")] = round(now / was - 1, 4) if was and now is not None else None
        was, now = None if base is None else base["gap_quiet_max_ms"], variant["gap_quiet_max_ms"]
        changes["gap_change_ms"] = None if was is None or now is None else round(now - was, 3)
        found.append({**variant, **changes})
    return found


def _variant(
    turns: Sequence[int], phases: Sequence[Phase], arrivals: Arrivals, ends_ns: Sequence[int], pacer: Pacer
) -> dict[str, Any]:
    """Return the figures of all turns of one variant together."""
    mine = [phases[turn] for turn in turns]
    caught = boundaries.find(arrivals, ends_ns).caught
    due = np.zeros(len(arrivals), np.bool_)
    for phase in mine:
        due |= (arrivals.sent_ns >= phase.start_ns) & (arrivals.sent_ns < phase.end_ns)
    latency = arrivals.latency_ms()
    p50, p99 = percentiles(latency[due & ~caught], (50, 99))
    p99_all, longest = percentiles(latency[due], (99, 100))
    figures = {"p50_ms": p50, "p99_ms": p99, "p99_all_ms": p99_all, "max_ms": longest}
    spans = [each.span for each in pacer.taken]
    found = [gaps(arrivals.received_ns, (phase.start_ns, phase.end_ns), ends_ns, spans) for phase in mine]
    return {
        "every_s": mine[0].every_s,
        "records": int(due.sum()),
        **{name: null_for_nan(round(value, 3)) for name, value in figures.items()},
        **Gaps.longest_of(found).as_json(),
        "snapshots": pacer.of_turns(turns),
    }
