"""The topics of answers, as a life begins with them."""

from __future__ import annotations

from lowtide.flow.plan.own_topics import answers_topic
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.steps import Ask
from lowtide.sinks.own_topics import OwnTopic


def keeping_calls(plan: Plan) -> list[str]:
    """Return the names of the calls whose answers are kept."""
    return [ask.name for ask in plan.those(Ask) if plan.answers_of(ask) is not None]


def answers_topics(plan: Plan) -> dict[str, OwnTopic]:
    """Return the topics of answers by call."""
    return {call: topic_of_call(plan.name, call) for call in keeping_calls(plan)}


def topic_of_call(job: str, call: str) -> OwnTopic:
    """Return the topic of the answers of one call."""
    return OwnTopic(
        answers_topic(job, call),
        holds=f'the answers of call "{call}" are kept',
        step=f'call "{call}"',
        unknown="give the job, or the call, another name; or delete the topic once no job writes it",
        lost="restore the topic; or give the job another name: a new job asks about everything again",
    )
