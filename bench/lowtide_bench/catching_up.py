"""Speed of working off a backlog, by the span of time that its timestamps cover."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from statistics import median
from typing import Any

from lowtide.conf import Conf
from lowtide_bench.arrivals import Arrivals
from lowtide_bench.backlog import Backlog, Drained
from lowtide_bench.child import ChildFailed
from lowtide_bench.flows import COUNTING as FLOW
from lowtide_bench.ground import PARTITIONS, Ground, described, ground, modes
from lowtide_bench.killable import Killable
from lowtide_bench.schedule import NS
from lowtide_bench.session import SAVE_LIMIT_S, Say, Subject, awaiting, child, first_record, start_reader
from lowtide_bench.sides import OTHERS, SUBJECTS, ratio
from lowtide_bench.systems import Bare, System, Way

SLOWEST_PER_S = 1_000
"""Give up on anything slower, in records per second."""
LATE_LIMIT_S = 30.0
"""Additional time limit, whatever the backlog's size."""
SLOW = "lower --records: this machine is slow"

Side = Mapping[str, Any]
"""Result of one backlog in one system, as in the JSON object."""


def run(
    spans_s: Sequence[float],
    records: int,
    rounds: int,
    conf: Conf,
    say: Say,
    *,
    subjects: Collection[str] = SUBJECTS,
) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench catch-up --json` prints.

    Args:
        spans_s: From a backlog's first timestamp to its last.
        records: Records in each backlog.
        rounds: Number of measurements of each span, all spans in turn.
        conf: As in `lowtide_bench.run.run`.
        say: Called with each progress message.
        subjects: The `SUBJECTS` to measure.

    Raises:
        LowtideError: the run failed.
    """
    found: dict[float, list[dict[str, Side]]] = {span_s: [] for span_s in spans_s}
    with described() as surroundings, ground(conf, "create", say) as here:
        for number in range(rounds):
            for place, (span_s, sides) in enumerate(found.items()):
                sides.append(_measured(here, f"span-{place}-{number}", span_s, records, subjects, say))
    spans = [{"span_s": span_s, **summary(sides), "rounds": sides} for span_s, sides in found.items()]
    return {
        "flow": FLOW,
        "records": records,
        "partitions": PARTITIONS,
        "subjects": [name for name in SUBJECTS if name in subjects],
        **modes(conf, "create"),
        "spans": spans,
        **surroundings,
    }


def summary(rounds: Sequence[Mapping[str, Side]]) -> dict[str, Any]:
    """Return medians of several rounds with one span: records per second, and the flow's as a share of the others'."""
    rates = {name: _median([each[name]["drained_per_s"] for each in rounds]) for name in rounds[0]}
    flows = [each.get("flow", {}).get("drained_per_s") for each in rounds]
    shares = {
        name: _median(
            [ratio(flow, each.get(name, {}).get("drained_per_s")) for flow, each in zip(flows, rounds, strict=True)]
        )
        for name in OTHERS
    }
    return {"drained_per_s": rates, "ratios": shares}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 3) if known and len(known) == len(values) else None


def _measured(
    here: Ground, name: str, span_s: float, records: int, subjects: Collection[str], say: Say
) -> dict[str, Side]:
    """Fill a topic, and have each subject work it off into a topic of its own."""
    source = here.source(name)
    say(f"a backlog of {records} records that cover {span_s:g} s")
    fill(here, source, FLOW, Backlog(time.time_ns(), records, span_s), say)
    starts: dict[str, Callable[[Way], Callable[[], System]]] = {
        "bare": lambda way: lambda: Bare(way),
        "skeleton": here.skeleton_of,
        "flow": lambda way: lambda: Killable(way, here.conf, here.folder, job=way.sink),
    }
    found: dict[str, Side] = {}
    for subject in (each for each in SUBJECTS if each in subjects):
        say(f"{subject}: starting")
        way = here.way(FLOW, f"{name}-{subject}", source=source, passed=subject == "bare")
        found[subject] = drain(here.subject(way, starts[subject](way), say), records)
        say(f"{subject}: {found[subject]['drained_per_s']} records/s")
    return found


def fill(here: Ground, source: str, flow: str, backlog: Backlog, say: Say) -> None:
    """Send a backlog of a flow's records to a topic (errors: ChildFailed)."""
    task = {"flow": flow, "kafka": here.conf.kafka.bootstrap_servers, "topic": source, "partitions": PARTITIONS}
    with ExitStack() as stack:
        feeder = child(stack, "lowtide_bench.feeder", {**task, "backlog": asdict(backlog)})
        line = feeder.expect(
            "fed", _limit_s(backlog.count), lambda line: say(f"filling: {line.get('sent')} sent"), SLOW
        )
    if line["fed"] != backlog.count:
        raise ChildFailed(f"Kafka took {line['fed']} of the backlog's {backlog.count} records")


def drain(subject: Subject, records: int) -> dict[str, Any]:
    """Start a system on a full source, and return the speed of its output, measured from the first record.

    Raises:
        LowtideError: the system ended, or nothing came in time; nothing is left running.
    """
    limit_s = _limit_s(records)
    with ExitStack() as stack:
        reader = start_reader(stack, subject)
        began = time.time_ns()
        system = subject.start()
        stack.callback(system.stop)
        start_s = (first_record(reader, system, subject.start_limit_s) - began) / NS
        reader.send(awaiting(records, limit_s))

        def look(line: Mapping[str, Any]) -> None:
            system.check()
            subject.say(f"catching up: {line.get('received', 0)} of {records} records")

        reader.expect("saved", limit_s + SAVE_LIMIT_S, look, SLOW)
        system.check()
    arrivals = Arrivals.load(subject.file, subject.way.records)
    drained = Drained.of(arrivals)
    return {
        "drained_per_s": None if drained.per_s is None else round(drained.per_s, 1),
        "seconds": round(drained.seconds, 3),
        "start_s": round(start_s, 2),
        "lost": records - len(arrivals),
        "duplicated": arrivals.duplicated,
        "faults": arrivals.faults,
    }


def _limit_s(records: int) -> float:
    return LATE_LIMIT_S + records / SLOWEST_PER_S
