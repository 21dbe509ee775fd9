"""Gives a stopped job more lanes, in an order in which each step may be repeated.

1. the lease and a new incarnation, so that no life runs, and none of an older one begins a delivery
2. every transactional id that was ever used is claimed, as a start does: nothing becomes durable any more (W10)
3. the positions that earlier versions wrote by lane are written by hash unit, then taken back: a lane's number will
   mean other hash units, and a strand's range never does
4. the record gets the new number

State needs nothing: it is kept by hash unit. Nor do partitions, which follow from the hash unit. Nor do other stores
than Kafka: they keep positions by hash unit, and of those that earlier versions left by lane it is known how many lanes
there were (`homes.by_units`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.core.operators.order.order import OrderKey
from lowtide.driver.homes import ANSWERS, STAGED, identity_of
from lowtide.driver.opening import LEASE_SLACK_S, Say
from lowtide.driver.refusals import fence_ends_life
from lowtide.errors import FlowError
from lowtide.process.identity import called
from lowtide.sinks.contract import LaneName
from lowtide.sinks.kafka.claims import claim
from lowtide.sinks.kafka.lasts import read_lasts, topic_of, write
from lowtide.sinks.kafka.lasts_records import last_of, records_of, taken_back
from lowtide.wording import count_of
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.job.store import JobStore

SHOWN = 6
"""Numbers that are shown of those that fit."""
Record = tuple[bytes, bytes | None]


def grow(store: JobStore, frozen: JobRecord, lanes: int, conf: Conf, say: Say) -> JobRecord:
    """Give a job that does not run more lanes; after an error it has as many as before, and this may be repeated.

    Args:
        store: The job's place, connected.
        frozen: Its record.
        lanes: How many it is to have.
        conf: Where Kafka is.
        say: Called with each step in a few words.

    Returns:
        The record, with the new number.

    Raises:
        AlreadyRunning: the job runs.
        FlowError: it cannot have so many, or something of it is kept by lane.
        LifeEnded: a life has begun meanwhile.
        LastsUnreadable: a newer version of Lowtide has written its positions.
        ServiceUnavailable: ZooKeeper or Kafka does not answer.
    """
    refuse_unfit(frozen, lanes, store.stores())
    with fence_ends_life():
        say("taking the job's lease")
        store.take_lease(f"lowtide lanes, {called(os.getpid())}", conf.zookeeper.session_timeout_s + LEASE_SLACK_S, say)
        incarnation = store.raise_incarnation()
        topic_id, generation = store.lasts()
        if topic_id:
            limit_s = conf.kafka.delivery_limit_ms / 1000
            say("claiming the sinks")
            claim(conf.kafka, store.sink_ids(), limit_s)
            store.check(incarnation)
            topic = topic_of(frozen.job, generation)
            last = read_lasts(conf.kafka, topic, limit_s, say).last
            write(librdkafka_settings(conf.kafka), topic, by_units(last, frozen, incarnation), limit_s)
        grown = replace(frozen, lanes=lanes)
        store.set_lanes(incarnation, lanes)
    return grown


def refuse_unfit(frozen: JobRecord, lanes: int, stores: Mapping[str, str]) -> None:
    """Refuse a number of lanes that the job cannot grow to, and a job that keeps something by lane (errors: FlowError).

    Args:
        frozen: The job's record.
        lanes: How many it is to have.
        stores: What is known of the stores, and of topics of its own, by name.
    """
    where = f'job "{frozen.job}"'
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
    if by_lane := sorted(name for name in stores if name.startswith((STAGED, ANSWERS))):
        raise FlowError(
            f"what the job keeps of {', '.join(by_lane)} is kept by lane, and would be taken for that of others",
            where=where,
            way_out="leave its lanes as they are; or give the flow another name, with more job.lanes: a new job reads "
            "its sources from their beginning",
        )
    if unknown := sorted(name for name, known in stores.items() if not identity_of(known)[1]):
        raise FlowError(
            f"an earlier version has delivered to {unknown[0]}, by lane, and none that knows hash units since",
            where=where,
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
