"""Builds the parts of hosts and workers: a worker's core, its front at level 0, the way to the sinks."""

from __future__ import annotations

import sys
from typing import Any

from lowtide.assignment.birth import Birth
from lowtide.assignment.client import check_current
from lowtide.assignment.deployment import Deployment
from lowtide.assignment.welcome import FrontStart
from lowtide.connectors.claims import transactional_id
from lowtide.connectors.delivery import AtLeastOnce, Delivery, ExactlyOnce
from lowtide.core.cycle_inbox import CycleInbox
from lowtide.core.early_frames import Early, Optimism
from lowtide.core.fronts.floors import NO_TICK, unpack
from lowtide.core.fronts.front import Front
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.plan import Plan
from lowtide.worker.saver import Saver
from lowtide.worker.state_loader import load_state
from lowtide_tracker import LocalTracker

__all__ = ["delivers", "early_of", "make_core", "make_delivery", "make_saver", "shares"]


PORTION = 250
"""The number of held records and closing windows that a worker handles before others have their turn: about a ms."""
SHARED_BUNDLE_RECORDS = 4_000
"""A bundle's limit in flows with several sinks: until it is durable, others of its host wait."""
SHARED_DELIVERY_RECORDS = 4_000
"""The number of records that fill a transaction there, however many lanes have some."""


def make_core(deployment: Deployment, birth: Birth, start: FrontStart | None, local: LocalTracker) -> WorkerCore:
    """Make a worker's core; `start` is that of its front, at level 0."""
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
    )
    if start is not None:
        core.read_by(each.id for each in deployment.plan.sources() if each.step.source.topic == start.topic)
    elif deployment.recovered:
        core.restore(load_state(deployment, birth), deployment.start)
    return core


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
    keeps_lasts = bool(deployment.lasts_topic)
    return Saver(deployment.plan, deployment.store, birth.incarnation, base, keeps_lasts=keeps_lasts)


def _make_front(deployment: Deployment, start: FrontStart) -> Front:
    return Front(
        start.number,
        slack_ms=deployment.plan.slack_ms,
        opening=start.opening,
        window=deployment.window,
        max_future_ms=deployment.max_future_ms,
        floors=(*unpack(start.number, deployment.floors.get(start.number, b"")), *start.promised()),
        unreported=unpack(start.number, deployment.unreported.get(start.number, b"")),
        relied_on=deployment.relied_on,
        highest_floor=deployment.highest_floor,
        offset=start.offset,
        before=NO_TICK if start.before is None else start.before,
        stop=start.stop,
        preloaded=start.preloaded,
    )


def delivers(plan: Plan, level: int) -> bool:
    """Return whether workers of a level ever deliver something."""
    return plan.dead_letters is not None or any(sink.level == level for sink in plan.sinks())


def shares(plan: Plan) -> bool:
    """Return whether several sinks share a host's deliveries, so that one with few records may wait for another."""
    return len(list(plan.sinks())) > 1


def make_delivery(deployment: Deployment, birth: Birth, core: WorkerCore) -> Delivery:
    """Make a host's way to its sinks, for the first of its workers that delivers."""
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
    return ExactlyOnce(
        deployment.producer,
        transactional_id=transactional_id(deployment.plan.name, birth.level, lane),
        lasts_topic=deployment.lasts_topic,
        check=lambda: check_current(birth.service, birth.secret, birth.incarnation, birth.name),
        **limits,
    )
