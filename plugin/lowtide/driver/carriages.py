"""The staged sinks of a job, as the processes that carry their records on need them."""

from __future__ import annotations

import cloudpickle

from lowtide.assignment.setting import StagedSetting
from lowtide.conf import Conf
from lowtide.core.fronts.end import end_tick
from lowtide.flow.formats.endpoints import last_visible_tick
from lowtide.flow.plan.own_topics import staged_topic
from lowtide.flow.plan.plan import Plan
from lowtide.sinks.staged.contract import Carriage
from lowtide.sinks.staged.partitions import carrier_group
from lowtide.sinks.staged.topics import staged_sinks


def staged_settings(plan: Plan, conf: Conf, job_id: str, generation: int) -> tuple[StagedSetting, ...]:
    """Return what each carrier of a job is given.

    Args:
        plan: The plan; the modules of its flow are pickled by value.
        conf: Where and how.
        job_id: The job's id for good.
        generation: Of the output.

    Raises:
        ConfError: the conf lacks what a store needs.
    """
    found = []
    for name, sink in staged_sinks(plan).items():
        carriage = Carriage(
            job=plan.name,
            job_id=job_id,
            generation=generation,
            sink=name,
            lanes=plan.lanes,
            slack_ms=plan.slack_ms,
            settings=sink.settings(conf),
            workers=plan.parallelism,
            lane_counts=plan.lane_counts if plan.grown else (),
        )
        found.append(
            StagedSetting(
                sink=name,
                topic=staged_topic(plan.name, name),
                group=carrier_group(plan.name, name),
                lanes=plan.lanes,
                last_mark=last_visible_tick(sink, plan.slack_ms, end_tick(plan.slack_ms)),
                pickled=cloudpickle.dumps((sink, carriage)),
            )
        )
    return tuple(found)
