"""Advice for while min time stands, by what holds it; the words of docs/operations.md, LowtideMinTimeStands."""

from __future__ import annotations

from typing import Literal

Held = Literal["job", "call", "answers", "idle front", "stopped front", "front", "not begun", "sink", "step"]
"""The kinds of holders; `advice` says what each is about."""

_ADVICE: dict[Held, tuple[str, ...]] = {
    "job": ("This job waits for another one: look at the last one that is named as holding it.",),
    "call": (
        "Does the service that `{what}` asks answer? Ask it from a host of the job, with the record in question.",
        "If it is down, nothing is lost: the sources wait for it.",
        "If it is slow but bears more calls at a time, raise `concurrency=`, or ask about several at once by `batch=`.",
    ),
    "answers": (
        "The service has answered, but Kafka has not taken the answers into `lowtide.{job}.answers.{what}`.",
        "`lowtide doctor` says whether it takes transactions.",
    ),
    "idle front": (
        "No worker reads {what} while nothing comes there. Does Kafka answer for that partition? Ask `lowtide doctor`.",
        "The event `grant_failed` names partitions for which Kafka does not answer.",
    ),
    "stopped front": ("{what} waits because others are behind it: look at the front that lags most.",),
    "front": (
        "Does the count of records of the worker that reads {what} grow? If not, is a function before `key_by` slow?",
        "If its executor does not reach that broker, the life ends after `job.stall_limit_ms` and says so.",
    ),
    "not begun": ("{what} has not begun. Has Spark a slot for it? `lowtide logs {job}` says what its executor does.",),
    "sink": (
        "A record waits {what}. Does the sink's store answer? `lowtide doctor` asks it.",
        "Or the record has failed: unless a late record repairs it, the life ends and says why.",
    ),
    "step": (
        "A record is on its way to `{what}`. Is a function slow there? `lowtide logs {job}` has what it prints.",
        "`lowtide status {job}` shows the worker whose count of records does not grow.",
        "Or the store of a sink behind it does not answer: `lowtide doctor` asks it.",
    ),
}


def advice(held: Held, what: str, job: str) -> list[str]:
    """Return what to do, a few sentences; names that can be typed stand between backticks.

    Args:
        held: What holds min time.
        what: The name of it: of the step that calls or receives, of the front, of the worker, or what the record waits
            for ("before the sinks").
        job: The job's name.

    >>> advice("stopped front", "front 3 (orders-1)", "orders")
    ['front 3 (orders-1) waits because others are behind it: look at the front that lags most.']
    """
    return [each.format(what=what, job=job) for each in _ADVICE[held]]
