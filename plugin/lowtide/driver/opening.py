"""The start of a life: lease, claims and `last`, taken from ZooKeeper and Kafka in the only safe order.

1. the record is frozen, or held against what the flow asks for (R11)
2. the lease, and a new incarnation
3. every transactional id that any life may have used is claimed, the incarnation is checked again, and only then the
   lanes' `last` and floors are read: nothing of an earlier life can become durable after that (R13, W10). The flow is
   held against the one that delivered them, and takes its place
4. the front register is completed (R3)
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lowtide.assignment.welcome import FrontStart
from lowtide.conf import Conf
from lowtide.connectors.claims import claim, transactional_id
from lowtide.connectors.floor_archive import read_archived
from lowtide.connectors.lasts import Durable, keep_floors, open_lasts, own, read_lasts, topic_of
from lowtide.connectors.lasts_records import lane_name
from lowtide.connectors.loop_topics import LoopTopic, open_loops
from lowtide.connectors.topics import Topic
from lowtide.core.effects import letters_of
from lowtide.core.fronts.end import end_tick
from lowtide.core.fronts.register import FrontRegister, Partition
from lowtide.core.operators.order.order import OrderKey
from lowtide.driver.borrowed_floors import borrow_floors, refuse_half_borrowed
from lowtide.driver.bounds import (
    first_offsets,
    last_offsets,
    preload_ends,
    refuse_other_starts,
    refuse_other_stops,
    starts_of,
    stops_of,
)
from lowtide.driver.compacted import refuse_compacted_replay
from lowtide.driver.frozen import job_record
from lowtide.driver.placement import START, kept_steps, refuse_forgotten, refuse_other_delivery
from lowtide.driver.preflight import Surroundings
from lowtide.driver.record_types import note_records
from lowtide.driver.recovery import Recovered, StartFrom, recover
from lowtide.driver.refusals import fence_ends_life
from lowtide.driver.relied_on import relied_on
from lowtide.errors import FlowError, LifeEnded
from lowtide.flow.formats.bounds import EARLIEST
from lowtide.flow.plan.plan import Plan
from lowtide_snapshots.job.store import JobStore
from lowtide_tracker import Floor

__all__ = ["Opening", "begin_life", "open_life"]

LEASE_SLACK_S = 4.0
"""How much longer than a session's time-out a start waits for the lease of a driver that was killed."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Opening:
    """The state that a life begins with.

    Attributes:
        incarnation: Its number.
        fronts: All fronts of the register, in the order of their numbers.
        topic_ids: The cluster's ids by topic.
        last: What is durable, by sink and lane.
        floors: The floors that are durable.
        unreported: The floors that only commits know.
        relied_on: The largest tick that anything relies on.
        told: The largest published delivered time; None if none was.
        told_again: The largest published one of this output generation; None if none was.
        job_id: The job's id for good.
        start: The tick at which min time begins.
        recovered: The snapshot that the life begins from; None if it begins without state.
        lasts_topic: The topic in which lanes keep their `last`; empty if they keep none.
        generation: Of the output.
        loops: The topic of each way back to a loop's head.
    """

    incarnation: int
    fronts: tuple[FrontStart, ...]
    topic_ids: Mapping[str, str]
    last: Mapping[tuple[int, int], OrderKey]
    floors: tuple[Floor, ...]
    unreported: tuple[Floor, ...]
    relied_on: int
    told: int | None
    start: int
    lasts_topic: str
    recovered: Recovered | None = None
    generation: int = 0
    loops: Mapping[int, LoopTopic] = field(default_factory=dict)
    told_again: int | None = None
    job_id: str = ""


def begin_life(store: JobStore, plan: Plan, conf: Conf, say: Say, *, above: int = 0) -> int:
    """Take the job's lease and begin a life: steps 1 and 2 of the module.

    Args:
        store: The job's place, connected.
        plan: What will run.
        conf: Where and how.
        say: Told each step in a few words.
        above: The life's number is larger than this: that of the last life, of whatever job, in the same session.

    Returns:
        The life's number, its incarnation.

    Raises:
        AlreadyRunning: another driver holds the lease.
        FlowError: the job's record says otherwise.
        ServiceUnavailable: ZooKeeper does not answer.
    """
    with fence_ends_life():
        store.freeze(job_record(plan))
        say("taking the job's lease")
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        store.take_lease(holder, conf.zookeeper.session_timeout_s + LEASE_SLACK_S, say)
        while (incarnation := store.raise_incarnation(conf.job.submission)) <= above:
            pass
    return incarnation


def open_life(
    store: JobStore,
    plan: Plan,
    conf: Conf,
    found: Surroundings,
    say: Say,
    *,
    incarnation: int,
    start: StartFrom = StartFrom(),  # noqa: B008 - a frozen value
) -> Opening:
    """Make a life that has begun the only one, and find its start: steps 3 and 4 of the module.

    Args:
        store: The job's place, connected.
        plan: What will run.
        conf: Where and how.
        found: What Kafka has.
        say: Told each step in a few words.
        incarnation: The life's number.
        start: Where it begins.

    Raises:
        FlowError: the flow does not fit what was delivered, or the commit.
        LifeEnded: another life has begun meanwhile.
        ServiceUnavailable: ZooKeeper or Kafka does not answer.
        SourceGone, SourceTooShort: the sources no longer have what must be read again.
    """
    with fence_ends_life():
        register = FrontRegister.from_json(store.fronts())
        refuse_other_starts(plan, register)
        refuse_other_stops(plan, register)
        durable, job_id = Durable({}, ()), store.identity(incarnation)
        if conf.job.delivery == "exactly_once":
            durable = _claimed(store, plan, conf, incarnation, ids=_ids(plan, register, found), job_id=job_id, say=say)
        if start.floors_from is not None and not register.entries:
            register, borrowed = borrow_floors(store, plan, conf, incarnation, start.floors_from, say)
            durable = replace(durable, floors=borrowed)
            refuse_other_starts(plan, register)
            refuse_other_stops(plan, register)
        refuse_half_borrowed(plan, register, store.borrowed())
        refuse_forgotten(plan, durable.last)
        recovered = recover(store, plan, conf, incarnation, start=start, say=say)
        generation, delivered = store.lasts()[1], store.steps()
        begins = START if recovered is None else recovered.manifest.tick
        offsets = {} if recovered is None else recovered.offsets
        floors = read_archived(conf.kafka, plan.name, durable, offsets, conf.kafka.delivery_limit_ms / 1000, say)
        durable = replace(durable, floors=floors)
        if start.redeliver and conf.job.delivery == "exactly_once":
            generation += 1
            # All of them: a start without state still goes by those below the commit.
            floors = (*durable.floors, *(() if recovered is None else recovered.floors))
            durable = _delivered_again(
                store, plan, conf, incarnation, generation=generation, known=replace(durable, floors=floors), say=say
            )
            own(conf.kafka, topic_of(plan.name, generation), job_id, conf.kafka.delivery_limit_ms / 1000)
        elif conf.job.delivery == "exactly_once":
            manifest = None if recovered is None else recovered.manifest
            refuse_other_delivery(plan, delivered, manifest, durable.last, begins=begins, generation=generation)
        topic = ""
        if conf.job.delivery == "exactly_once":
            topic = topic_of(plan.name, generation)
            # Before anything is delivered, and by the only life that can deliver.
            store.set_steps(incarnation, kept_steps(plan, delivered, durable.last, begins))
        told, told_again = store.told(), store.told_in(generation)
        relied = max(begins, relied_on(store, durable, told))
        read = {entry.partition.source for entry in register.entries}
        fresh = tuple(topic for topic in found.sources if topic.name not in read)
        firsts = first_offsets(plan, conf, fresh, found.earliest)
        _refuse_after_the_end(plan, fresh, register, relied)
        store.add_sources(incarnation, job_record(plan))
        register = _completed(
            store,
            plan,
            register,
            incarnation,
            found,
            relied,
            firsts=firsts,
            stops=last_offsets(plan, conf, fresh, {**found.earliest, **firsts}),
            preloaded=preload_ends(plan, conf, fresh),
        )
        refuse_compacted_replay(
            conf.kafka, register, found.sources, offsets, commit=recovered is not None, delivered=bool(durable.last)
        )
        note_records(store, plan, incarnation, say)
    topic_ids = {each.name: each.id for each in found.sources}
    starts = register.starts(offsets, _there(found), commit="" if recovered is None else recovered.manifest.id)
    labels = {} if recovered is None else recovered.labels
    fronts = tuple(
        FrontStart(
            number=entry.number,
            topic=entry.partition.source,
            partition=entry.partition.partition,
            offset=starts[entry.number],
            before=labels.get(entry.number),
            opening=max(begins, entry.opening),
            stop=entry.stop,
            # Preloaded records are below every commit since.
            preloaded=0 if entry.opening < begins else entry.preloaded or 0,
        )
        for entry in register.entries
    )
    last = _by_vertex(plan, durable, len(fronts))
    floors, unreported = (durable.floors, ()) if recovered is None else recovered.needed(durable.floors)
    return Opening(
        incarnation,
        fronts,
        topic_ids,
        last,
        floors,
        unreported,
        relied,
        told,
        begins,
        topic,
        recovered,
        generation,
        open_loops(plan, conf),
        told_again,
        job_id,
    )


def _refuse_after_the_end(plan: Plan, fresh: Sequence[Topic], register: FrontRegister, relied: int) -> None:
    """Refuse new partitions after the end of time (errors: FlowError)."""
    if fresh and register.entries and relied >= end_tick(plan.slack_ms):
        raise FlowError(
            f'topic "{fresh[0].name}" is new to the job, but the job is finished: all its sources have ended, and '
            "everything is delivered and committed",
            where=f"job {plan.name!r}",
            way_out="give the job another name: a new job starts from the beginning",
        )


def _claimed(
    store: JobStore, plan: Plan, conf: Conf, incarnation: int, *, ids: set[str], job_id: str, say: Say
) -> Durable:
    """Fence every earlier life at the sinks, then read what is durable."""
    limit_s = conf.kafka.delivery_limit_ms / 1000
    say("claiming the sinks")
    known, generation = store.lasts()
    topic = topic_of(plan.name, generation)
    topic_id = open_lasts(conf.kafka, plan.name, known, generation)
    if known is None:
        # Before the claim, which would end the life of a job of this name that has its place in another ZooKeeper.
        _refuse_unknown(topic, read_lasts(conf.kafka, topic, limit_s, say), conf, job_id)
    store.add_sink_ids(incarnation, ids)
    claim(conf.kafka, store.sink_ids(), limit_s)
    store.check(incarnation)
    durable = read_lasts(conf.kafka, topic, limit_s, say)
    if known is None or durable.owner not in ("", job_id):
        _refuse_unknown(topic, durable, conf, job_id)
    if known is None:
        store.set_lasts(incarnation, topic_id)
    if not durable.owner:
        own(conf.kafka, topic, job_id, limit_s)
    return durable


def _refuse_unknown(topic: str, durable: Durable, conf: Conf, job_id: str) -> None:
    """Refuse what was delivered by a life that this ZooKeeper knows nothing of (errors: LifeEnded)."""
    if durable.owner not in ("", job_id):
        raise LifeEnded(
            f'topic "{topic}" belongs to another job of this name: it runs with another ZooKeeper or under another '
            "root, or its nodes in this one were deleted",
            where=f"{conf.zookeeper.hosts}/{conf.zookeeper.root}",
            way_out="name the ZooKeeper and the root of the job that made it; or give this job another name; or delete "
            "the topic once no job writes it, which delivers everything again",
        )
    if durable.last or durable.floors:
        raise LifeEnded(
            f'topic "{topic}" says that a life of the job has delivered, but ZooKeeper does not know that life: the '
            "job runs with another ZooKeeper, or its nodes in this one were lost, and with them its fronts' numbers",
            where=f"{conf.zookeeper.hosts}/{conf.zookeeper.root}",
            way_out="name the job's own ZooKeeper, or restore its data; or give this job another name; or delete the "
            "topic once no job writes it, which delivers everything again",
        )


def _delivered_again(
    store: JobStore, plan: Plan, conf: Conf, incarnation: int, *, generation: int, known: Durable, say: Say
) -> Durable:
    """Open a new output generation: nothing of it is delivered yet, but its labels depend on the earlier ones."""
    say(f"delivering everything from here on again, as output generation {generation}")
    topic = topic_of(plan.name, generation)
    topic_id = open_lasts(conf.kafka, plan.name, None, generation)
    keep_floors(conf.kafka, topic, known.floors, incarnation, conf.kafka.delivery_limit_ms / 1000, known.archived)
    store.set_lasts(incarnation, topic_id, generation)
    return replace(known, last={})


def _ids(plan: Plan, register: FrontRegister, found: Surroundings) -> set[str]:
    """The transactional ids that this life may use: a worker's is named for its first lane, whichever that is."""
    later = {vertex.level for vertex in plan.sinks()}
    fronts = 0
    if plan.dead_letters is not None:
        later |= set(range(1, plan.levels))
        fronts = len(register.entries) + found.fronts
    ids = {transactional_id(plan.name, level, lane) for level in later for lane in range(plan.lanes)}
    return ids | {transactional_id(plan.name, 0, front) for front in range(fronts)}


def _there(found: Surroundings) -> dict[Partition, int]:
    ids = {topic.name: topic.id for topic in found.sources}
    return {Partition(name, ids[name], number): offset for (name, number), offset in found.earliest.items()}


def _completed(
    store: JobStore,
    plan: Plan,
    register: FrontRegister,
    incarnation: int,
    found: Surroundings,
    relied: int,
    *,
    firsts: Mapping[tuple[str, int], int],
    stops: Mapping[tuple[str, int], int],
    preloaded: Mapping[tuple[str, int], int],
) -> FrontRegister:
    """Register the new partitions: each labels nothing in a time that was published as over (R3).

    Those of a topic that the job has not read yet begin and end where its source says. Later ones begin at their
    beginning, so that nothing is skipped; of a topic with an end, nothing of them is read. Preloaded records come
    before all records of the others.
    """
    known, starts, ends = len(register.entries), starts_of(plan), stops_of(plan)
    for partition, earliest in sorted(_there(found).items()):
        place = partition.source, partition.partition
        offset, known_to = firsts.get(place, earliest), preloaded.get(place)
        start, end = str(starts.get(partition.source, EARLIEST)), str(ends.get(partition.source, ""))
        register, _ = register.opened(
            partition,
            offset=offset,
            above=relied + 1 if preloaded and known_to is None else relied,
            start=start,
            stop=stops.get(place, offset) if end else None,
            ends=end,
            preloaded=known_to,
        )
    new = register.entries[known:]
    if new:
        store.add_fronts(incarnation, [entry.to_json() for entry in new])
    return register


def _by_vertex(plan: Plan, durable: Durable, fronts: int) -> dict[tuple[int, int], OrderKey]:
    """Return what is durable, by the vertices of this plan."""
    found = {}
    for vertex in plan.sinks():
        for lane in range(plan.lanes):
            found[vertex.id, lane] = durable.last.get(lane_name(vertex, vertex.level, lane))
    for level in range(plan.levels):
        for lane in range(plan.lanes if level else fronts):
            found[letters_of(level), lane] = durable.last.get(lane_name(None, level, lane))
    return {place: key for place, key in found.items() if key is not None}
