"""Builds the parts of hosts and workers: a worker's core, its front at level 0, the way to the sinks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from lowtide.assignment.birth import Birth
from lowtide.assignment.client import check_current
from lowtide.assignment.deployment import Deployment
from lowtide.assignment.welcome import FrontStart
from lowtide.core.barriers import strands_of
from lowtide.core.cycle_inbox import CycleInbox
from lowtide.core.early_frames import Early, Optimism
from lowtide.core.effects import level_of
from lowtide.core.fronts.floors import NO_TICK, unpack
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors
from lowtide.core.worker import WorkerCore
from lowtide.flow.formats.endpoints import KAFKA
from lowtide.flow.plan.own_topics import answers_topic
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.steps import Write
from lowtide.sinks.answers.log import read_answers
from lowtide.sinks.contract import Delivery, LaneName, Life, lane_name
from lowtide.sinks.courier import Courier
from lowtide.sinks.kafka.claimant import Claimant
from lowtide.sinks.kafka.claims import transactional_id
from lowtide.sinks.kafka.delivery import AtLeastOnce, ExactlyOnce
from lowtide.sinks.stores import way_of
from lowtide.worker.exporting import Exporting
from lowtide.worker.saver import Saver
from lowtide.worker.seals import Seals
from lowtide.worker.state_loader import Shelving, load_state
from lowtide.worker.state_on_disk import StateOnDisk
from lowtide.worker.traces import Sampling, Traces
from lowtide_tracker import LocalTracker

PORTION = 250
"""The number of held records and closing windows that a worker handles before others have their turn: about a ms."""
SHARED_BUNDLE_RECORDS = 4_000
"""A bundle's limit in flows with several sinks: until it is durable, others of its host wait."""
SHARED_DELIVERY_RECORDS = 4_000
"""The number of records that fill a transaction there, however many lanes have some."""


def seals_of(deployment: Deployment, birth: Birth, place: int) -> Seals | None:
    """Return a worker's keys for frames that go through Spark; None where they go in the clear."""
    if not deployment.sealed:
        return None
    life = deployment.plan.name, deployment.job_id, birth.incarnation
    return Seals(birth.secret, life, birth.level, place, birth.name)


def make_core(
    deployment: Deployment,
    birth: Birth,
    start: FrontStart | None,
    local: LocalTracker,
    disk: Callable[[], StateOnDisk] | None = None,
    traces: Traces | None = None,
) -> WorkerCore:
    """Make a worker's core; `start` is that of its front, at level 0, and `disk` gives its host's state on disk."""
    core = WorkerCore(
        deployment.plan,
        birth.level,
        int(birth.name.partition("/")[2]) if birth.level else 0,
        tracker=local,
        front=None if start is None else _make_front(deployment, start),
        last=deployment.last,
        max_bundle_records=min(
            deployment.max_bundle_records, SHARED_BUNDLE_RECORDS if shares(deployment.plan) else sys.maxsize
        ),
        limits=deployment.limits,
        lead_ticks=deployment.window.lead_ticks,
        portion=PORTION,
        joint=joint_sinks(deployment),
        strands=strands_of(deployment.plan),
        relied_on=deployment.relied_on,
        watcher=traces,
    )
    if start is not None:
        core.read_by(each.id for each in deployment.plan.sources() if each.step.source.topic == start.topic)
    else:
        shelved = [] if disk is None else _shelve(core, deployment, disk)
        if deployment.recovered:
            shelving = Shelving(core.program, shelved, disk().copies) if shelved and disk is not None else None
            core.restore(load_state(deployment, birth, shelving), deployment.start)
    _know(core, deployment)
    return core


def _shelve(core: WorkerCore, deployment: Deployment, disk: Callable[[], StateOnDisk]) -> list[str]:
    """Have state lie on disk if it is to; return the names of the steps whose state does."""
    if deployment.disk is None:
        return []
    shelved = core.program.shelvable(deployment.disk.in_memory)
    if shelved:
        core.program.shelve(disk().shelves, deployment.disk.in_memory)
    return shelved


def _know(core: WorkerCore, deployment: Deployment) -> None:
    """Give a worker the answers that earlier lives have kept for it."""
    limit_s = deployment.delivery_limit_ms / 1000
    for ask in core.program.asking.values():
        log = core.plan.answers_of(ask.ask)
        if log is None:
            continue
        own = core.barriers[log.id].lanes
        if lasts := {lane: deployment.last[log.id, lane] for lane in own if (log.id, lane) in deployment.last}:
            topic = answers_topic(core.plan.name, ask.ask.name)
            counts = core.plan.lane_counts
            core.know(ask.ask.id, *read_answers(deployment.producer, topic, lasts, deployment.start, limit_s, counts))


def early_of(core: WorkerCore, optimism: Optimism | None, max_bytes: int) -> dict[int, Early | CycleInbox]:
    """Make the queue of each segment: a slow segment does not hold back another.

    On a cycle even ordered mode guesses, as records there would wait for themselves; at first by one tick.
    """
    cyclic = core.program.segments.cyclic
    return {
        each: CycleInbox(optimism or Optimism(1), max_bytes) if each in cyclic else Early(optimism, max_bytes)
        for each in core.entries
    }


def make_saver(deployment: Deployment, birth: Birth) -> Saver | None:
    """Make the saver of a host's shares of snapshots; None if no snapshots are taken."""
    if deployment.store is None:
        return None
    base = deployment.start if deployment.shares else None
    keeps_lasts = deployment.delivery == "exactly_once"
    parts = () if base is None else deployment.restored
    return Saver(deployment.plan, deployment.store, birth.incarnation, base, parts=parts, keeps_lasts=keeps_lasts)


def make_traces(deployment: Deployment, birth: Birth, exporting: Exporting | None) -> Traces | None:
    """Make what sees a worker's records for traces; None if nothing is traced."""
    setting, plan = deployment.traces, deployment.plan
    if setting is None or exporting is None:
        return None
    sampling = Sampling(f"{plan.name} {deployment.job_id}", setting.ratio)
    return Traces(plan, birth.name, birth.level, birth.incarnation, sampling, exporting.put)


def _make_front(deployment: Deployment, start: FrontStart) -> Front:
    return Front(
        start.number,
        FrontLimits(deployment.plan.slack_ms, deployment.window, deployment.max_future_ms),
        KnownFloors(
            start.opening,
            (*unpack(start.number, deployment.floors.get(start.number, b"")), *start.promised()),
            unpack(start.number, deployment.unreported.get(start.number, b"")),
            deployment.relied_on,
            deployment.highest_floor,
        ),
        offset=start.offset,
        before=NO_TICK if start.before is None else start.before,
        stop=start.stop,
        preloaded=start.preloaded,
    )


def store_of(plan: Plan, sink: int) -> str:
    """Return the store of a sink; of dead letters and answers, Kafka."""
    if sink < 0:
        return KAFKA
    step = plan.vertices[sink].step
    return step.sink.store if isinstance(step, Write) else KAFKA


def joint_sinks(deployment: Deployment) -> frozenset[int]:
    """Return the sinks whose records become durable in one transaction with the answers that they rest on."""
    if deployment.delivery != "exactly_once":
        return frozenset()
    plan = deployment.plan
    return frozenset(vertex.id for vertex in plan.sinks() if store_of(plan, vertex.id) == KAFKA)


def stores_of(plan: Plan, level: int) -> set[str]:
    """Return the stores that workers of a level may deliver to; none if they never deliver."""
    stores = {store_of(plan, vertex.id) for vertex in plan.delivering() if vertex.level == level}
    return stores if plan.dead_letters is None else stores | {KAFKA}


def shares(plan: Plan) -> bool:
    """Return whether several sinks share a host's deliveries, so that one with few records may wait for another."""
    return len(list(plan.delivering())) > 1


def make_delivery(store: str, deployment: Deployment, birth: Birth, core: WorkerCore) -> Delivery:
    """Make a host's way to a store, for the first of its workers that delivers there."""
    check = partial(check_current, birth.service, birth.secret, birth.incarnation, birth.name)
    if store != KAFKA:
        life = Life(birth.incarnation, f"host {birth.host}", deployment.delivery_limit_ms / 1000, check)
        return Courier(way_of(deployment.stores[store], life), store, full_records=SHARED_DELIVERY_RECORDS)
    limits: dict[str, Any] = {
        "delivery_limit_ms": deployment.delivery_limit_ms,
        "max_record_bytes": deployment.limits.max_frame_bytes,
        "pace_ms": deployment.pace_ms,
        "full_records": SHARED_DELIVERY_RECORDS if shares(deployment.plan) else None,
    }
    if deployment.delivery == "at_least_once":
        return AtLeastOnce(deployment.producer, **limits)
    # One producer for all lanes of the host, under the name of the first lane of that worker: no other host has it, as
    # a lane has one worker and a worker one host. Every name is claimed when a life begins, so whatever lanes and
    # neighbours an older worker had, its host can write to none of them any more (W10).
    lane = min(lane for barrier in core.barriers.values() for lane in barrier.lanes)
    claimant = Claimant(
        transactional_id(deployment.plan.name, birth.level, lane),
        deployment.lasts_topic,
        birth.incarnation,
        check,
        _marks_of(deployment),
    )
    return ExactlyOnce(deployment.producer, claimant, version_two=deployment.version_two, **limits)


def _marks_of(deployment: Deployment) -> dict[LaneName, bytes]:
    """Return where the lanes were when the life began, by name; strands begin with it."""
    plan, strands, marks = deployment.plan, strands_of(deployment.plan), {}
    for (sink, lane), key in deployment.last.items():
        if sink in strands:
            continue
        name = lane_name(plan.vertices[sink], 0, lane) if sink >= 0 else lane_name(None, level_of(sink), lane)
        marks[name] = key.packed()
    return marks
