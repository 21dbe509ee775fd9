"""Makes the assignments of a new life: the deployment for its workers, the settings for its service."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import MappingProxyType

import cloudpickle

from lowtide.assignment.setting import ControlSetting, GraphSetting, LifeSetting, SnapshotSetting
from lowtide.calls.setting import settings_of
from lowtide.conf import Conf
from lowtide.conf.graph_secret import graph_secret
from lowtide.conf.store_access import store_setting
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.core.early_frames import FIRST_WINDOW_MS
from lowtide.core.fronts.floors import pack
from lowtide.core.fronts.front import Window
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.driver.bounds import stops_of
from lowtide.driver.carriages import staged_settings
from lowtide.driver.frozen import job_record
from lowtide.driver.opening import Opening
from lowtide.driver.placement import text_of
from lowtide.driver.preflight import Surroundings
from lowtide.driver.session import has_executors, master_of
from lowtide.driver.state import disk_of
from lowtide.driver.traces import traces_of
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.steps.steps import Answers
from lowtide.sinks.answers.topics import answers_topics
from lowtide.sinks.kafka.versions import version_two
from lowtide.status.moment import JobShape
from lowtide.worker.level_deployment import LevelDeployment

SPARE_TICKS = 1024
"""Ratio of the tracker's table to a front's lead."""
LARGE_TICK_BYTES = 64 << 20
"""A tick of one partition with twice as much is a trouble: a table that is preloaded at one tick is none."""


def deployment_of(plan: Plan, conf: Conf, found: Surroundings, opening: Opening) -> LevelDeployment:
    """Return what every worker is given."""
    job, exchange = conf.job, conf.exchange
    return LevelDeployment(
        plan=plan,
        sink_partitions={**found.sinks, **opening.partitions},
        producer=librdkafka_settings(conf.kafka),
        limits=Limits(
            exchange.frame_bytes, exchange.max_frame_bytes, exchange.max_frame_rows, conf.worker.max_join_bytes
        ),
        delivery=job.delivery,
        window=Window(_lead_ticks(conf), job.max_front_bytes, LARGE_TICK_BYTES),
        # In ordered mode the steps themselves wait.
        optimism=max(1, FIRST_WINDOW_MS // job.slack_ms) if plan.grouping == "optimistic" else None,
        max_future_ms=job.max_future_ms,
        max_bundle_records=job.max_bundle_records,
        delivery_limit_ms=conf.kafka.delivery_limit_ms,
        max_queued_bytes=conf.worker.max_queued_bytes,
        call_limit_s=conf.worker.call_limit_s,
        sealed=seals_frames(conf),
        pace_ms=conf.kafka.transaction_pace_ms,
        flush_ms=conf.tracker.flush_ms,
        relay=conf.tracker.relay,
        version_two=version_two(conf.kafka),
        lasts_topic=opening.lasts_topic,
        stores=opening.stores,
        loops=opening.loops,
        job_id=opening.job_id,
        start=opening.start,
        last=opening.last,
        strands=opening.strands,
        floors=pack(opening.floors),
        unreported=pack(opening.unreported),
        relied_on=opening.relied_on,
        highest_floor=max([0, *(floor.tick for floor in (*opening.floors, *opening.unreported))]),
        store=store_setting(conf.snapshots),
        restored=() if opening.recovered is None else opening.recovered.manifest.parts,
        forgot={} if opening.recovered is None else opening.recovered.forgot,
        recovered=opening.recovered is not None,
        max_call_bytes=conf.worker.max_call_bytes,
        calls=cloudpickle.dumps(tuple(settings_of(plan))),
        shares=opening.recovered is not None and opening.recovered.same_shapes(plan),
        disk=disk_of(plan, conf),
        traces=traces_of(conf),
    )


def seals_frames(conf: Conf) -> bool:
    """Return whether frames between workers of different hosts are sealed."""
    sealed = conf.exchange.sealed
    return has_executors(master_of(conf)) if sealed == "auto" else sealed == "always"


def setting_of(
    plan: Plan, conf: Conf, opening: Opening, token: str, connections: Mapping[str, str] = MappingProxyType({})
) -> LifeSetting:
    """Return the setting for the service; `connections` as in `JobShape`."""
    job, segments = conf.job, segments_of(plan)
    return LifeSetting(
        levels=plan.levels,
        graph=dict(segments.inbound),
        feeds=dict(segments.feeds),
        dues=dict(segments.dues),
        parallelism=plan.parallelism,
        processes=conf.worker.processes,
        dead_letters=plan.dead_letters is not None,
        shape=JobShape.of(
            plan,
            incarnation=opening.incarnation,
            started_ms=time.time_ns() // 1_000_000,
            delivery=job.delivery,
            connections=connections,
        ),
        driver_pid=os.getpid(),
        start=opening.start,
        relied_on=opening.relied_on,
        published=opening.published,
        published_again=opening.published_again,
        generation=opening.generation,
        capacity_ticks=_lead_ticks(conf) + SPARE_TICKS,
        shards=conf.tracker.shards,
        allowed_skew_ms=job.allowed_skew_ms,
        stall_limit_ms=job.stall_limit_ms,
        load_limit_s=conf.worker.load_limit_s if _loads(plan, opening) else 0.0,
        silent_limit_s=conf.worker.call_limit_s + conf.worker.load_limit_s,
        fronts=list(opening.fronts),
        topic_ids=dict(opening.topic_ids),
        ends={topic: str(stop) for topic, stop in stops_of(plan).items()},
        kafka=librdkafka_settings(conf.kafka),
        zookeeper=ZooKeeperAccess.of(conf.zookeeper),
        control=_control(conf, token),
        snapshots=_snapshots(plan, conf, opening),
        lasts_topic=opening.lasts_topic,
        jobs=_jobs(plan, conf, opening),
        staged=staged_settings(plan, conf, opening.job_id, opening.generation),
        answers={own.name: plan.lanes for own in answers_topics(plan).values()},
        max_staged_bytes=job.max_staged_bytes,
    )


def _loads(plan: Plan, opening: Opening) -> bool:
    """Return whether workers have something to load: a state, or the answers of calls."""
    kept = {vertex.id for vertex in plan.those(Answers)}
    return opening.recovered is not None or any(vertex in kept for vertex, _ in opening.last)


def _jobs(plan: Plan, conf: Conf, opening: Opening) -> GraphSetting | None:
    said = conf.tracker
    if said.graph is None:
        return None
    sinks = [sink for _, sink in plan.kafka_sinks()]
    letters = [] if plan.dead_letters is None else [plan.dead_letters]
    return GraphSetting(
        address=said.graph,
        secret=graph_secret(said),
        reads=tuple(sorted(opening.topic_ids)),
        writes=tuple(sorted({sink.topic for sink in (*sinks, *letters)})),
        after=said.jobs_before,
        id=opening.job_id,
        generation=opening.generation,
    )


def _control(conf: Conf, token: str) -> ControlSetting:
    said = conf.control
    return ControlSetting(
        host=said.host,
        port=said.port,
        token=token,
        tls_cert=None if said.tls_cert is None else os.path.abspath(said.tls_cert),
        tls_key=None if said.tls_key is None else os.path.abspath(said.tls_key),
    )


def _snapshots(plan: Plan, conf: Conf, opening: Opening) -> SnapshotSetting:
    said = conf.snapshots
    return SnapshotSetting(
        store=store_setting(said),
        record=job_record(plan).to_json(),
        flow=tuple(step.shape for step in saved_steps(plan).values()),
        base="" if opening.recovered is None else opening.recovered.manifest.to_json(),
        steps=text_of(plan),
        generation=opening.generation,
        taking_limit_s=said.taking_limit_s,
        max_commit_age_s=said.max_commit_age_s,
        keep=said.keep,
        max_age_s=said.max_age_s,
    )


def _lead_ticks(conf: Conf) -> int:
    return max(1, conf.job.max_front_lead_ms // conf.job.slack_ms)
