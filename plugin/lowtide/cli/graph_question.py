"""A question to the tracker of a graph of jobs."""

from __future__ import annotations

from lowtide.assignment.messages import Refused, encode
from lowtide.conf import Conf
from lowtide.conf.graph_secret import graph_secret
from lowtide.errors import ConfError, NotRunning, ServiceUnavailable
from lowtide.process.wire import ConnectionClosed, Kind, connect, receive, send
from lowtide.service.graph.messages import Forget, FromGraph, Look, read_from_graph
from lowtide_tracker.handshake import HandshakeError

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
