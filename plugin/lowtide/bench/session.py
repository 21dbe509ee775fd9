"""One measurement of one system at one rate: reader, system, generator, in that order, and all of them ended."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from lowtide.bench import hops
from lowtide.bench.arrivals import Arrivals
from lowtide.bench.child import Child, ChildFailed
from lowtide.bench.figures import Figures, Observed
from lowtide.bench.processes import busy_s, cpu_s, descendants, parents
from lowtide.bench.ramp import Ramp
from lowtide.bench.schedule import NS, Schedule
from lowtide.bench.systems import System, Way

LEAD_S = 0.5
"""From the making of a schedule to its first record: the generator is started meanwhile."""
GAUGES_LATE_S = 1.2
"""Workers' histograms come to the service once a second."""
READY_LIMIT_S = 20.0
SAVE_LIMIT_S = 60.0
LATE_LIMIT_S = 30.0
"""How much longer than its schedule, and half as long again, the generator and then the reader may take."""
POLL_S = 0.1

Say = Callable[[str], None]
S = TypeVar("S", Schedule, Ramp)
S_co = TypeVar("S_co", Schedule, Ramp, covariant=True)


class _Sent(Protocol[S_co]):
    """What is sent: a `Load` or a `Rise`."""

    def schedule(self, start_ns: int) -> S_co:
        """Return when each record is due."""

    @property
    def limit_s(self) -> float:
        """How long sending may take, and how long what is then under way may take to arrive."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: so many records a second, for so long, after a warm-up."""

    rate: int
    seconds: float
    warmup_s: float

    def schedule(self, start_ns: int) -> Schedule:
        """Return when each record is due."""
        return Schedule(start_ns, self.rate, self.warmup_s, self.seconds)

    @property
    def limit_s(self) -> float:
        """How long sending may take, and how long what is then under way may take to arrive."""
        return 1.5 * (self.seconds + self.warmup_s) + LATE_LIMIT_S


@dataclass(frozen=True, slots=True)
class Rise:
    """What is sent to find out how much a system can take: so many records a second, each rate for so long.

    Attributes:
        rates: Records a second, rising.
        step_s: How long each is kept up.
        warmup_s: How long the first is kept up before that, rounded up to whole steps.
    """

    rates: tuple[int, ...]
    step_s: float
    warmup_s: float

    def schedule(self, start_ns: int) -> Ramp:
        """Return when each record is due."""
        warmups = math.ceil(self.warmup_s / self.step_s)
        return Ramp(start_ns, (*self.rates[:1] * warmups, *self.rates), self.step_s, warmups)

    @property
    def limit_s(self) -> float:
        """As of `Load`; of what is too much there is a backlog, which takes its time."""
        return 3 * (self.step_s * len(self.rates) + self.warmup_s) + LATE_LIMIT_S


@dataclass(frozen=True, slots=True)
class Subject:
    """A system that is to be measured.

    Attributes:
        way: Its topics, which are there and empty.
        start: Starts it.
        file: Where the reader may write what arrived.
        start_limit_s: How long it may take from its start to its first record.
        say: Told what happens.
    """

    way: Way
    start: Callable[[], System]
    file: Path
    start_limit_s: float
    say: Say


def measure(subject: Subject, load: Load) -> Figures:
    """Measure what a system does under a load; as `observe`."""
    return Figures.of(*observe(subject, load))


def observe(subject: Subject, load: _Sent[S]) -> tuple[Arrivals, S, Observed]:
    """Send a system its records and keep what comes out.

    Returns:
        What arrived, when each record was due, and what was seen from outside meanwhile.

    Raises:
        LowtideError: the system ended, or something did not happen in time; nothing is left running.
    """
    way, say = subject.way, subject.say
    with ExitStack() as stack:
        task = {"flow": way.flow, "passed": way.passed, "kafka": way.kafka, "partitions": way.partitions}
        reader = _child(stack, "lowtide.bench.reader", {**task, "topic": way.sink, "file": str(subject.file)})
        reader.expect("ready", READY_LIMIT_S)
        _send_probes(way)
        began = time.time_ns()
        system = subject.start()
        stack.callback(system.stop)
        start_s = (_probed(reader, system, subject.start_limit_s) - began) / NS
        say(f"the first record arrived after {start_s:.1f} s")
        schedule = load.schedule(time.time_ns() + round(LEAD_S * NS))
        generator = _child(
            stack, "lowtide.bench.generator", {**task, "topic": way.source, "schedule": asdict(schedule)}
        )
        before, after = _watch(system, schedule, reader, say)
        sent = _finish(generator, system, load.limit_s)
        due = way.records.outputs(int(sent["finished"]))
        reader.tell({"await": due + way.partitions, "until": time.monotonic() + load.limit_s})
        say("waiting for the last records")
        reader.expect("saved", load.limit_s + SAVE_LIMIT_S)
        system.check()
        time.sleep(GAUGES_LATE_S)
        observed = Observed(
            sent=int(sent["finished"]),
            due=due,
            lag_p99_ms=sent["lag_p99_ms"],
            lag_max_ms=sent["lag_max_ms"],
            ends_ns=system.epoch_ends_ns(),
            hops=hops.between(before.hops, system.hops()),
            cpu_s={kind: after.cpu_s[kind] - used for kind, used in before.cpu_s.items()},
            others_cpu_s=after.others_s(before),
            start_s=start_s,
        )
    return Arrivals.load(subject.file, way.records), schedule, observed


@dataclass(frozen=True, slots=True)
class _Look:
    """A look at a system: its histograms, and CPU times."""

    hops: Mapping[str, Mapping[int, int]]
    cpu_s: Mapping[str, float]
    ours_s: float
    """CPU time of all processes of the run: generator, reader and Kafka too."""
    all_s: float
    """CPU time of the whole machine."""

    @classmethod
    def at(cls, system: System) -> _Look:
        kinds = system.processes()
        used = {kind: sum(map(cpu_s, pids)) for kind, pids in kinds.items()}
        run = descendants({os.getpid()}, parents()).union(*kinds.values())
        return cls(system.hops(), used, sum(map(cpu_s, run)), busy_s())

    def others_s(self, before: _Look) -> float:
        """Return the CPU time since an earlier look that was none of ours."""
        return max(0.0, self.all_s - before.all_s - (self.ours_s - before.ours_s))


def _child(stack: ExitStack, module: str, task: Mapping[str, object]) -> Child:
    child = Child(module, task)
    stack.callback(child.end)
    return child


def _send_probes(way: Way) -> None:
    """Send one record to each partition, so that the flow's start can be seen at its other end."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": way.kafka})
    records = way.records
    for number in range(1, way.partitions + 1):
        key, value = records.message(-number, time.time_ns())
        producer.produce(way.source, value, key, records.partition(-number, way.partitions))
    if producer.flush(READY_LIMIT_S):
        raise ChildFailed(f"Kafka at {way.kafka} did not take the first records within {READY_LIMIT_S:g} s")


def _probed(reader: Child, system: System, limit_s: float) -> int:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        system.check()
        line = reader.hear(POLL_S)
        if line is not None and "probed" in line:
            return int(line["probed"])
    raise ChildFailed(
        f"no record came through within {limit_s:g} s", way_out="see the log; a slow machine wants job.start_limit_s"
    )


def _watch(system: System, schedule: Schedule | Ramp, reader: Child, say: Say) -> tuple[_Look, _Look]:
    """Look at the system at both ends of the window, and say how things go meanwhile."""
    looks = []
    for end, what in zip(schedule.window_ns, ("warming up", "measuring"), strict=True):
        while (left := (end - time.time_ns()) / NS) > 0:
            line = reader.hear(min(left, 1.0))
            if line is not None and "received" in line:
                system.check()
                say(f"{what}: {left:.0f} s left, {line['received']} records received")
        looks.append(_Look.at(system))
    return looks[0], looks[1]


def _finish(generator: Child, system: System, limit_s: float) -> dict[str, float]:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        system.check()
        line = generator.hear(POLL_S)
        if line is not None and "finished" in line:
            return line
    raise ChildFailed(
        f"the generator could not send its records within {limit_s:.0f} s more than planned",
        way_out="lower --rate: this machine cannot make so many",
    )
