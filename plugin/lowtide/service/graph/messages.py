"""Messages between jobs, the graph's tracker, and those that query it; framed as all messages of the service."""

from __future__ import annotations

from collections.abc import Callable

from lowtide.assignment.messages import Done, Message, Raw, Refused, reader
from lowtide_tracker.job_graph import JobKnown, JobSaid


class Say(Message, frozen=True):
    """A job's progress: its first message, and again whenever something has changed."""

    said: JobSaid


class Look(Message, frozen=True):
    """A query for the whole graph; answered by `Whole`."""


class Forget(Message, frozen=True):
    """An order to remove a retired job; answered by `Done` or `Refused`."""

    job: str


class Heard(Message, frozen=True):
    """All jobs before the receiving one, and the jobs that hold it, line by line."""

    jobs: tuple[JobKnown, ...]
    chain: list[str]


class Whole(Message, frozen=True, kw_only=True):
    """The whole graph: its jobs, the holders of each, and the time before which all of it is durable."""

    jobs: tuple[JobKnown, ...]
    chains: dict[str, list[str]]
    delivered_ms: int | None


ToGraph = Say | Look | Forget
FromGraph = Heard | Whole | Done | Refused

read_by_graph: Callable[[Raw], ToGraph] = reader(ToGraph, "the graph's tracker")
read_from_graph: Callable[[Raw], FromGraph] = reader(FromGraph, "the job")
