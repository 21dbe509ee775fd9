"""Compares a start with what the job's first start has frozen (R11)."""

from __future__ import annotations

from dataclasses import replace

from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.core.fronts.register import FrontRegister
from lowtide.driver.bounds import refuse_other_starts, refuse_other_stops
from lowtide.driver.refusals import fence_ends_life
from lowtide.errors import FlowError, LifeEnded
from lowtide.flow.plan.plan import Plan
from lowtide.wording import count_of
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.job.submissions import refuse_again
from lowtide_snapshots.keys.hashing import HASH_VERSION


def job_record(plan: Plan) -> JobRecord:
    """Return the record of everything that a plan's order and state depend on (R11)."""
    sources = tuple(f"{v.name}={v.step.source.topic}" for v in plan.sources())
    return JobRecord(plan.name, plan.slack_ms, plan.units, plan.lanes, "log", HASH_VERSION, sources, plan.grown)


def settled(plan: Plan, conf: Conf) -> tuple[Plan, Conf]:
    """Hold a start against the job's record before anything is started for it (R11).

    Returns:
        The plan and the configuration; where that leaves `job.lanes` open, both with those of the record. The plan has
        the numbers of lanes that the job had before.

    Raises:
        AlreadyRunning: what is submitted has begun a life before.
        FlowError: the record says otherwise.
        ServiceUnavailable: ZooKeeper does not answer.
    """
    with fence_ends_life(), ZooKeeperAccess.of(conf.zookeeper).store(plan.name) as store:
        frozen = store.record()
        register = FrontRegister.from_json(store.fronts())
        refuse_other_starts(plan, register)
        refuse_other_stops(plan, register)
        if conf.job.submission is not None:
            refuse_again(*store.nodes, plan.name, conf.job.submission)
        return (plan, conf) if frozen is None else _settled(frozen, plan, conf)


def _settled(frozen: JobRecord, plan: Plan, conf: Conf) -> tuple[Plan, Conf]:
    if conf.job.lanes is not None and conf.job.lanes != frozen.lanes:
        frozen.check(job_record(plan))
    plan = replace(plan, lanes=frozen.lanes, grown=frozen.grown)
    frozen.check(job_record(plan))
    if conf.job.lanes is not None:
        return plan, conf
    if conf.job.parallelism > frozen.lanes:
        raise FlowError(
            f"job.parallelism is {conf.job.parallelism}, but since its first start the job has only {frozen.lanes} "
            "lanes, each for one worker",
            where=f'the record of job "{plan.name}" in ZooKeeper',
            way_out=f"set job.parallelism to {frozen.lanes} or less; or stop the job and give it more lanes: lowtide "
            f"lanes {plan.name} --to {frozen.lanes * -(-conf.job.parallelism // frozen.lanes)}",
        )
    return plan, replace(conf, job=replace(conf.job, lanes=frozen.lanes))


def refuse_outgrown(store: JobStore, plan: Plan) -> None:
    """Refuse a start that has waited for the lease while somebody gave the job more lanes.

    Raises:
        LifeEnded: the record has more than the plan.
        ServiceUnavailable: ZooKeeper does not answer.
    """
    frozen = store.record()
    if frozen is not None and frozen.lane_counts != plan.lane_counts:
        raise LifeEnded(
            f"the job has got {count_of(frozen.lanes, 'lane')} while this start waited, which began with {plan.lanes}",
            where=f'the record of job "{plan.name}" in ZooKeeper',
            way_out="start the job again: it then has all lanes",
        )
