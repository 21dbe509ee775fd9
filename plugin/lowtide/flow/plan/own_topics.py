"""The names of a job's own topics: different for different jobs, and legal for any name of a job or step."""

from __future__ import annotations

import hashlib
import re

from lowtide.flow.plan.plan import Plan

__all__ = ["loop_topics", "name_beside"]

_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,100}")
_LEGAL_LOOP = re.compile(r"[A-Za-z0-9-]{1,60}")


def name_beside(job: str, kind: str, behind: str = "") -> str:
    """Return the name of a job's own topic.

    Kafka allows no two topics whose names differ in "." and "_" only, so a name with a dot is told apart by its hash.
    """
    if _LEGAL.fullmatch(job):
        return f"lowtide.{job}.{kind}{behind}"
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", job)[:100]
    return f"lowtide.{readable}.{kind}-{hashlib.sha256(job.encode()).hexdigest()[:32]}{behind}"


def loop_topics(plan: Plan) -> dict[int, str]:
    """Return the topics of loops, by the exchange back from the tail (`Feedback`)."""
    return {way.id: _loop_topic(plan.name, plan.vertices[way.parents[0]].name) for way in plan.feedbacks()}


def _loop_topic(job: str, loop: str) -> str:
    if _LEGAL_LOOP.fullmatch(loop):
        return name_beside(job, "loop", f".{loop}")
    readable = re.sub(r"[^A-Za-z0-9-]", "-", loop)[:60]
    return name_beside(job, "loop", f".{readable}-{hashlib.sha256(loop.encode()).hexdigest()[:16]}")
