"""The start of a life: lease, claims and `last`, taken from ZooKeeper and Kafka in the only safe order.

1. the record is frozen, or held against what the flow asks for (R11)
2. the lease, and a new incarnation; the record may have got more lanes until then
3. every transactional id that any life may have used is claimed, the incarnation is checked again, and only then the
   lanes' `last` and floors are read: nothing of an earlier life can become durable after that (R13, W10). The flow is
   held against the one that delivered them, and takes its place
4. the front register is completed (R3)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lowtide.assignment.welcome import FrontStart
from lowtide.conf import Conf
from lowtide.connectors.loop_topics import LoopTopic, open_loops
from lowtide.connectors.topics import Topic
from lowtide.core.barriers import Lanes
from lowtide.core.effects import letters_of
from lowtide.core.fronts.end import end_tick
from lowtide.core.fronts.register import FrontRegister, Partition
from lowtide.core.operators.order.order import OrderKey
from lowtide.driver.borrowed_floors import borrow_floors, refuse_half_borrowed
from lowtide.driver.bounds import (
    Bounds,
    bounds_of,
    refuse_other_starts,
    refuse_other_stops,
    starts_of,
    stops_of,
)
from lowtide.driver.compacted import refuse_compacted_replay
from lowtide.driver.frozen import job_record, refuse_outgrown
from lowtide.driver.homes import Homes
from lowtide.driver.layout import layout_of
from lowtide.driver.partitions import written_partitions
from lowtide.driver.placement import START, kept_steps, refuse_forgotten, refuse_other_delivery
from lowtide.driver.preflight import Surroundings
from lowtide.driver.record_types import note_records
from lowtide.driver.recovery import Recovered, StartFrom, recover
from lowtide.driver.refusals import fence_ends_life
from lowtide.driver.relied_on import relied_on
from lowtide.errors import FlowError
from lowtide.flow.formats.bounds import EARLIEST
from lowtide.flow.plan.plan import Plan
from lowtide.process.identity import called
from lowtide.sinks.contract import JobSinks, LaneName, lane_name
from lowtide.sinks.files.places import places_of
from lowtide.sinks.kafka.claims import transactional_id
from lowtide.sinks.kafka.floor_archive import read_archived
from lowtide.sinks.kafka.lasts import Durable
from lowtide.sinks.kafka.lasts_records import last_of
from lowtide_snapshots.job.store import JobStore
from lowtide_tracker import Floor

LEASE_SLACK_S = 4.0
"""Time beyond a session's time-out that a start waits for the lease of a killed driver."""

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
        published: The largest published delivered time; None if none was.
        published_again: The largest published one of this output generation; None if none was.
        job_id: The job's id for good.
        stores: The sinks in other stores than Kafka, by store.
        strands: What is durable there of this life's strands.
        partitions: By topic the number of partitions that its sink writes.
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
    published: int | None
    start: int
    lasts_topic: str
    recovered: Recovered | None = None
    generation: int = 0
    loops: Mapping[int, LoopTopic] = field(default_factory=dict)
    published_again: int | None = None
    job_id: str = ""
    stores: Mapping[str, JobSinks] = field(default_factory=dict)
    strands: Mapping[LaneName, OrderKey] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)


def begin_life(store: JobStore, plan: Plan, conf: Conf, say: Say, *, above: int = 0) -> int:
    """Take the job's lease and begin a life: steps 1 and 2 of the module.

    Args:
        store: The job's place, connected.
        plan: What will run.
        conf: Where and how.
        say: Called with each step in a few words.
        above: The life's number is larger than this: that of the last life, of whatever job, in the same session.

    Returns:
        The life's number, its incarnation.

    Raises:
        AlreadyRunning: another driver holds the lease.
        FlowError: the job's record says otherwise.
        LifeEnded: the job has got more lanes meanwhile.
        ServiceUnavailable: ZooKeeper does not answer.
    """
    with fence_ends_life():
        store.freeze(job_record(plan))
        say("taking the job's lease")
        limit_s = conf.zookeeper.session_timeout_s + LEASE_SLACK_S
        store.take_lease(called(os.getpid()), limit_s, say, layout_of(plan, conf))
        while (incarnation := store.raise_incarnation(conf.job.submission)) <= above:
            pass
        refuse_outgrown(store, plan)
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
        say: Called with each step in a few words.
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
        homes = Homes(store, plan, conf, incarnation, say)
        durable = homes.claim(_ids(plan, register, found))
        if start.floors_from is not None and not register.entries:
            register, borrowed = borrow_floors(store, plan, conf, incarnation, start.floors_from, say)
            durable = replace(durable, floors=borrowed)
            refuse_other_starts(plan, register)
            refuse_other_stops(plan, register)
        refuse_half_borrowed(plan, register, store.borrowed())
        refuse_forgotten(plan, durable.last)
        partitions = written_partitions(plan, store.partitions(), found.sinks, durable.last)
        recovered = recover(store, plan, conf, incarnation, start=start, say=say)
        delivered = store.steps()
        manifest, begins, offsets = None, START, {}
        if recovered is not None:
            manifest, begins, offsets = recovered.manifest, recovered.manifest.tick, recovered.offsets
        floors = read_archived(conf.kafka, plan.name, durable, offsets, conf.kafka.delivery_limit_ms / 1000, say)
        durable = replace(durable, floors=floors)
        if start.redeliver and homes.keeps:
            # All of them: a start without state still goes by those below the commit.
            floors = (*durable.floors, *(() if recovered is None else recovered.floors))
            durable = homes.deliver_again(replace(durable, floors=floors))
        elif homes.keeps:
            generation = homes.generation
            refuse_other_delivery(plan, delivered, manifest, durable.last, begins=begins, generation=generation)
        if homes.keeps:
            # Before anything is delivered, and by the only life that can deliver.
            store.set_steps(incarnation, kept_steps(plan, delivered, durable.last, begins))
        if partitions:
            store.set_partitions(incarnation, partitions)
        published, published_again = store.published(), store.published_in(homes.generation)
        relied = max(begins, relied_on(store, durable, published))
        read = {entry.partition.source for entry in register.entries}
        fresh = tuple(topic for topic in found.sources if topic.name not in read)
        bounds = bounds_of(plan, conf, fresh, found.earliest)
        _refuse_after_the_end(plan, fresh, register, relied)
        store.add_sources(incarnation, job_record(plan))
        register = _completed(store, plan, register, incarnation, found, relied, bounds)
        refuse_compacted_replay(
            conf.kafka, register, found.sources, offsets, commit=recovered is not None, delivered=bool(durable.last)
        )
        note_records(store, plan, incarnation, say)
        if (places := places_of(plan)) or store.places():
            store.set_places(incarnation, places)
    fronts = _front_starts(register, found, recovered, begins)
    topic_ids = {each.name: each.id for each in found.sources}
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
        published,
        begins,
        homes.lasts_topic,
        recovered,
        homes.generation,
        open_loops(plan, conf),
        published_again,
        homes.job_id,
        homes.stores,
        homes.strands,
        partitions,
    )


def _front_starts(
    register: FrontRegister, found: Surroundings, recovered: Recovered | None, begins: int
) -> tuple[FrontStart, ...]:
    """Return where each front is read again, and with which label."""
    offsets, labels, commit = {}, {}, ""
    if recovered is not None:
        offsets, labels, commit = recovered.offsets, recovered.labels, recovered.manifest.id
    starts = register.starts(offsets, _there(found), commit=commit)
    return tuple(
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


def _refuse_after_the_end(plan: Plan, fresh: Sequence[Topic], register: FrontRegister, relied: int) -> None:
    """Refuse new partitions after the end of time (errors: FlowError)."""
    if fresh and register.entries and relied >= end_tick(plan.slack_ms):
        raise FlowError(
            f'topic "{fresh[0].name}" is new to the job, but the job is finished: all its sources have ended, and '
            "everything is delivered and committed",
            where=f"job {plan.name!r}",
            way_out="give the job another name: a new job starts from the beginning",
        )


def _ids(plan: Plan, register: FrontRegister, found: Surroundings) -> set[str]:
    """The transactional ids that this life may use: a worker's is named for its first lane."""
    later = {vertex.level for vertex in plan.delivering()}
    firsts = {min(Lanes.of_worker(plan, place).own) for place in range(plan.parallelism)}
    fronts = 0
    if plan.dead_letters is not None:
        later |= set(range(1, plan.levels))
        fronts = len(register.entries) + found.fronts
    ids = {transactional_id(plan.name, level, lane) for level in later for lane in firsts}
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
    bounds: Bounds,
) -> FrontRegister:
    """Register the new partitions: each labels nothing in a time that was published as over (R3).

    Those of a topic that the job has not read yet begin and end where its source says. Later ones begin at their
    beginning, so that nothing is skipped; of a topic with an end, nothing of them is read. Preloaded records come
    before all records of the others.
    """
    known, starts, ends = len(register.entries), starts_of(plan), stops_of(plan)
    for partition, earliest in sorted(_there(found).items()):
        key = partition.source, partition.partition
        offset, known_to = bounds.firsts.get(key, earliest), bounds.preloaded.get(key)
        start, end = str(starts.get(partition.source, EARLIEST)), str(ends.get(partition.source, ""))
        register, _ = register.opened(
            partition,
            offset=offset,
            above=relied + 1 if bounds.preloaded and known_to is None else relied,
            start=start,
            stop=bounds.stops.get(key, offset) if end else None,
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
    for vertex in plan.delivering():
        for lane in range(plan.lanes):
            name = lane_name(vertex, vertex.level, lane)
            found[vertex.id, lane] = last_of(durable.last, name, plan.units_of_lanes(lane, lane + 1))
    for front in range(fronts):
        found[letters_of(0), front] = durable.last.get(lane_name(None, 0, front))
    for level in range(1, plan.levels):
        for lane in range(plan.lanes):
            units = plan.units_of_lanes(lane, lane + 1)
            found[letters_of(level), lane] = last_of(durable.last, lane_name(None, level, lane), units)
    return {lane: key for lane, key in found.items() if key is not None}
