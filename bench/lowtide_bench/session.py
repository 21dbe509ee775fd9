"""One measurement of one system at one rate: starts reader, system and generator in that order, and ends them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lowtide_bench import hops
from lowtide_bench.arrivals import Arrivals
from lowtide_bench.child import Child, ChildFailed
from lowtide_bench.companion import Companion
from lowtide_bench.figures import Observed
from lowtide_bench.load import S, Sent
from lowtide_bench.look import Look
from lowtide_bench.pacer import Pacer
from lowtide_bench.quiet import repeated
from lowtide_bench.ramp import Ramp
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.systems import System, Way

LEAD_S = 0.5
"""From the making of a schedule to its first record: time to start the generator."""
GAUGES_LATE_S = 1.2
"""The service gets the workers' histograms once a second."""
READY_LIMIT_S = 120.0
SAVE_LIMIT_S = 60.0
SILENCE_LIMIT_S = 60.0
STATE_SILENCE_LIMIT_S = 60.0
"""Longest silence while the state is filled."""
POLL_S = 0.1

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A system to measure.

    Attributes:
        way: Its topics, which exist and are empty.
        start: Starts it.
        file: File for the reader's data.
        start_limit_s: Limit from its start to its first record.
        say: Called with each progress message.
        state_keys: Keys in its state before the measurement begins; of the running count only.
        companions: Activity beside the measurement; only under a `Load`.
        silence_limit_s: After the last due record, a silence this long means that all missing records are lost.
    """

    way: Way
    start: Callable[[], System]
    file: Path
    start_limit_s: float
    say: Say
    state_keys: int = 0
    companions: Sequence[Companion] = ()
    silence_limit_s: float = SILENCE_LIMIT_S

    @property
    def pacer(self) -> Pacer | None:
        """The companion that takes snapshots, if there is one."""
        return next((each for each in self.companions if isinstance(each, Pacer)), None)


def observe(subject: Subject, load: Sent[S]) -> tuple[Arrivals, S, Observed]:
    """Send a system its records and keep the output, whatever else the machine does.

    Returns:
        The arrivals, the schedule of the records, and the observations from outside.

    Raises:
        LowtideError: the system ended, or something did not happen in time; nothing is left running.
    """
    way, say = subject.way, subject.say
    with ExitStack() as stack:
        reader = start_reader(stack, subject)
        _send_probes(way)
        began = time.time_ns()
        system = subject.start()
        stack.callback(system.stop)
        start_s = (first_record(reader, system, subject.start_limit_s) - began) / NS
        say(f"the first record arrived after {start_s:.1f} s")
        fed_per_s = _fill(subject, system, reader) if subject.state_keys else None
        schedule = load.schedule(time.time_ns() + round(LEAD_S * NS))
        generator = child(
            stack, "lowtide_bench.generator", {**way.task, "topic": way.source, "schedule": asdict(schedule)}
        )
        for companion in subject.companions:
            assert isinstance(schedule, Schedule), "a ramp has no companions"
            stack.callback(companion.abandon)
            companion.begin(system, schedule)
        before, after = _watch(subject, system, schedule, reader)
        sent = _finish(generator, system, load.limit_s)
        for companion in subject.companions:
            companion.end()
            companion.check()
        due = way.records.outputs(int(sent["finished"]))
        limit_s = max(load.limit_s, 2 * subject.silence_limit_s)
        reader.send(awaiting(due + way.partitions + subject.state_keys, limit_s, subject.silence_limit_s))
        say("waiting for the last records")
        reader.expect("saved", limit_s + SAVE_LIMIT_S, lambda _: system.check())
        system.check()
        time.sleep(GAUGES_LATE_S)
        observed = Observed(
            sent=int(sent["finished"]),
            due=due,
            lag_p99_ms=sent["lag_p99_ms"],
            lag_max_ms=sent["lag_max_ms"],
            ends_ns=system.epoch_ends_ns(),
            hops=hops.between(before.hops, system.hops()),
            cpu_s=after.cpu_s(before),
            noise=after.noise(before, low=load.low),
            start_s=start_s,
            fed_per_s=fed_per_s,
        )
    return Arrivals.load(subject.file, way.records), schedule, observed


def undisturbed(fresh: Callable[[], Subject], load: Sent[S], say: Say) -> tuple[Subject, Arrivals, S, Observed]:
    """Observe a system, and repeat that while the machine disturbs it; see `quiet`.

    Args:
        fresh: Makes the subject of each try, with topics and companions of its own.
        load: The load.
        say: Called with the disturbance of a try.

    Returns:
        The subject that was kept, and what `observe` returned for it.
    """

    def measure() -> tuple[Subject, tuple[Arrivals, S, Observed]]:
        subject = fresh()
        return subject, observe(subject, load)

    kept, tries = repeated(measure, lambda found: found[1][2].noise, say, load.tries)
    subject, (arrivals, schedule, observed) = kept
    return subject, arrivals, schedule, replace(observed, tries=tries)


def child(stack: ExitStack, module: str, task: Mapping[str, object]) -> Child:
    """Start a process that ends with the stack."""
    started = Child(module, task)
    stack.callback(started.end)
    return started


def start_reader(stack: ExitStack, subject: Subject) -> Child:
    """Start the reader of the output, which ends with the stack, and wait until it reads."""
    way = subject.way
    reader = child(stack, "lowtide_bench.reader", {**way.task, "topic": way.sink, "file": str(subject.file)})
    reader.expect("ready", READY_LIMIT_S)
    return reader


def awaiting(records: int, limit_s: float, silence_s: float = SILENCE_LIMIT_S) -> dict[str, float]:
    """Return the line that has the reader end once it has this many records, or none came for so long."""
    return {"await": records, "until": time.monotonic() + limit_s, "silence_s": silence_s}


def _send_probes(way: Way) -> None:
    """Send one record to each partition, so that the flow's start shows in its output."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": way.kafka})
    records = way.records
    for number in range(1, way.partitions + 1):
        key, value = records.message(-number, time.time_ns())
        producer.produce(way.source, value, key, records.partition(-number, way.partitions))
    if producer.flush(READY_LIMIT_S):
        raise ChildFailed(f"Kafka at {way.kafka} did not take the first records within {READY_LIMIT_S:g} s")


def first_record(reader: Child, system: System, limit_s: float) -> int:
    """Wait for the first records, one of each partition; return the first one's time of receipt, ns since 1970.

    Raises:
        LowtideError: the system has ended, or they did not come in time.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        system.check()
        line = reader.hear(POLL_S)
        if line is not None and "probed" in line:
            return int(line["probed"])
    raise ChildFailed(
        f"no record came through within {limit_s:g} s",
        way_out="see the log; on a slow machine, raise job.start_limit_s",
    )


def _fill(subject: Subject, system: System, reader: Child) -> float:
    """Send one record of each key of the state at full speed, and wait until all came out; return records/s."""
    way, wanted, began = subject.way, subject.state_keys, time.monotonic()
    with ExitStack() as stack:
        task = {"kafka": way.kafka, "topic": way.source, "partitions": way.partitions, "state_keys": wanted}
        feeder = child(stack, "lowtide_bench.feeder", task)
        received, heard_at = 0, began
        while received < wanted + way.partitions:
            system.check()
            feeder.hear(0.001)
            line = reader.hear(POLL_S)
            if line is not None and line.get("received", 0) > received:
                received, heard_at = line["received"], time.monotonic()
                subject.say(f"filling the state: {received} of {wanted} keys")
            elif time.monotonic() - heard_at > STATE_SILENCE_LIMIT_S:
                raise ChildFailed(
                    f"{received} of {wanted} keys of the state came through, then none for {STATE_SILENCE_LIMIT_S:g} s",
                    way_out="see the log; lower --state-keys",
                )
    return round(wanted / (time.monotonic() - began), 1)


def _watch(subject: Subject, system: System, schedule: Schedule | Ramp, reader: Child) -> tuple[Look, Look]:
    """Look at the system at both ends of the window, and report progress in between."""
    looks = []
    for end, what in zip(schedule.window_ns, ("warming up", "measuring"), strict=True):
        while (left := (end - time.time_ns()) / NS) > 0:
            line = reader.hear(min(left, 1.0))
            if line is not None and "received" in line:
                system.check()
                for companion in subject.companions:
                    companion.check()
                subject.say(f"{what}: {left:.0f} s left, {line['received']} records received")
        looks.append(Look.at(system))
    return looks[0], looks[1]


def _finish(generator: Child, system: System, limit_s: float) -> dict[str, float]:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        system.check()
        line = generator.hear(POLL_S)
        if line is not None and "finished" in line:
            return line
    raise ChildFailed(
        f"the generator was still sending {limit_s:.0f} s after its planned end",
        way_out="lower --rate: this machine cannot generate that many",
    )
