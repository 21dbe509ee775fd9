"""The topics of staged logs, as a life begins with them."""

from __future__ import annotations

from typing import cast

from lowtide.flow.formats.endpoints import is_staged
from lowtide.flow.plan.own_topics import staged_topic
from lowtide.flow.plan.plan import Plan
from lowtide.sinks.own_topics import OwnTopic
from lowtide.sinks.staged.contract import Staged


def staged_sinks(plan: Plan) -> dict[str, Staged]:
    """Return by name the sinks whose records are staged."""
    return {vertex.name: cast("Staged", sink) for vertex in plan.sinks() if is_staged(sink := vertex.step.sink)}


def staged_topics(plan: Plan) -> dict[str, OwnTopic]:
    """Return the topics of staged logs by sink."""
    return {sink: topic_of_sink(plan.name, sink) for sink in staged_sinks(plan)}


def topic_of_sink(job: str, sink: str) -> OwnTopic:
    """Return the topic of one staged log."""
    return OwnTopic(
        staged_topic(job, sink),
        holds=f'the records of sink "{sink}" wait for their store',
        step=f'sink "{sink}"',
        unknown="give the job another name; or delete the topic once no job writes it, and what its records have "
        "become in the sink's store",
        lost="restore the topic; or give the job another name and the sink a new place: a new job delivers everything",
        carried=True,
    )
