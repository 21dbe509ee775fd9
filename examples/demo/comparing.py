"""Compares a job's output with a local run on the same log, with the labels that the job decided."""

from __future__ import annotations

from lowtide.api import Flow
from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.core.fronts.register import FrontRegister
from lowtide.flow.plan.compiler import compile_job
from lowtide.local.oracle import Output, Verdict, compare, read_output, read_sources
from lowtide.sinks.kafka.floor_archive import read_archived
from lowtide.sinks.kafka.lasts import read_lasts, topic_of

LASTS_LIMIT_S = 20.0


def compare_job(flow: Flow, conf: Conf, topic: str) -> tuple[Verdict, dict[int, list[Output]]]:
    """Compare a stopped job with `run_locally`'s interpreter, record by record.

    Args:
        flow: The job's flow.
        conf: The conf it was started with.
        topic: The topic of its output.

    Returns:
        The verdict, and the delivered records, by partition.
    """
    plan = compile_job(flow, conf)
    with ZooKeeperAccess.of(conf.zookeeper).store(plan.name) as store:
        register = FrontRegister.from_json(store.fronts())
    durable = read_lasts(conf.kafka, topic_of(plan.name), LASTS_LIMIT_S)
    floors = read_archived(conf.kafka, plan.name, durable, {}, LASTS_LIMIT_S)
    fronts = {f"{entry.partition.source}-{entry.partition.partition}": entry.number for entry in register.entries}
    delivered = read_output(conf.kafka, topic)
    log = read_sources(conf.kafka, plan, fronts)
    return compare(plan, log, [*register.floors(), *floors], delivered, partitions=len(delivered)), delivered
