"""A host process's life: it meets the service, gets the plan, makes its first worker and runs the loop."""

import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from types import TracebackType

import cloudpickle
from msgspec.structs import replace

from lowtide.assignment.birth import Birth
from lowtide.assignment.messages import Failed, Refused, StartRelay, WorkerHello, encode, line, read_by_host
from lowtide.assignment.welcome import Welcome, unpack
from lowtide.errors import LowtideError
from lowtide.process.credentials import secured, server_tls
from lowtide.process.interpreter import set_up_collector
from lowtide.process.lent_store import lend_from
from lowtide.process.role import becomes_worker
from lowtide.process.wire import Kind, connect, receive, send
from lowtide.worker.host import LevelHost
from lowtide.worker.level_deployment import LevelDeployment
from lowtide.worker.link import Link
from lowtide.worker.loop import Loop
from lowtide.worker.protocol import Stage
from lowtide.worker.speech import log_as

LOG = logging.getLogger(__name__)
FLUSH_TIMEOUT_S = 3.0
"""The time for the last deliveries; less than the fork server's GRACE_S."""
SWITCH_S = 0.0005
"""The time for which the loop and the sinks' thread may keep Python from each other; a tenth of the default, as each
such wait adds to a record's latency."""


def work(birth: Birth, doors: Sequence[tuple[socket.socket, str]], orders: socket.socket) -> int:
    """Run a host to its end and return the process's exit status.

    Args:
        birth: The first worker's birth.
        doors: The sockets to which tasks connect, with their addresses: first for its executor's, last for others'.
        orders: The line from the fork server, for more workers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    becomes_worker()
    log_as(birth.name)
    control = connect(birth.service, birth.secret)
    lend_from(birth.service, birth.secret)
    hello = partial(_hello, doors[0][1], doors[-1][1])
    send(control, Kind.ASK, encode(hello(birth, plan=True)))
    kind, payload = receive(control)
    if kind != Kind.PLAN:
        answer = read_by_host(payload)
        cause = answer.cause if isinstance(answer, Refused) else "the service is stopping"
        LOG.warning("the service refused worker %s: %s", birth.name, cause)
        return 1
    try:
        welcome, pickled = unpack(payload)
        deployment: LevelDeployment = cloudpickle.loads(pickled)
        if deployment.relay and birth.relay:
            orders.sendall(line(StartRelay(welcome.tracker, deployment.flush_ms)))
            welcome = replace(welcome, tracker=birth.relay)
        host = deployment.host(birth, welcome)
        stage = deployment.stage(birth, welcome, host)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's modules raise when they are imported
        send(control, Kind.ASK, encode(Failed(_as_ours(birth.name, error).cause())))
        return 1
    set_up_collector()
    sys.setswitchinterval(SWITCH_S)
    loop = Loop(
        host,
        make=partial(_make, deployment, host),
        hello=hello,
        birth=birth,
        listeners=[listener for listener, _ in doors],
        control=Link(control),
        orders=orders,
        max_queued_bytes=deployment.max_queued_bytes,
        max_group_rows=deployment.limits.max_frame_rows,
        call_limit_s=deployment.call_limit_s,
        tls=server_tls(birth.secret) if secured(doors[-1][1]) else None,
    )
    loop.take_in(birth, stage)
    loop.run()
    left = host.close(FLUSH_TIMEOUT_S)
    if left:
        LOG.warning("host of worker %s ends: Kafka did not take %d records in time", birth.name, left)
    return 0


def _hello(near: str, address: str, birth: Birth, *, plan: bool = False) -> WorkerHello:
    """Return the hello of a worker for the service."""
    return WorkerHello(
        worker=birth.name,
        number=birth.number,
        incarnation=birth.incarnation,
        address=address,
        near=near,
        pid=os.getpid(),
        plan=plan,
    )


def _make(deployment: LevelDeployment, host: LevelHost, birth: Birth, welcome: Welcome) -> Stage:
    """Make the stage of a worker that comes later."""
    try:
        return deployment.stage(birth, welcome, host)
    except LowtideError:
        raise
    except (Exception, SystemExit) as error:
        raise _as_ours(birth.name, error) from error


def _as_ours(name: str, error: BaseException) -> LowtideError:
    """Return the error for the user: our own as it is, any other with its traceback's last place."""
    if isinstance(error, LowtideError):
        return error
    return LowtideError(
        f"worker {name} could not load the flow: {type(error).__name__}: {error}",
        way_out="make sure that every executor has the modules and files that the flow loads",
        details="".join(traceback.format_exception(error.with_traceback(_after_ours(error)))),
    )


def _after_ours(error: BaseException) -> TracebackType | None:
    """Return the traceback without this file's frame, which does not help the user."""
    return error.__traceback__.tb_next if error.__traceback__ else None
