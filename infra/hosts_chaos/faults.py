"""Faults, one function each; a fault is over when its function returns."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection

from lowtide_hosts.errors import HostsError
from lowtide_hosts.host import Host
from lowtide_hosts.program import Program
from lowtide_hosts.sockets import LISTENING, sockets

from .schedule import Fault

FLAP_S = 0.7
"""Seconds that a flapping link is down, and then up."""
ZOOKEEPER_PORT = 2181
ANSWER_LIMIT_S = 5.0
LEADER_LIMIT_S = 60.0
STRANGER = "zookeeper-1"
"""The host from which nothing connects to Spark or to a job."""
POUR = Path(__file__).with_name("pour.py")
GARBAGE = 1 << 30
POUR_S = 5.0
"""For each port."""
POUR_LIMIT_S = 300.0
REFUSED = "refused a connection"
"""Message of refusal in the logs of the job's processes, its own and those of Spark's executors, once a minute."""
REFUSED_LIMIT_S = 10.0

Mend = Callable[[], object]


class Undone(Exception):
    """A fault could not be done."""


def do(network: str, fault: Fault, mend: Mend) -> None:
    """Do one fault, and undo it unless it is permanent.

    Args:
        network: The cluster's network.
        fault: The fault.
        mend: Recreates what has died.

    Raises:
        Undone: a host it needs is not up.
    """
    if fault.other:
        _cut(fault, host_of(network, fault.host), host_of(network, fault.other))
    elif fault.kind.startswith("stranger-"):
        _pour(host_of(network, STRANGER), host_of(network, fault.host))
    elif fault.kind == "worker-lost":
        host_of(network, fault.host).lose()
    elif fault.kind.endswith("-killed"):
        host = host_of(network, _chosen(network, fault))
        program = Program.running(host, "zookeeper" if "zookeeper" in fault.kind else "kafka")
        if program is None:
            raise Undone(f"nothing to kill runs on {host.name}")
        program.signal(signal.SIGKILL)
        time.sleep(fault.lasts_s)
        mend()
    else:
        with frozen(host_of(network, _chosen(network, fault))):
            time.sleep(fault.lasts_s)


def open_ports(host: Host) -> list[int]:
    """Return the ports of a host that others can reach."""
    assert host.first is not None, "it is up"
    return sorted({
        socket.local[1]
        for socket in sockets(host.first)
        if socket.state == LISTENING and not socket.local[0].is_loopback
    })  # fmt: skip


def refusals(host: Host) -> int:
    """Count the refusals in the logs on a host."""
    logs = [file for name in ("job.log", "stderr") for file in host.home.rglob(name)]
    return sum(file.read_text(errors="replace").count(REFUSED) for file in logs)


def _pour(stranger: Host, host: Host) -> None:
    """Pour a gigabyte of garbage into the ports of a host, from one that should not reach it; check its logs."""
    ports = open_ports(host)
    if not ports:
        raise Undone(f"{host.name} has no open port: nothing runs there")
    assert stranger.first is not None, "it is up"
    each = str(GARBAGE // len(ports))
    enter = ["nsenter", "--target", str(stranger.first.pid), "--net", sys.executable, str(POUR)]
    done = subprocess.run(
        [*enter, each, str(POUR_S), host.address, *map(str, ports)],
        check=False, capture_output=True, text=True, timeout=POUR_LIMIT_S,
    )  # fmt: skip
    if done.returncode:
        raise Undone(f"no garbage could be poured into {host.name}: {done.stderr[-800:]}")
    deadline = time.monotonic() + REFUSED_LIMIT_S
    while not refusals(host):
        if time.monotonic() > deadline:
            raise Undone(f"no log on {host.name} says that the garbage was refused: {done.stdout}")
        time.sleep(0.5)


@contextmanager
def frozen(host: Host) -> Iterator[None]:
    """Freeze a host for the duration of the block."""
    host.freeze()
    try:
        yield
    finally:
        host.thaw()


def host_of(network: str, name: str) -> Host:
    """Return the host of that name; Undone if it is not up."""
    host = Host.find(network, name)
    if host is None:
        raise Undone(f"host {name} is not up")
    return host


def _cut(fault: Fault, host: Host, other: Host) -> None:
    ends = {"out": [(host, other)], "in": [(other, host)]}.get(fault.way, [(host, other), (other, host)])
    deadline = time.monotonic() + fault.lasts_s
    while (left_s := deadline - time.monotonic()) > 0:
        with _cut_off(ends):
            time.sleep(min(left_s, FLAP_S) if fault.way == "flapping" else left_s)
        if fault.way == "flapping":
            time.sleep(FLAP_S)


@contextmanager
def _cut_off(ends: list[tuple[Host, Host]]) -> Iterator[None]:
    for one, other in ends:
        one.cut(other)
    try:
        yield
    finally:
        for one, other in ends:
            one.mend(other)


def _chosen(network: str, fault: Fault) -> str:
    return _leader(network) if "leader" in fault.kind else fault.host


def _leader(network: str) -> str:
    """Return the host of ZooKeeper's leader, which the servers name on request."""
    deadline = time.monotonic() + LEADER_LIMIT_S
    while time.monotonic() < deadline:
        for host in Host.all(network):
            if host.name.startswith("zookeeper-") and "Mode: leader" in _asked(host.address):
                return host.name
        time.sleep(0.5)
    raise Undone(f"ZooKeeper had no leader for {LEADER_LIMIT_S:.0f} s")


def _asked(address: str) -> str:
    try:
        with create_connection((address, ZOOKEEPER_PORT), ANSWER_LIMIT_S) as connection:
            connection.settimeout(ANSWER_LIMIT_S)
            connection.sendall(b"srvr")
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    except OSError:
        return ""


def mended(network: str) -> None:
    """Resume every host and let every packet arrive, whatever has failed."""
    hosts = Host.all(network)
    for host in hosts:
        host.thaw()
        for other in hosts:
            try:
                host.mend(other)
            except HostsError:  # It was not cut.
                continue
