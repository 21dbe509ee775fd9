"""The jobs of a graph that read what another one writes: named before a start changes what they see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.cli.graph_question import ask_graph
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.errors import FlowError, LowtideError
from lowtide.service.graph.messages import Look, Whole
from lowtide_tracker.job_graph import JobKnown


@dataclass(frozen=True, slots=True)
class Readers:
    """The other jobs of a graph that read what a job writes, near or far.

    Attributes:
        topics: By job, the topics through which it is reached.
        unknown: Why they are not known: the graph's tracker does not answer, or refuses; None if they are.
    """

    topics: Mapping[str, list[str]]
    unknown: LowtideError | None = None

    def lines(self, seen: str) -> Iterator[str]:
        """Yield a line for each reader, with what it sees of a start."""
        if self.unknown is not None:
            yield f"which jobs of the graph read what it writes is not known: {self.unknown.what}"
        for job, topics in self.topics.items():
            yield f'job "{job}" of the graph reads {", ".join(topics)}: it {seen}'

    def as_object(self) -> dict[str, Any] | None:
        """Return their topics by job; None if they are not known."""
        return None if self.unknown is not None else dict(self.topics)


def readers_in_graph(conf: Conf, job: str, topics: Sequence[str]) -> Readers:
    """Ask the graph's tracker which other jobs read these topics; a job outside a graph has none."""
    if conf.tracker.graph is None:
        return Readers({})
    try:
        whole = ask_graph(conf, Look())
    except LowtideError as error:
        return Readers({}, error)
    assert isinstance(whole, Whole), "a look is answered so"
    return Readers(readers_of(whole.jobs, job, topics))


def refuse_readers(conf: Conf, job: str, topics: Sequence[str], readers: Readers) -> None:
    """Refuse to deliver again into topics that other jobs of the graph read.

    Args:
        conf: The conf with the addresses of the graph's tracker and of Kafka.
        job: The job that is to deliver again.
        topics: The topics that it writes.
        readers: The jobs that read them.

    Raises:
        FlowError: others read them; the text names each, and what to do.
        ServiceUnavailable: the tracker or Kafka does not answer.
    """
    if readers.unknown is not None:
        raise readers.unknown
    if not readers.topics:
        return
    kafka = Topics(conf.kafka)
    read = sorted({topic for names in readers.topics.values() for topic in names} & set(topics))
    ends = kafka.ends(kafka.describe_all(read))
    starts = "; ".join(
        f"{topic}: {', '.join(f'{part}: {end}' for (name, part), end in sorted(ends.items()) if name == topic)}"
        for topic in read
    )
    raise FlowError(
        f'job "{job}" would deliver again what other jobs of the graph have read: '
        + "; ".join(f'"{name}" reads {", ".join(names)}' for name, names in readers.topics.items()),
        where=f"the graph's tracker at {conf.tracker.graph}",
        way_out="each gets these records a second time, and late, because they follow the first ones in the topic; "
        "rewinding the reader does not help. To keep the readers right, stop them and this job, redeliver with "
        "--despite-readers, and start each reader under another name, with other output topics, from where the topics "
        f"end once this job has stopped (start=, by partition; now {starts}). If the records may count twice, "
        "--despite-readers alone will do",
    )


def readers_of(jobs: Iterable[JobKnown], job: str, topics: Iterable[str]) -> Mapping[str, list[str]]:
    """Return by name the jobs that read these topics, near or far, with the topics through which each is reached."""
    found: dict[str, list[str]] = {}
    known, fresh = list(jobs), set(topics)
    while fresh:
        reached = [each for each in known if each.job not in {job, *found} and each.reads & fresh]
        for each in sorted(reached, key=lambda one: one.job):
            found[each.job] = sorted(each.reads & fresh)
        fresh = {topic for each in reached for topic in each.writes}
    return found
