"""The names of a job's own topics: different for different jobs, and legal for any name of a job or step."""

from __future__ import annotations

import hashlib
import re

from lowtide.flow.plan.plan import Plan

_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,100}")
_LEGAL_STEP = re.compile(r"[A-Za-z0-9-]{1,60}")


def name_beside(job: str, kind: str, suffix: str = "") -> str:
    """Return the name of a job's own topic.

    Kafka allows no two topics whose names differ in "." and "_" only, so a name with a dot gets a hash.
    """
    if _LEGAL.fullmatch(job):
        return f"lowtide.{job}.{kind}{suffix}"
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", job)[:100]
    return f"lowtide.{readable}.{kind}-{hashlib.sha256(job.encode()).hexdigest()[:32]}{suffix}"


def loop_topics(plan: Plan) -> dict[int, str]:
    """Return the topics of loops, by the exchange back from the tail (`Feedback`)."""
    return {way.id: _of_step(plan.name, "loop", plan.vertices[way.parents[0]].name) for way in plan.feedbacks()}


def staged_topic(job: str, sink: str) -> str:
    """Return the staged log of a sink: the topic from which its carrier takes records."""
    return _of_step(job, "staged", sink)


def answers_topic(job: str, call: str) -> str:
    """Return the topic in which the answers of a call are kept."""
    return _of_step(job, "answers", call)


def _of_step(job: str, kind: str, step: str) -> str:
    if _LEGAL_STEP.fullmatch(step):
        return name_beside(job, kind, f".{step}")
    readable = re.sub(r"[^A-Za-z0-9-]", "-", step)[:60]
    return name_beside(job, kind, f".{readable}-{hashlib.sha256(step.encode()).hexdigest()[:16]}")
