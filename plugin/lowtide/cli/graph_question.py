"""A question to the tracker of a graph of jobs, and a check for jobs that read what another one redelivers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lowtide.assignment.messages import Refused, encode
from lowtide.conf import Conf
from lowtide.conf.graph_secret import graph_secret
from lowtide.connectors.topics import Topics
from lowtide.errors import ConfError, FlowError, NotRunning, ServiceUnavailable
from lowtide.process.wire import ConnectionClosed, Kind, connect, receive, send
from lowtide.service.graph.messages import Forget, FromGraph, Look, Whole, read_from_graph
from lowtide_tracker.handshake import HandshakeError
from lowtide_tracker.job_graph import JobKnown

LIMIT_S = 10


def ask_graph(conf: Conf, question: Look | Forget) -> FromGraph:
    """Ask the tracker one question.

    Raises:
        NotRunning: it refuses.
        ServiceUnavailable: it does not answer.
    """
    address, secret = graph_address(conf), graph_secret(conf.tracker)
    try:
        with connect(address, secret.encode()) as connection:
            connection.settimeout(LIMIT_S)
            send(connection, Kind.ASK, encode(question))
            _, payload = receive(connection)
    except (OSError, ConnectionClosed, HandshakeError) as error:
        raise ServiceUnavailable(
            f"the graph's tracker at {address} does not answer: {error}",
            where="[tracker].graph",
            way_out="start it: lowtide tracker; or check that this conf has its address and secret",
        ) from error
    answer = read_from_graph(payload)
    if isinstance(answer, Refused):
        raise NotRunning(answer.cause, where=f"the graph's tracker at {address}")
    return answer


def graph_address(conf: Conf) -> str:
    """Return the address of the graph's tracker (errors: ConfError, if none is named)."""
    if conf.tracker.graph is None:
        raise ConfError(
            "no shared tracker is configured",
            where="[tracker] of the conf",
            way_out='set graph = "host:port", the same for all jobs of the graph, and secret_file',
        )
    return conf.tracker.graph


def refuse_readers(conf: Conf, job: str, topics: Sequence[str]) -> None:
    """Refuse to deliver again into topics that other jobs of the graph read; a job outside a graph passes.

    Args:
        conf: The conf with the addresses of the graph's tracker and of Kafka.
        job: The job that is to deliver again.
        topics: The topics that it writes.

    Raises:
        FlowError: others read them; the text names each, and what to do.
        ServiceUnavailable: the tracker or Kafka does not answer.
    """
    if conf.tracker.graph is None:
        return
    whole = ask_graph(conf, Look())
    assert isinstance(whole, Whole), "a look is answered so"
    readers = readers_of(whole.jobs, job, topics)
    if not readers:
        return
    kafka = Topics(conf.kafka)
    read = sorted({topic for names in readers.values() for topic in names} & set(topics))
    ends = kafka.ends(kafka.describe_all(read))
    starts = "; ".join(
        f"{topic}: {', '.join(f'{part}: {end}' for (name, part), end in sorted(ends.items()) if name == topic)}"
        for topic in read
    )
    raise FlowError(
        f'job "{job}" would deliver again what other jobs of the graph have read: '
        + "; ".join(f'"{name}" reads {", ".join(names)}' for name, names in readers.items()),
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
