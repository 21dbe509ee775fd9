"""The stores besides Kafka that a flow writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard, cast

from lowtide.conf import Conf
from lowtide.flow.formats.endpoints import KAFKA, Sink
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.steps import Answers
from lowtide.sinks.contract import Direct, Home, JobSinks, Life, Way

__all__ = ["home_of", "is_direct", "job_sinks", "uses_kafka", "way_of"]


def is_direct(sink: Sink) -> TypeGuard[Direct]:
    """Return whether a sink's store takes records and marks by itself; Kafka's needs more of the job."""
    return sink.store != KAFKA


def uses_kafka(plan: Plan) -> bool:
    """Return whether anything is delivered to Kafka, staged records and the answers of calls included."""
    own = plan.dead_letters is not None or any(plan.those(Answers))
    return own or any(not is_direct(vertex.step.sink) for vertex in plan.sinks())


def job_sinks(plan: Plan, conf: Conf, job_id: str, generation: int) -> dict[str, JobSinks]:
    """Return the sinks of a job by store, Kafka's left out (errors: ConfError)."""
    stores: dict[str, dict[str, Direct]] = {}
    for vertex in plan.sinks():
        sink = vertex.step.sink
        if is_direct(sink):
            stores.setdefault(sink.store, {})[vertex.name] = sink
    return {
        name: JobSinks(
            plan.name,
            job_id,
            generation,
            plan.lanes,
            sinks,
            next(iter(sinks.values())).settings(conf),
            strands=plan.units_of_workers(),
        )
        for name, sinks in stores.items()
    }


def home_of(job: JobSinks, life: Life) -> Home:
    """Return a store as the start of a life sees it."""
    return _any(job).home(job, life)


def way_of(job: JobSinks, life: Life) -> Way:
    """Return the way of a host into a store."""
    return _any(job).way(job, life)


def _any(job: JobSinks) -> Direct:
    sinks = cast("Mapping[str, Direct]", job.sinks)
    return next(iter(sinks.values()))
