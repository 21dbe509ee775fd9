"""The floors of another job, with which a job's first start begins: what both read is then in the same order.

Labels depend on the log and on stored floors. Two jobs on one log store floors of their own, so their labels may
differ; a job that begins with the fronts and floors of another one gives its records the very labels that they had
there, up to where the other one had come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.core.fronts.register import FrontRegister
from lowtide.driver.frozen import job_record
from lowtide.driver.relied_on import relied_on
from lowtide.errors import FlowError, LifeEnded
from lowtide.flow.plan.plan import Plan
from lowtide.sinks.kafka.floor_archive import read_archived
from lowtide.sinks.kafka.lasts import keep_floors, read_lasts, topic_of
from lowtide.sinks.stores import uses_kafka
from lowtide_snapshots.errors import RecordDiffers
from lowtide_snapshots.job.borrowed import Borrowed
from lowtide_snapshots.job.store import JobStore
from lowtide_tracker import Floor

Say = Callable[[str], None]
WHERE = "--floors-from"


def refuse_borrowing(plan: Plan, conf: Conf, other: str) -> None:
    """Check that a job can begin with another one's floors, before it writes anything.

    Args:
        plan: What will run.
        conf: Where and how.
        other: The other job's name.

    Raises:
        FlowError: There is no such job, it orders records by other rules, or this job has its own floors already.
        LifeEnded: A start with the floors of yet another job broke off.
        ServiceUnavailable: ZooKeeper does not answer.
    """
    if other == plan.name:
        raise FlowError(f'job "{other}" cannot take over its own floors', where=WHERE, way_out="name another job")
    if conf.job.delivery != "exactly_once":
        raise FlowError(
            "only a job that delivers exactly once stores floors",
            where=WHERE,
            way_out='set job.delivery to "exactly_once", or leave --floors-from out',
        )
    if not uses_kafka(plan):
        raise FlowError(
            "floors are taken over into a topic, but the flow writes nothing to Kafka",
            where=WHERE,
            way_out="give the flow a sink in Kafka, such as one for dead letters",
        )
    access = ZooKeeperAccess.of(conf.zookeeper)
    with access.store(plan.name) as own, access.store(other) as store:
        fronts, borrowed, theirs = own.fronts(), own.borrowed(), store.fronts()
        if fronts and borrowed is not None and borrowed.job == other:
            return  # It has them.
        record = store.record()
        if record is None or not theirs or not store.lasts()[0]:
            raise FlowError(
                f'no job "{other}" that delivers to Kafka exactly once exists here',
                where=f"{conf.zookeeper.hosts}/{conf.zookeeper.root}",
                way_out="correct the name, or name that job's ZooKeeper",
            )
        if borrowed is not None and borrowed.job != other and not fronts:
            raise _half(plan, borrowed)
        if fronts:
            raise FlowError(
                f'job "{plan.name}" has started before, so its labels depend on its own floors',
                where=WHERE,
                way_out="leave --floors-from out; or give the flow another name",
            )
        asked = job_record(plan)
        try:
            record.check(replace(asked, job=other, grown=record.grown if asked.lanes == record.lanes else ()))
        except RecordDiffers as differs:
            raise FlowError(
                f'the flow does not order records as job "{other}": {", ".join(differs.fields)} differ',
                where=f'the record of job "{other}" in ZooKeeper',
                way_out=f"give this job the values of the record: {record.to_json()}",
            ) from differs


def borrow_floors(
    store: JobStore, plan: Plan, conf: Conf, incarnation: int, other: str, say: Say
) -> tuple[FrontRegister, tuple[Floor, ...]]:
    """Take over the fronts and floors of another job, as they are now; they become this job's own.

    Whose they are is written before the floors, and these before the fronts: a start that breaks off in between has
    labelled nothing, and is repeated.

    Args:
        store: This job's place, connected; its sinks are claimed.
        plan: What will run.
        conf: Where and how.
        incarnation: This life's number.
        other: The other job's name.
        say: Called with each step in a few words.

    Returns:
        The register that this job has now, and its floors.

    Raises:
        Fenced: This life is over.
        ServiceUnavailable: ZooKeeper or Kafka does not answer.
    """
    say(f'taking over the floors of job "{other}"')
    limit_s = conf.kafka.delivery_limit_ms / 1000
    with ZooKeeperAccess.of(conf.zookeeper).store(other) as theirs:
        register = FrontRegister.from_json(theirs.fronts())
        durable = read_lasts(conf.kafka, topic_of(other, theirs.lasts()[1]), limit_s, say)
        reached = relied_on(theirs, durable, theirs.published())
    floors = read_archived(conf.kafka, other, durable, {}, limit_s, say)
    store.set_borrowed(incarnation, Borrowed(other, reached))
    keep_floors(conf.kafka, topic_of(plan.name), floors, incarnation, limit_s)
    store.add_fronts(incarnation, register.to_json())
    return register, floors


def refuse_half_borrowed(plan: Plan, register: FrontRegister, borrowed: Borrowed | None) -> None:
    """Refuse to start a job that has another one's floors, or some of them, and no fronts.

    Raises:
        LifeEnded: Its first start was given another job's floors and broke off.
    """
    if borrowed is not None and not register.entries:
        raise _half(plan, borrowed)


def _half(plan: Plan, borrowed: Borrowed) -> LifeEnded:
    return LifeEnded(
        f'the first start of job "{plan.name}" was taking over the floors of job "{borrowed.job}" and broke off',
        where=f'topic "{topic_of(plan.name)}"',
        way_out=f"repeat it with --floors-from {borrowed.job}; or give the flow another name",
    )
