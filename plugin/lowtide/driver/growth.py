"""Gives a stopped job more lanes, in an order in which each step may be repeated.

1. the lease and a new incarnation, so that no life runs, and none of an older one begins a delivery
2. every transactional id that was ever used is claimed, as a start does: nothing becomes durable any more (W10)
3. the topics of staged records and of answers are looked at, and Kafka is asked whether they may get partitions
4. the positions that are kept by lane are written by hash unit, then taken back: a lane's number will mean other hash
   units, and a strand's range never does
5. the record gets the new number, and keeps those before
6. these topics get their partitions (`flow/plan/lane_partitions.py`); a start does it where this broke off
7. each partition of staged records is marked up to where its lane is, so that a drain knows of new ones, too

State needs nothing: it is kept by hash unit. Nor do the partitions of sinks' topics, which follow from the hash unit.
Nor do other stores than Kafka: they keep positions by hash unit, and of those that earlier versions left by lane it is
known how many lanes there were (`homes.by_units`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topics import Topics
from lowtide.core.operators.order.order import OrderKey
from lowtide.driver.homes import ANSWERS, STAGED, identity_of, topic_id_of
from lowtide.driver.opening import LEASE_SLACK_S, Say
from lowtide.driver.refusals import fence_ends_life
from lowtide.errors import FlowError
from lowtide.flow.plan.lane_partitions import partition_of_lane
from lowtide.process.identity import called
from lowtide.sinks.answers.topics import topic_of_call
from lowtide.sinks.contract import LaneName
from lowtide.sinks.kafka.claims import claim
from lowtide.sinks.kafka.lasts import read_lasts, topic_of, write
from lowtide.sinks.kafka.lasts_records import last_of, records_of, taken_back
from lowtide.sinks.own_topics import OwnTopic, open_topics
from lowtide.sinks.staged.growth import mark_all
from lowtide.sinks.staged.topics import topic_of_sink
from lowtide.wording import count_of
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.job.store import JobStore

SHOWN = 6
"""Numbers that are shown of those that fit."""
Record = tuple[bytes, bytes | None]


def grow(store: JobStore, frozen: JobRecord, lanes: int, conf: Conf, say: Say) -> JobRecord:
    """Give a job that does not run more lanes.

    After an error it has as many as before, or it has them and its topics may lack partitions. Either way this may be
    repeated; in the second case the next start does the rest, too.

    Args:
        store: The job's place, connected.
        frozen: Its record, as far as it is known; another program may change it until this one has the lease.
        lanes: How many it is to have.
        conf: Where Kafka is.
        say: Called with each step in a few words.

    Returns:
        The record, with the new number.

    Raises:
        AlreadyRunning: the job runs.
        FlowError: it cannot have so many, or not before a start with this version.
        LifeEnded: a life has begun meanwhile.
        LastsUnreadable: a newer version of Lowtide has written its positions.
        ServiceUnavailable: ZooKeeper or Kafka does not answer.
        TopicRefused: Kafka does not allow a topic of its own to have more partitions.
    """
    refuse_unfit(frozen, lanes, store.stores())
    with fence_ends_life():
        say("taking the job's lease")
        holder = f"lowtide lanes, {called(os.getpid())}"
        store.take_lease(holder, conf.zookeeper.session_timeout_s + LEASE_SLACK_S, say)
        incarnation = store.raise_incarnation()
        _keep_end(store, incarnation, holder)
        frozen = store.record() or frozen
        refuse_unfit(frozen, lanes, store.stores())
        topic_id, generation = store.lasts()
        if topic_id:
            limit_s = conf.kafka.delivery_limit_ms / 1000
            say("claiming the sinks")
            claim(conf.kafka, store.sink_ids(), limit_s)
            store.check(incarnation)
        own = OwnTopics.there(frozen.job, store.stores(), Topics(conf.kafka))
        own.open(conf, frozen)
        last: Mapping[LaneName, OrderKey] = {}
        topic = topic_of(frozen.job, generation)
        if topic_id:
            last = read_lasts(conf.kafka, topic, limit_s, say).last
        if lanes == frozen.lanes:
            own.mark(conf, frozen, last)
            return frozen
        own.try_to_widen(conf, lanes)
        if topic_id:
            refuse_undecided(frozen.job, last, store.stores(), store.partitions())
            write(librdkafka_settings(conf.kafka), topic, by_units(last, frozen, incarnation), limit_s)
        grown = replace(frozen, lanes=lanes, grown=frozen.lane_counts)
        store.set_lanes(incarnation, lanes)
        own.open(conf, grown)
        own.mark(conf, grown, last)
    return grown


def _keep_end(store: JobStore, incarnation: int, holder: str) -> None:
    """Say that the job has ended as its last life has: else it would look killed, and Airflow would start it again."""
    note = store.life()
    if note is None or note.get("incarnation") != incarnation - 1 or note.get("phase") == "running":
        return
    store.set_life(incarnation, {**note, "incarnation": incarnation, "driver": holder, "again": False})


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The topics of a job's own with a partition for each lane, as far as they are there.

    Those of sinks and calls that have left the flow may have been deleted; the next start misses any others.

    Attributes:
        topics: By the name that their ids are kept under.
        ids: The ids.
    """

    topics: Mapping[str, OwnTopic]
    ids: Mapping[str, str]

    @classmethod
    def there(cls, job: str, stores: Mapping[str, str], access: Topics) -> Self:
        """Return those of a job, of which its place keeps these ids (errors: ServiceUnavailable)."""
        topics: dict[str, OwnTopic] = {}
        for name in stores:
            if name.startswith(STAGED):
                topics[name] = topic_of_sink(job, name.removeprefix(STAGED))
            elif name.startswith(ANSWERS):
                topics[name] = topic_of_call(job, name.removeprefix(ANSWERS))
        known = access.names() if topics else []
        found = access.describe_all([own.name for own in topics.values() if own.name in known])
        ids = {topic.name: topic.id for topic in found}
        topics = {name: own for name, own in topics.items() if ids.get(own.name) == topic_id_of(stores[name])}
        return cls(topics, {name: ids[own.name] for name, own in topics.items()})

    def open(self, conf: Conf, record: JobRecord) -> None:
        """See that they are there, with a partition for each lane (errors: as of `open_topics`)."""
        open_topics(self.topics, conf.kafka, record.lanes, self.ids, conf.exchange.max_frame_bytes, record.grown)

    def mark(self, conf: Conf, record: JobRecord, last: Mapping[LaneName, OrderKey]) -> None:
        """Mark each partition of staged records up to where its lane is (errors: ServiceUnavailable)."""
        limit_s = conf.kafka.delivery_limit_ms / 1000
        for name, own in self.topics.items():
            if own.carried:
                marks = marks_of(last, record, name.removeprefix(STAGED))
                mark_all(librdkafka_settings(conf.kafka), own.name, marks, limit_s)

    def try_to_widen(self, conf: Conf, lanes: int) -> None:
        """Ask Kafka whether they may get so many partitions (errors: TopicRefused, ServiceUnavailable)."""
        access = Topics(conf.kafka)
        for own in self.topics.values():
            access.widen(own.name, lanes, dry=True)


def refuse_unfit(frozen: JobRecord, lanes: int, stores: Mapping[str, str]) -> None:
    """Refuse a number of lanes that the job cannot grow to, and stores that are known by lane (errors: FlowError).

    The number that a growth gave it is let pass, as that may have broken off.

    Args:
        frozen: The job's record.
        lanes: How many it is to have.
        stores: What is known of the stores, and of topics of its own, by name.
    """
    where = f'job "{frozen.job}"'
    if lanes == frozen.lanes and frozen.grown:
        return
    if lanes <= frozen.lanes or lanes % frozen.lanes or lanes > frozen.units:
        fitting = [str(number) for number in range(2 * frozen.lanes, frozen.units + 1, frozen.lanes)]
        numbers = ", ".join(fitting) if len(fitting) <= SHOWN else f"{', '.join(fitting[:SHOWN])}, ..., {fitting[-1]}"
        raise FlowError(
            f"the job has {count_of(frozen.lanes, 'lane')} and {frozen.units} hash units, and cannot grow to "
            f"{count_of(lanes, 'lane')}: each lane is divided into as many new ones, of a hash unit or more",
            where=where,
            way_out=f"choose one of {numbers}"
            if fitting
            else "the job has as many lanes as it can have; to have more, "
            "give the flow another name, and set exchange.units and job.lanes: a new job reads its sources from their "
            "beginning",
        )
    databases = {name: known for name, known in stores.items() if not name.startswith((STAGED, ANSWERS))}
    if unknown := sorted(name for name, known in databases.items() if not identity_of(known)[1]):
        raise FlowError(
            f"an earlier version has delivered to {unknown[0]}, by lane, and none that knows hash units since",
            where=where,
            way_out="start the job with this version, and stop it; then it may grow",
        )


def marks_of(last: Mapping[LaneName, OrderKey], record: JobRecord, sink: str) -> dict[int, int]:
    """Return by partition of a staged sink's log the log time, in ms, below which nothing follows.

    Of a lane nothing follows that is not above its `last`, in whatever life; and a lane that a growth has made begins
    where the lane was that it is a part of. What that one was marked with before is not above its `last` either.

    Args:
        last: What is delivered, by the numbers that lanes had before the job grew, or by hash units.
        record: The job's, with the lanes that it has now.
        sink: The sink's name.
    """
    before = replace(record, lanes=record.grown[-1], grown=record.grown[:-1])
    marks: dict[int, int] = {}
    for lane, partition in enumerate(partition_of_lane(record.lane_counts)):
        was = lane * before.lanes // record.lanes
        at = last_of(last, LaneName(0, sink, was), before.units_of_lane(was))
        if at is not None and at.tick > 0:
            marks[partition] = at.tick * record.slack_ms
    return marks


def refuse_undecided(
    job: str, last: Collection[LaneName], stores: Mapping[str, str], partitions: Mapping[str, int]
) -> None:
    """Refuse a job of which only an earlier version has written topics: it had a partition for each lane (R12).

    The next start would find that number neither in the names, which would have gone, nor in the record.

    Args:
        job: The job's name.
        last: The lanes and strands to which something was delivered in Kafka.
        stores: As of `refuse_unfit`.
        partitions: By topic how many partitions the job writes, as far as a start has noted it.

    Raises:
        FlowError: no start has noted any.
    """
    staged = {name.removeprefix(STAGED) for name in stores if name.startswith(STAGED)}
    by_lane = {name.sink for name in last if not name.end and name.sink and "/" not in name.sink} - staged
    if by_lane and not partitions:
        raise FlowError(
            f'an earlier version has delivered to sink "{min(by_lane)}", and none that notes how many partitions of '
            "its topic the job writes",
            where=f'job "{job}"',
            way_out="start the job with this version, and stop it; then it may grow",
        )


def by_units(last: Mapping[LaneName, OrderKey], frozen: JobRecord, incarnation: int) -> Iterator[Record]:
    """Yield the records that say of hash units what was said of lanes, and then take that back.

    Dead letters of fronts stay: theirs are no lanes.
    """
    lanes = [name for name in last if not name.end and (name.sink or name.level)]
    for name in lanes:
        units = frozen.units_of_lane(name.lane)
        strand = replace(name, lane=units.start, end=units.stop)
        yield from records_of(strand, last_of(last, name, units), (), incarnation)
    for name in lanes:
        yield taken_back(name)
