"""A preview of a recovery: its commit, the ones passed over, changes of the flow, the input to read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lowtide.cli.graph_readers import Readers, readers_in_graph
from lowtide.cli.output import OnProgress, size, table, time_of
from lowtide.cli.snapshot_place import opened
from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import Topics
from lowtide.core.fronts.register import FrontRegister, Partition
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.driver.frozen import settled
from lowtide.driver.homes import read_elsewhere
from lowtide.driver.placement import START, refuse_forgotten, refuse_other_delivery
from lowtide.driver.preflight import Surroundings, sink_topics
from lowtide.driver.preflight import look as look_at_kafka
from lowtide.driver.record_types import changed_parameters, changed_records
from lowtide.driver.recovery import StartFrom, refuse_other_state
from lowtide.errors import LowtideError
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.graph import FlowGraph
from lowtide.sinks.contract import LaneName
from lowtide.sinks.kafka.lasts import newest, topic_of
from lowtide.sinks.kafka.lasts_records import durable_of
from lowtide.wording import count_of
from lowtide_snapshots.commits.choice import Choice, choose
from lowtide_snapshots.format.fingerprint import Difference, compare
from lowtide_snapshots.job.store import JobStore


@dataclass(frozen=True, slots=True)
class Again:
    """The part of a source partition that is read again.

    Attributes:
        topic: Its topic.
        partition: Its number there.
        front: Its front's number; None if the next life registers it.
        offset: The first offset that is read.
        end: The topic's end now.
        label_ms: The largest time before the offset; None if nothing was read before.
    """

    topic: str
    partition: int
    front: int | None
    offset: int
    end: int
    label_ms: int | None

    @property
    def records(self) -> int:
        """Records up to the current end, at most: transaction markers and compacted records take offsets too."""
        return max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Everything known about a start in advance.

    Attributes:
        plan: Of the current flow, with the lanes of the job's record.
        choice: The commit that it begins from, verified; None if it begins without state.
        commits: How many commits the job has.
        newest: The id of the last one.
        differences: Between the current flow and that of the commit; of records, and that of the last life.
        again: The records to read, by front.
        leader: The holder of the job's lease; None if it is free.
        twice: True if recomputed output is delivered again: `job.delivery` is "at_least_once".
        refusal: The error with which the start would be refused; None if it would not.
        redelivered: Records that readers see again at most, as a new output generation; None without a redelivery.
        readers: The other jobs of the graph that read what the job writes.
    """

    plan: Plan
    choice: Choice | None
    commits: int
    newest: str
    differences: tuple[Difference, ...]
    again: tuple[Again, ...]
    leader: str | None
    twice: bool
    refusal: LowtideError | None = None
    redelivered: int | None = None
    readers: Readers = Readers({})  # noqa: RUF009 - a frozen value

    @property
    def start(self) -> StartFrom:
        """The start for the next life: exactly the commit shown, already verified."""
        again = self.redelivered is not None
        if self.choice is None:
            return StartFrom(no_state=True, redeliver=again)
        chosen = self.choice.commit
        return StartFrom(commit=chosen.id, redeliver=again, verified=chosen.sha256)

    @property
    def records(self) -> int:
        """Records to read until now is reached, at most."""
        return sum(each.records for each in self.again)

    def refuse(self) -> None:
        """Refuse a flow that cannot read the state, or does not fit what was delivered (errors: LowtideError)."""
        if self.choice is not None:
            refuse_other_state(self.plan, self.choice.manifest, lambda _: None)
        if self.refusal is not None:
            raise self.refusal

    def page(self) -> str:
        """Return it as text for people."""
        rows = [
            (
                "new" if each.front is None else str(each.front),
                f"{each.topic}-{each.partition}",
                f"{each.offset:,}",
                time_of(each.label_ms),
                f"{each.end:,}",
                f"{each.records:,}",
            )
            for each in self.again
        ]
        headings = ("front", "partition", "from offset", "largest time before (UTC)", "end", "to be read")
        again = "what was delivered is delivered again" if self.twice else "nothing is delivered twice"
        if self.redelivered is not None:
            again = f"readers see {count_of(self.redelivered, 'record')} once more at most, as a new output generation"
        total = f"{count_of(self.records, 'record')} to be read until now is reached; {again}"
        return "\n".join([*self._begins(), "", table(headings, rows), "", total, *self.readers.lines(self._seen)])

    def as_object(self) -> dict[str, Any]:
        """Return it as plain values."""
        commit = None
        if self.choice is not None:
            chosen, manifest = self.choice.commit, self.choice.manifest
            commit = {
                "id": chosen.id,
                "name": chosen.name,
                "min_time_ms": chosen.min_time_ms,
                "committed": chosen.at,
                "parts": len(manifest.parts),
                "rows": manifest.rows,
                "bytes": manifest.bytes,
            }
        skipped = self.choice.skipped if self.choice is not None else ()
        return {
            "job": self.plan.name,
            "commit": commit,
            "skipped": [{"id": each.id, "min_time_ms": each.min_time_ms, "why": why} for each, why in skipped],
            "differences": [asdict(each) for each in self.differences],
            "fronts": [{**asdict(each), "records": each.records} for each in self.again],
            "records": self.records,
            "refused": None if self.refusal is None else self.refusal.what,
            "redelivered": self.redelivered,
            "readers": self.readers.as_object(),
            "leader": self.leader,
        }

    @property
    def _seen(self) -> str:
        """The view that the readers of the job's topics have of this start."""
        if self.redelivered is not None:
            return (
                f"gets up to {count_of(self.redelivered, 'record')} a second time, and late; its delivered time stands "
                "until the job has delivered them"
            )
        if self.twice:
            return "gets again what the job delivers again; its delivered time stands meanwhile"
        return (
            f"gets nothing twice, and nothing new until the job has read {count_of(self.records, 'record')} again at "
            "most; its delivered time stands meanwhile"
        )

    def _begins(self) -> Iterator[str]:
        job = self.plan.name
        if self.choice is None:
            of = f", though there are {count_of(self.commits, 'commit')}" if self.commits else ""
            yield f'job "{job}" begins without state, where it first read its sources{of}'
        else:
            chosen, manifest = self.choice.commit, self.choice.manifest
            called = f' "{chosen.name}"' if chosen.name else ""
            state = (
                f"{count_of(manifest.rows, 'row')} in {count_of(len(manifest.parts), 'part')}, {size(manifest.bytes)}"
            )
            until = f"all before {time_of(chosen.min_time_ms)} UTC"
            yield f'job "{job}" begins from commit {chosen.id}{called}, with {until}: {state}'
            if self.redelivered is not None and chosen.id != self.newest:
                yield "commits above it are dropped: what they hold is recreated"
            for commit, why in self.choice.skipped:
                yield f"DAMAGED, skipped: commit {commit.id} at {time_of(commit.min_time_ms)} UTC: {why}"
        for each in self.differences:
            yield f"the flow has changed: {each.what}" + (", so it cannot begin from here" if each.fatal else "")
        if self.refusal is not None:
            yield f"it cannot begin from here: {self.refusal.what}"
        if self.leader is not None:
            yield f"{self.leader} still leads the job; a start waits a few seconds for it to end"


def look(flow: FlowGraph, conf: Conf, start: StartFrom, progress: OnProgress) -> Recovery:
    """Find out what a start would begin with; nothing is changed.

    Args:
        flow: The current flow.
        conf: Where everything is.
        start: Which commit is asked for.
        progress: Called with the number of verified parts of a commit.

    Raises:
        FlowError: the flow is not sound, or is not that of the job's record.
        NotRunning: there never was such a job.
        SnapshotDamaged: no commit that was asked for is whole.
        ConfError: the requested commit does not exist.
        SourceGone, SourceTooShort: the sources do not have what would be read again.
        ServiceUnavailable: ZooKeeper, Kafka or the store does not answer.
    """
    plan, conf = settled(compile_job(flow, conf), conf)
    found = look_at_kafka(plan, conf)
    ends = Topics(conf.kafka).ends(found.sources)
    with opened(conf, flow.name) as (snapshots, store):
        commits = snapshots.log.commits()
        choice = None
        if not start.without_state(commits):
            choice = choose(
                snapshots.log, snapshots.files, commit=start.commit, before_ms=start.before_ms, progress=progress
            )
        register, leader = FrontRegister.from_json(store.fronts()), store.holder()
        refusal = _stateless(start, flow.name, commits)
        refusal = refusal or _refusal(plan, conf, store, choice, again=start.redeliver)
        kept = store.records()
    of_life = (*changed_records(kept, plan), *changed_parameters(kept, plan))
    differences: list[Difference] = []
    if choice is not None:
        steps = saved_steps(plan)
        shapes = [step.shape for step in steps.values()]
        differences = compare(choice.manifest.flow, shapes, {name: step.defaults for name, step in steps.items()})
    again = tuple(_again(register, found, ends, choice, plan.slack_ms))
    twice = conf.job.delivery == "at_least_once"
    redelivered = None
    if start.redeliver:
        since_ms = 0 if choice is None else choice.manifest.min_time_ms
        redelivered = _delivered_since(Topics(conf.kafka), sink_topics(plan), since_ms)
    newest = commits[-1].id if commits else ""
    readers = readers_in_graph(conf, plan.name, sink_topics(plan))
    return Recovery(
        plan,
        choice,
        len(commits),
        newest,
        (*differences, *of_life),
        again,
        leader,
        twice,
        refusal,
        redelivered,
        readers,
    )


def _stateless(start: StartFrom, job: str, commits: Sequence[object]) -> LowtideError | None:
    """Return the error of a start that requires state and has none."""
    try:
        start.refuse_without_state(job, commits)
    except LowtideError as error:
        return error
    return None


def _refusal(plan: Plan, conf: Conf, store: JobStore, choice: Choice | None, *, again: bool) -> LowtideError | None:
    """Return the error with which a start would be refused; it claims nothing, so more may be delivered meanwhile."""
    known, generation = store.lasts()
    if known is None or conf.job.delivery != "exactly_once":
        return None
    last = dict[LaneName, OrderKey]()
    if known:
        topic = topic_of(plan.name, generation)
        table = newest(librdkafka_settings(conf.kafka), topic, conf.kafka.delivery_limit_ms / 1000)
        last |= durable_of(table, topic).last
    last |= read_elsewhere(store, plan, conf)
    manifest = None if choice is None else choice.manifest
    begins = START if manifest is None else manifest.tick
    try:
        refuse_forgotten(plan, last)
        if not again:
            refuse_other_delivery(plan, store.steps(), manifest, last, begins=begins, generation=generation)
    except LowtideError as error:
        return error
    return None


def _delivered_since(topics: Topics, names: list[str], ms: int) -> int:
    """Count the offsets of sinks' topics with a timestamp from `ms` on, transaction markers included."""
    sinks = topics.describe_all(names)
    firsts, ends = topics.since(sinks, ms), topics.ends(sinks)
    return sum(ends[key] - first for key, first in firsts.items() if first >= 0)


def _again(
    register: FrontRegister,
    found: Surroundings,
    ends: dict[tuple[str, int], int],
    choice: Choice | None,
    slack_ms: int,
) -> Iterator[Again]:
    """Yield the part to read of each partition, registered ones first."""
    ids = {topic.name: topic.id for topic in found.sources}
    there = {Partition(name, ids[name], number): offset for (name, number), offset in found.earliest.items()}
    fronts = {} if choice is None else {front.number: front for front in choice.manifest.fronts}
    commit = "" if choice is None else choice.manifest.id
    starts = register.starts({number: front.offset for number, front in fronts.items()}, there, commit=commit)
    for entry in register.entries:
        key = (entry.partition.source, entry.partition.partition)
        front = fronts.get(entry.number)
        label_ms = None if front is None or front.label is None else front.label * slack_ms
        yield Again(*key, entry.number, starts[entry.number], ends[key], label_ms)
    for partition, offset in sorted(there.items()):
        if register.find(partition) is None:
            key = (partition.source, partition.partition)
            yield Again(*key, None, offset, ends[key], None)
